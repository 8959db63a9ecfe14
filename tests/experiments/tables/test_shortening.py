"""A shortened run is a picture of the whole one."""

import pytest

from experiments.config.usage import UsageError
from experiments.tables import shortening


def test_pretraining_shrinks_with_the_rounds():
  given = {
    'total_rounds': 200,
    'pretraining_rounds': 100,
    'rounds_per_evaluation': 10,
    'evaluation_offset': 1,
  }
  assert shortening.shorten(given, 0.2) == {
    'total_rounds': 40,
    'pretraining_rounds': 20,
    'rounds_per_evaluation': 4,
    'evaluation_offset': 1,
  }
  # Every round is evaluated: there is nothing to offset.
  least = {'rounds_per_evaluation': 1, 'evaluation_offset': 0}
  assert shortening.shorten(given, 0.05) == {
    'total_rounds': 10,
    'pretraining_rounds': 5,
    **least,
  }
  # A round each at least.
  assert shortening.shorten(given, 0.001) == {
    'total_rounds': 2,
    'pretraining_rounds': 1,
    **least,
  }


def test_supervised_rounds_shrink_with_the_rounds():
  given = {'total_rounds': 100, 'supervised_rounds': 40}
  shorter = shortening.shorten(given, 0.1)
  assert shorter == {'total_rounds': 10, 'supervised_rounds': 4}
  # A round with pseudo-labels is left.
  given['supervised_rounds'] = 99
  assert shortening.shorten(given, 0.02) == {
    'total_rounds': 2,
    'supervised_rounds': 1,
  }


@pytest.mark.parametrize(
  'name',
  [
    *('server_warmup_rounds', 'warmup_rounds', 'helper_interval'),
    'threshold_rounds',
  ],
)
def test_warmup_and_intervals_shrink_with_the_rounds(name):
  given = {'total_rounds': 40, name: 5}
  assert shortening.shorten(given, 0.25) == {'total_rounds': 10, name: 2}
  given[name] = 0
  assert shortening.shorten(given, 0.25) == {'total_rounds': 10, name: 0}


def test_the_rate_ends_where_it_would():
  given = {
    'total_rounds': 100,
    'schedule': 'exponential',
    'schedule_decay': 0.97,
  }
  shorter = shortening.shorten(given, 0.25)
  assert shorter['total_rounds'] == 25
  assert shorter['schedule_decay'] == pytest.approx(0.88529281)  # .97 ** 4
  assert shorter['schedule_decay'] ** 25 == pytest.approx(0.97**100)


def test_a_schedule_that_there_is_not_is_refused():
  with pytest.raises(UsageError, match="--schedule=cosin .*'cosine'"):
    shortening.shorten({'total_rounds': 10, 'schedule': 'cosin'}, 0.5)


def test_only_what_is_given_is_shortened():
  given = {'total_rounds': 30, 'schedule': 'constant', 'learning_rate': 0.1}
  assert shortening.shorten(given, 0.1) == {'total_rounds': 3}
