"""TFF's own tests with our builders end as the page of them says."""

import pathlib

import pytest

from tff_ssl.testing.tff_cases import cases, page

pytestmark = pytest.mark.usefixtures('tff_context')

_PAGE = pathlib.Path(__file__).parents[3] / 'docs/reference/tff_tests.md'


# What a builder refuses at once.
_CHEAP = (
  'fed_avg.function_without_a_model',
  'fed_avg.loop_implementation',
  'fed_avg.neither_function_nor_model',
  'fed_avg.unknown_client_weighting',
  'fed_avg.unweighted_aggregator_with_weights',
  'fed_prox.instance_of_a_model',
  'fed_prox.loop_implementation',
  'fed_prox.negative_strength',
  'fed_prox.no_strength',
  'processes.what_is_no_learning_rate',
  'schedules.learning_rate_argument',
  'schedules.optimizer_of_the_rate',
)


def _marked(name):
  module = name.partition('.')[0]
  marks = [pytest.mark.xdist_group(f'cases of {module}')]
  return pytest.param(
    name, marks=marks if name in _CHEAP else [*marks, pytest.mark.cases]
  )


@pytest.mark.parametrize('name', map(_marked, page.CASES))
def test_a_case_ends_as_the_page_says(name):
  case = page.CASES[name]
  ended = cases.outcome(case)
  assert ended.lower().startswith(case.kind)
  assert page.row(case, ended) in _PAGE.read_text('utf-8').splitlines(), (
    f'docs/reference/tff_tests.md is stale: run {page.COMMAND}'
  )
