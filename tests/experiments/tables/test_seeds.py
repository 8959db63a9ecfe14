"""Statistics over seeds against the standard library and a table."""

import statistics

import pytest

from experiments import run
from experiments.config import flags
from experiments.tables import child_runs, seeds

ACCURACIES = [0.91, 0.93, 0.90, 0.96]


def test_mean_and_standard_deviation():
  result = seeds.spread(ACCURACIES)
  assert result.n == 4
  assert result.mean == pytest.approx(0.925)
  # Deviations -.015, .005, -.025, .035: squares sum to .0021, over n - 1 = 3.
  assert result.std == pytest.approx(0.0007**0.5)
  assert result.std == pytest.approx(statistics.stdev(ACCURACIES))


def test_interval_is_that_of_a_table():
  """Student's t with three degrees of freedom: 3.182 in every table."""
  half = 3.182446 * 0.0007**0.5 / 2
  result = seeds.spread(ACCURACIES)
  assert result.low == pytest.approx(0.925 - half)
  assert result.high == pytest.approx(0.925 + half)
  assert str(result) == (
    'mean 0.9250, standard deviation 0.0265, n 4, 95% interval of the mean '
    "0.8829 to 0.9671 (Student's t)"
  )


def test_no_interval_below_three():
  one, two = seeds.spread([0.5]), seeds.spread([0.5, 0.7])
  assert one.std is one.low is one.high is two.low is two.high is None
  assert str(one) == 'mean 0.5000, n 1 (no interval below 3 seeds)'
  assert two.std == pytest.approx(statistics.stdev([0.5, 0.7]))
  assert str(two) == (
    'mean 0.6000, standard deviation 0.1414, n 2 (no interval below 3 seeds)'
  )


def test_equal_values_have_an_interval_of_no_width():
  result = seeds.spread([0.5, 0.5, 0.5])
  assert (result.std, result.low, result.high) == (0, 0.5, 0.5)


@pytest.mark.parametrize('values', [[], [0.5, float('nan')]])
def test_refused_values(values):
  with pytest.raises(ValueError, match='finite'):
    seeds.spread(values)


GIVEN = {'process': 'grouping', 'dataset': 'digits', 'total_rounds': 4}


@pytest.fixture
def planned(monkeypatch, tmp_path):
  """Takes the place of the processes; the folders lie in a new one."""
  monkeypatch.chdir(tmp_path)
  runs = []

  def run_all(planned, *, are_alike):
    assert are_alike
    runs.extend(planned)
    return child_runs.Outcome((), None)

  monkeypatch.setattr(child_runs, 'run_all', run_all)
  return runs


@pytest.mark.parametrize(
  'more, folders',
  [
    ({}, ['runs/grouping_digits_seed0', 'runs/grouping_digits_seed5']),
    ({'run_dir': 'a/b'}, ['a/b_seed0', 'a/b_seed5']),
    (
      {'recipe': 'ssfl_table2:c10_s2'},
      ['runs/ssfl_table2/c10_s2_seed0', 'runs/ssfl_table2/c10_s2_seed5'],
    ),
  ],
)
def test_a_folder_for_each_seed(planned, more, folders):
  given = {**({} if 'recipe' in more else GIVEN), **more, 'seeds': '0,5'}
  assert seeds.run(given) == 0
  assert [r.given['run_dir'] for r in planned] == folders
  assert [r.settings.seed for r in planned] == [0, 5]
  assert [flags.parse(['x', *as_argv(r.given)]) for r in planned] == [
    r.given for r in planned
  ]


def as_argv(given):
  return [f'--{name}={value}' for name, value in given.items()]


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('--seed=1', '--seeds=0,1'), '--seed=1 and --seeds=0,1 exclude'),
    (('--seeds=0,x',), '--seeds=0,x'),
    (('--seeds=0,1', '--num_groups=0'), '--num_groups=0'),
  ],
)
def test_refusals_come_before_the_first_run(
  planned, capsys, arguments, message
):
  argv = ['run', *as_argv(GIVEN), *arguments]
  assert run.main(argv) == 2
  error = capsys.readouterr().err
  assert message in error and error.count('\n') == 1
  assert not planned
