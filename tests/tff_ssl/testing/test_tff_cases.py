"""TFF's own tests with our builders, and the page of their outcomes."""

import functools
import pathlib

import pytest

from tff_ssl.testing.tff_cases import cases, page

pytestmark = [pytest.mark.cases, pytest.mark.usefixtures('tff_context')]

_PAGE = pathlib.Path(__file__).parents[3] / 'docs/reference/tff_tests.md'


@functools.cache
def outcome(name):
  """How a case ended; the page is made of the same runs."""
  return cases.outcome(page.CASES[name])


@pytest.mark.parametrize('name', page.CASES)
def test_a_case_ends_as_it_must(name):
  assert outcome(name).lower().startswith(page.CASES[name].kind)


def test_the_page_is_current():
  outcomes = {name: outcome(name) for name in page.CASES}
  assert _PAGE.read_text(encoding='utf-8') == page.text(outcomes), (
    f'docs/reference/tff_tests.md is stale: run {page.COMMAND}'
  )
