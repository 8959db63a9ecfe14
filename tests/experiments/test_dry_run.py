"""--dry_run prepares and refuses as a run does, and trains nothing."""

import json

import pytest

from experiments import run
from experiments.config import settings
from experiments.running import building, description, summary
from tff_ssl.simulation import workers


@pytest.fixture
def where(tmp_path):
  return (
    f'--run_dir={tmp_path / "runs" / "x"}',
    f'--cache_dir={tmp_path / "cache"}',
  )


def main(*arguments):
  return run.main(['run', '--dry_run', *arguments])


def test_says_what_would_run_and_leaves_no_run(where, tmp_path, capsys):
  before = workers.worker_memory_mib()
  given = ('--process=grouping', '--dataset=digits', '--num_groups=3')
  assert main(*given, *where) == 0
  lines = capsys.readouterr().out.splitlines()
  assert '--num_groups=3' in lines and '--threshold=0.95' in lines
  assert any(line.startswith('20 clients with ') for line in lines)
  assert '100 rounds with 10 clients each.' in lines
  assert lines[-1] == 'Nothing was trained (--dry_run).'
  assert not (tmp_path / 'runs').exists()
  assert workers.worker_memory_mib() == before


def test_refuses_as_a_run_does(where, capsys):
  given = ('--process=grouping', '--dataset=digits')
  assert main(*given, *where, '--control_update=from_steps') == 2
  assert 'does not use it' in capsys.readouterr().err
  # What only the data tell.
  assert main(*given, *where, '--server_examples=5') == 2
  assert '--server_examples=5 is less than the 10 classes' in (
    capsys.readouterr().err
  )


def test_costs_are_those_of_the_process(tmp_path):
  """S models of 4 bytes a weight go down, and S rows for the groups go up."""
  made = settings.make(
    {
      'process': 'grouping',
      'dataset': 'digits',
      'model': 'dense',
      'num_groups': 3,
      'local_steps': 7,
      'cache_dir': str(tmp_path),
    }
  )
  opened = building.Run.open(made)
  weights = 64 * 200 + 200 + 200 * 10 + 10
  sent = description.communication(
    made, opened.process, opened.model.initial_weights(0)
  )
  assert sent['bytes_up_per_client'] // (4 * weights) == 3
  assert sent['bytes_down_per_client'] // (4 * weights) == 3
  lines = description.lines_of_costs(opened)
  assert '7 steps of 20 examples: 140 go forward' in ' '.join(lines)


def test_results_of_bounds_in_folders_beside_are_named(tmp_path):
  own = {'process': 'grouping', 'dataset': 'digits', 'seed': 1}
  assert summary._bounds_beside(tmp_path / 'mine', own) == []
  for name, accuracy in (
    ('server_only_digits_seed1', 0.75),
    ('fedavg_digits_seed0', 0.9),
  ):
    (tmp_path / name).mkdir()
    facts = {'accuracy': accuracy, 'rounds': 20}
    (tmp_path / name / 'summary.json').write_text(json.dumps(facts))
  assert summary._bounds_beside(tmp_path / 'mine', own) == [
    'Bounds in folders beside it:',
    '  server_only (labels of the server alone): 0.7500 after 20 rounds',
  ]
  lower = {**own, 'process': 'server_only'}
  assert summary._bounds_beside(tmp_path / 'mine', lower) == []
