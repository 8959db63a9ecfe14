"""What two versions of the code are compared by."""

import pytest

from benchmarks import same_results
from experiments.config import flags, settings
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES


def test_every_process_and_six_recipes_are_cases():
  names = list(same_results.cases())
  assert names[: len(PROCESSES)] == [f'process/{name}' for name in PROCESSES]
  assert len(names) == len(PROCESSES) + 6


@pytest.mark.parametrize('name', same_results.cases())
def test_every_case_can_be_run(name):
  given = flags.parse(['run', *same_results.cases()[name], '--run_dir=x'])
  checked = recipes.make(given) if 'recipe' in given else settings.make(given)
  assert 1 <= checked.total_rounds <= 10


def test_names_are_chosen_by_their_beginnings():
  names = ['process/a', 'process/b', 'recipe/c', 'resume']
  assert same_results.chosen(names, None) == names
  assert same_results.chosen(names, 'recipe,process/b') == [
    'process/b',
    'recipe/c',
  ]
  with pytest.raises(ValueError, match='--only=proces/ chooses none'):
    same_results.chosen(names, 'proces/')


def test_a_result_that_differs_or_is_missing_is_found():
  before = {'a': '1', 'b': '2', 'c': '3'}
  assert same_results.differences(before, dict(before)) == []
  after = {'a': '1', 'b': '4', 'd': '5'}
  assert same_results.differences(before, after) == ['b', 'c', 'd']
