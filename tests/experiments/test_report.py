"""The report reads its figures from the runs, and from nowhere else."""

import json

import pandas as pd
import pytest

from experiments import flags, report


def _write_run(folder, process, accuracies):
  folder.mkdir()
  table = pd.DataFrame(
    {'round': range(1, len(accuracies) + 1), 'accuracy': accuracies}
  )
  table.to_csv(folder / 'metrics.csv', index=False)
  summary = {
    'process': process,
    'dataset': 'digits',
    'data': 'some digits',
    'model': 'dense',
    'seed': 3,
    'clients': 20,
    'server_examples': 100,
    'rounds': len(accuracies),
    'accuracy': accuracies[-1],
    'best_accuracy': max(accuracies),
    'seconds_per_round': 0.256,
    'flags': {'process': process, 'run_dir': '/somewhere', 'num_groups': 2},
  }
  (folder / 'summary.json').write_text(json.dumps(summary))


def test_table_and_files(tmp_path):
  _write_run(tmp_path / 'a', 'grouping', [0.5, 0.75, 0.7])
  _write_run(tmp_path / 'b', 'server_only', [0.25, 0.5])
  table = report.report(
    [tmp_path / 'a', tmp_path / 'b'], tmp_path / 'out' / 'table'
  )
  assert list(table['process']) == ['grouping', 'server_only']
  assert list(table['accuracy']) == [0.7, 0.5]
  assert list(table['best accuracy']) == [0.75, 0.5]
  pd.testing.assert_frame_equal(
    pd.read_csv(tmp_path / 'out' / 'table.csv'), table
  )
  text = (tmp_path / 'out' / 'table.md').read_text()
  assert '--process=grouping --num_groups=2' in text
  assert '/somewhere' not in text
  png = (tmp_path / 'out' / 'table.png').read_bytes()
  assert png.startswith(b'\x89PNG')


def test_unfinished_run(tmp_path):
  with pytest.raises(flags.UsageError, match='no finished run'):
    report.report([tmp_path], tmp_path / 'table')


def test_command_line(tmp_path, capsys):
  _write_run(tmp_path / 'a', 'grouping', [0.5])
  assert report.main(['report', str(tmp_path / 'a'), str(tmp_path / 'o')]) == 0
  assert 'grouping' in capsys.readouterr().out
  assert report.main(['report', str(tmp_path / 'no'), str(tmp_path / 'o')]) == 2
  assert 'error: ' in capsys.readouterr().err
  assert report.main(['report']) == 2
