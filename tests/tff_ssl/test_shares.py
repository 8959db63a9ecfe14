"""Shares mean what a person reads."""

import fractions

import pytest

from tff_ssl import shares


@pytest.mark.parametrize(
  'share, text',
  [
    (0.14, '7/50'),
    (0.145, '29/200'),
    (1 / 3, '1/3'),
    (0.1 + 0.2, '3/10'),
    (0.999999, '999999/1000000'),
    (0, '0'),
    (1, '1'),
  ],
)
def test_the_fraction_that_is_meant(share, text):
  assert shares.exact(share) == fractions.Fraction(text)
