"""Whole runs of a process whose clients keep a state."""

import json
import shutil

import pytest

from experiments import run

pytestmark = pytest.mark.runs

FLAGS = (
  '--process=fedtrinet',
  '--dataset=digits',
  '--model=dense_encoder',
  '--num_clients=6',
  '--clients_per_round=4',
  '--batch_size=10',
  '--local_epochs=1',
  '--supervised_rounds=2',
)


def train(folder, *arguments):
  assert run.main(['run', *FLAGS, *arguments, f'--run_dir={folder}']) == 0
  return json.loads((folder / 'summary.json').read_text())


def states(folder):
  """Returns the rounds of the states that are kept, by client."""
  kept = {}
  for path in (folder / 'client_states').rglob('*.state'):
    kept.setdefault(int(path.parent.name), []).append(int(path.stem))
  return {client: sorted(rounds) for client, rounds in kept.items()}


@pytest.fixture(scope='module')
def runs(tmp_path_factory, tff_context):
  """A whole run, one cut after four rounds, and the former's summary."""
  folder = tmp_path_factory.mktemp('runs')
  cache = f'--cache_dir={folder / "cache"}'
  whole = train(folder / 'whole', cache, '--total_rounds=7')
  train(folder / 'cut', cache, '--total_rounds=4')
  return folder, cache, whole


def test_a_run_goes_on_with_its_clients_states(runs, tmp_path):
  folder, cache, whole = runs
  resumed = tmp_path / 'resumed'
  shutil.copytree(folder / 'cut', resumed)
  summary = train(resumed, cache, '--total_rounds=7')
  assert summary['weights_sha256'] == whole['weights_sha256']
  # Every client has taken part; of what it left, a few versions are kept.
  kept = states(folder / 'whole')
  assert set(kept) == set(range(6))
  assert max(map(len, kept.values())) <= 3
  newest = {client: rounds[-1] for client, rounds in kept.items()}
  assert newest == {c: rounds[-1] for c, rounds in states(resumed).items()}
  # The states travel with no message: weights, and little more.
  assert whole['bytes_up_per_client'] < whole['bytes_down_per_client'] + 100


def test_without_its_states_a_run_is_not_resumed(runs, tmp_path, capsys):
  folder, cache, _ = runs
  other = tmp_path / 'other'
  shutil.copytree(folder / 'cut', other)
  paths = list((other / 'client_states').rglob('*.state'))
  for path in paths:
    path.unlink()
  metrics = (other / 'metrics.csv').read_bytes()
  arguments = (cache, '--total_rounds=7', f'--run_dir={other}')
  assert run.main(['run', *FLAGS, *arguments]) == 1
  [error] = capsys.readouterr().err.splitlines()
  assert 'restore the files from a copy' in error
  assert any(f'{path} is missing' in error for path in paths)
  assert (other / 'metrics.csv').read_bytes() == metrics
