"""Whole runs of a process whose clients keep a state."""

import json

import pytest

from experiments import run

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


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return f'--cache_dir={tmp_path_factory.mktemp("cache")}'


def train(folder, *arguments):
  assert run.main(['run', *FLAGS, *arguments, f'--run_dir={folder}']) == 0
  return json.loads((folder / 'summary.json').read_text())


def states(folder):
  """Returns the rounds of the states that are kept, by client."""
  kept = {}
  for path in (folder / 'client_states').rglob('*.state'):
    kept.setdefault(int(path.parent.name), []).append(int(path.stem))
  return {client: sorted(rounds) for client, rounds in kept.items()}


def test_a_run_goes_on_with_its_clients_states(cache, tmp_path, tff_context):
  whole = train(tmp_path / 'whole', cache, '--total_rounds=7')
  cut = tmp_path / 'cut'
  train(cut, cache, '--total_rounds=4')
  resumed = train(cut, cache, '--total_rounds=7')
  assert resumed['weights_sha256'] == whole['weights_sha256']
  # Every client has taken part; of what it left, a few versions are kept.
  kept = states(tmp_path / 'whole')
  assert set(kept) == set(range(6))
  assert max(map(len, kept.values())) <= 3
  newest = {client: rounds[-1] for client, rounds in kept.items()}
  assert newest == {c: rounds[-1] for c, rounds in states(cut).items()}
  # The states travel with no message: weights, and little more.
  assert whole['bytes_up_per_client'] < whole['bytes_down_per_client'] + 100


def test_without_the_states_a_resumed_run_is_another(
  cache, tmp_path, tff_context
):
  folder = tmp_path / 'run'
  whole = train(tmp_path / 'whole', cache, '--total_rounds=7')
  train(folder, cache, '--total_rounds=4')
  for path in (folder / 'client_states').rglob('*.state'):
    path.unlink()
  other = train(folder, cache, '--total_rounds=7')
  assert other['weights_sha256'] != whole['weights_sha256']
