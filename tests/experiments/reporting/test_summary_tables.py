"""Differences to a baseline, checked against SciPy's paired test."""

import math

import numpy as np
import pytest
import run_folders
from scipy import stats

from experiments import report
from experiments.config import flags
from experiments.reporting import run_groups, summary_tables

OURS = {0: 0.71, 1: 0.78, 2: 0.74}
THEIRS = {0: 0.70, 1: 0.72, 2: 0.73, 3: 0.10}


def _write_run(folder, process, seed, accuracy, **facts):
  metrics = {'round': [1], 'accuracy': [accuracy]}
  path = folder / f'{process}_{seed}'
  return run_folders.write_run(path, process, metrics, seed, **facts)


def _write_all(folder, process, accuracies):
  return [_write_run(folder, process, *run) for run in accuracies.items()]


@pytest.fixture
def runs(tmp_path):
  return [
    *_write_all(tmp_path, 'fedlabel', OURS),
    *_write_all(tmp_path, 'fedavg', THEIRS),
    *_write_all(tmp_path, 'fedprox', {3: 0.15}),
    *_write_all(tmp_path, 'semifl', {7: 0.9}),
    _write_run(tmp_path, 'fsl', 0, 0.9, data='other digits'),
  ]


def test_differences_of_common_seeds_are_those_of_the_paired_test(runs):
  groups = run_groups.read_groups(runs)
  table = summary_tables.differences(groups, 'fedavg').set_index('name')
  # SemiFL has no seed of FedAvg's, FSL other data.
  assert list(table.index) == ['fedlabel', 'fedprox']
  common = [THEIRS[seed] for seed in OURS]
  row = table.loc['fedlabel']
  assert row['n'] == 3
  assert row['ahead'] == pytest.approx((0.01 + 0.06 + 0.01) / 3, abs=5e-5)
  assert row['std'] == pytest.approx(np.std([1, 6, 1], ddof=1) / 100, abs=5e-5)
  # A difference at an end of the interval is just not significant.
  for end in ('low', 'high'):
    shifted = np.array(list(OURS.values())) - row[end]
    found = stats.ttest_rel(shifted, common).pvalue
    assert found == pytest.approx(0.05, abs=1e-3)
  one = table.loc['fedprox']
  assert (one['n'], one['ahead']) == (1, pytest.approx(0.05))
  assert all(math.isnan(one[name]) for name in ('std', 'low', 'high'))


def test_equal_runs_have_an_interval_of_no_width(tmp_path):
  runs = _write_all(tmp_path, 'a', OURS) + _write_all(tmp_path, 'b', OURS)
  groups = run_groups.read_groups(runs)
  (row,) = summary_tables.differences(groups, 'b').to_dict('records')
  assert (row['ahead'], row['low'], row['high']) == (0, 0, 0)


def test_nothing_to_compare(runs):
  groups = run_groups.read_groups(runs)
  text = summary_tables.differences_as_text(groups, 'semifl')
  assert text == 'No other row has data, measure and a seed of semifl.'


def test_command_line(runs, tmp_path, capsys):
  arguments = ['report', *map(str, runs), f'--output={tmp_path / "o"}']
  assert report.main([*arguments, '--against=fedavg']) == 0
  assert 'Minus fedavg, paired by seed' in capsys.readouterr().out
  assert 'Minus fedavg, paired by seed' in (tmp_path / 'o.md').read_text()
  assert report.main(arguments) == 0
  assert 'Minus' not in (tmp_path / 'o.md').read_text()
  assert report.main([*arguments, '--against=fedavgs']) == 2
  assert "Did you mean 'fedavg'?" in capsys.readouterr().err


def test_an_unknown_baseline_writes_nothing(runs, tmp_path):
  with pytest.raises(flags.UsageError, match='--against=no is unknown'):
    report.report(runs, tmp_path / 'out' / 'x', against='no')
  assert not (tmp_path / 'out').exists()
