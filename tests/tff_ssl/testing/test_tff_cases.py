"""TFF's own tests with our builders end as the page of them says."""

import pathlib

import pytest

from tff_ssl.testing.tff_cases import cases, page

pytestmark = pytest.mark.usefixtures('tff_context')

_PAGE = pathlib.Path(__file__).parents[3] / 'docs/reference/tff_tests.md'


def _marked(name):
  module = name.partition('.')[0]
  marks = [pytest.mark.xdist_group(f'cases of {module}')]
  # What the builder refuses costs little, but for sums under noise.
  is_refused = page.CASES[name].kind in (cases.REFUSED, cases.NO_COUNTERPART)
  if not is_refused or module == 'aggregators':
    marks.append(pytest.mark.cases)
  return pytest.param(name, marks=marks)


@pytest.mark.parametrize('name', map(_marked, page.CASES))
def test_a_case_ends_as_the_page_says(name):
  case = page.CASES[name]
  ended = cases.outcome(case)
  assert ended.lower().startswith(case.kind)
  assert page.row(case, ended) in _PAGE.read_text('utf-8').splitlines(), (
    f'docs/reference/tff_tests.md is stale: run {page.COMMAND}'
  )
