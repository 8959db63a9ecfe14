"""Statistics over seeds against the standard library and a table."""

import dataclasses
import re
import statistics

import pytest

from experiments import run
from experiments.config import flags
from experiments.tables import child_runs, seeds

GIVEN = {'process': 'grouping', 'dataset': 'digits', 'total_rounds': 4}


@pytest.mark.parametrize(
  'values, half, said',
  [
    # Deviations -.015, .005, -.025, .035: squares sum to .0021, over n - 1 = 3.
    # Student's t with three degrees of freedom: 3.182 in every table.
    (
      [0.91, 0.93, 0.90, 0.96],
      3.182446 * 0.0007**0.5 / 2,
      'mean 0.9250, .* 0.0265, n 4, .* 0.8829 to 0.9671',
    ),
    ([0.5, 0.5, 0.5], 0, 'mean 0.5000, .* 0.0000, n 3, .* 0.5000 to 0.5000'),
    ([0.5, 0.7], None, 'mean 0.6000, .* 0.1414, n 2 .*no interval below 3'),
    ([0.5], None, 'mean 0.5000, n 1 .*no interval below 3'),
  ],
)
def test_spread(values, half, said):
  result = seeds.spread(values)
  mean = statistics.fmean(values)
  std = statistics.stdev(values) if len(values) > 1 else None
  ends = (None, None) if half is None else (mean - half, mean + half)
  assert dataclasses.astuple(result) == pytest.approx(
    (len(values), mean, std, *ends)
  )
  assert re.match(said, str(result))


@pytest.mark.parametrize('values', [[], [0.5, float('nan')]])
def test_refused_values(values):
  with pytest.raises(ValueError, match='finite'):
    seeds.spread(values)


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
  assert seeds.run(given, {}) == 0
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
  planned, error_of, arguments, message
):
  assert message in error_of(run.main, *as_argv(GIVEN), *arguments)
  assert not planned
