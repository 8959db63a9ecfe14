"""Checks of arguments: what passes, and what an error says."""

from fractions import Fraction

import pytest

from tff_ssl import checks


@pytest.mark.parametrize(
  ('prior', 'message'),
  [
    ((0.5, 0.6), 'prior must sum to 1, but .* sums to 1.1'),
    ((0.5, float('inf')), 'sums to inf'),
    ((1.0, 0.0), 'above 0 for each class'),
    ((0.5, float('nan')), 'above 0 for each class'),
    ((1.5, -0.5), 'above 0 for each class'),
    ('uniform', "one number per class, but is 'uniform'"),
    (0.5, 'one number per class'),
    (((0.5, 0.5),), 'one number per class'),
    ((0.5, 0.25, 0.25), 'of 3 classes, but there are 2'),
  ],
)
def test_a_distribution_is_positive_and_sums_to_1(prior, message):
  with pytest.raises(ValueError, match=message):
    checks.positive_distribution(2, prior=prior)


def test_a_distribution_is_taken():
  checks.positive_distribution(prior=(0.25, 0.75))
  # Three digits will do.
  checks.positive_distribution(3, prior=[0.333, 0.333, 0.333])


def test_a_number_may_be_left_out_where_it_is_optional():
  checks.integers_at_least(1, optional=True, steps=None)
  with pytest.raises(ValueError, match='steps must be .* but is None'):
    checks.integers_at_least(1, steps=None)


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
  assert checks.exact(share) == Fraction(text)
