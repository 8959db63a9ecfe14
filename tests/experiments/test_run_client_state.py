"""Whole runs of processes whose clients, or whose server, keep more."""

import shutil

import numpy as np
import pytest
import run_folders
import tensorflow as tf
from run_folders import SMALL

from experiments import run
from experiments.artifacts import run_folder

FEDTRINET = (
  *('--process=fedtrinet', *SMALL, '--model=dense_encoder', '--batch_size=10'),
  *('--local_epochs=1', '--supervised_rounds=2'),
)
SCAFFOLD = (
  *('--process=scaffold', *SMALL, '--batch_size=20'),
  '--labelled_fraction=0.5',
)
# Processes whose clients keep models of their own, and all take part.
OF_ALL = (
  *('--dataset=digits', '--model=dense', '--num_clients=6', '--batch_size=20'),
  *('--total_rounds=12', '--rounds_per_checkpoint=5'),
)


def states(folder):
  """Returns the rounds of the states that are kept, by client."""
  kept = {}
  for path in (folder / 'client_states').rglob('*.state'):
    kept.setdefault(int(path.parent.name), []).append(int(path.stem))
  return {client: sorted(rounds) for client, rounds in kept.items()}


@pytest.fixture(scope='module')
def runs(tmp_path_factory, cache, tff_context):
  """A whole run, one cut after four rounds, and the former's summary."""
  folder = tmp_path_factory.mktemp('runs')
  whole, cut = folder / 'whole', folder / 'cut'
  summary = run_folders.train(whole, *FEDTRINET, cache, '--total_rounds=7')
  run_folders.train(cut, *FEDTRINET, cache, '--total_rounds=4')
  return whole, cut, summary


@pytest.mark.runs
def test_a_run_goes_on_with_its_clients_states(runs, cache, tmp_path):
  whole, cut, summary = runs
  resumed = tmp_path / 'resumed'
  shutil.copytree(cut, resumed)
  again = run_folders.train(resumed, *FEDTRINET, cache, '--total_rounds=7')
  assert again['weights_sha256'] == summary['weights_sha256']
  # Every client has taken part; of what it left, a few versions are kept.
  kept = states(whole)
  assert set(kept) == set(range(6))
  assert max(map(len, kept.values())) <= 3
  newest = {client: rounds[-1] for client, rounds in kept.items()}
  assert newest == {c: rounds[-1] for c, rounds in states(resumed).items()}
  # The states travel with no message: weights, and little more.
  down = summary['bytes_down_per_client']
  assert summary['bytes_up_per_client'] < down + 100


@pytest.mark.runs
def test_without_its_states_a_run_is_not_resumed(
  runs, cache, tmp_path, error_of
):
  _, cut, _ = runs
  other = tmp_path / 'other'
  shutil.copytree(cut, other)
  paths = list((other / 'client_states').rglob('*.state'))
  for path in paths:
    path.unlink()
  metrics = (other / 'metrics.csv').read_bytes()
  more = (cache, '--total_rounds=7', f'--run_dir={other}')
  error = error_of(run.main, *FEDTRINET, *more, code=1)
  assert 'restore the files from a copy' in error
  assert any(f'{path} is missing' in error for path in paths)
  assert (other / 'metrics.csv').read_bytes() == metrics


@pytest.mark.runs
@pytest.mark.parametrize(
  'flags',
  [
    (*SCAFFOLD, '--total_rounds=5'),
    ('--process=easgd', *OF_ALL),
    ('--process=overlap_sgd', *OF_ALL),
  ],
  ids=lambda flags: flags[0],
)
def test_a_run_goes_on_with_controls_or_models(flags, cache, train_and_resume):
  summary, _, _ = train_and_resume(*flags, cache)
  # A model, and a control or the counts, each way.
  assert summary['bytes_up_per_client'] == pytest.approx(
    summary['bytes_down_per_client'], abs=200
  )
  if 'scaffold' not in flags[0]:
    # The network starts at a tenth.
    assert summary['accuracy'] > 0.8
    assert summary['clients_per_round'] == 6


@pytest.mark.runs
def test_the_number_of_clients_is_the_partitions(cache, tmp_path, tff_context):
  """After a round of all clients, c is the mean of what they keep."""
  run_folders.train(
    tmp_path,
    *(*SCAFFOLD, cache, '--total_rounds=1', '--clients_per_round=6'),
  )
  controls = []
  for path in (tmp_path / 'client_states').rglob('*.state'):
    leaves = tf.io.parse_tensor(path.read_bytes(), tf.string)
    controls.append(tf.io.parse_tensor(leaves[0], tf.float32).numpy())
  assert len(controls) == 6
  mean = np.mean(controls, axis=0)
  (path,) = (tmp_path / 'checkpoints').glob('round_*1/state.npz')
  with np.load(path) as leaves:
    found = [
      np.allclose(leaf.view(np.float32), mean, atol=1e-6)
      for leaf in leaves.values()
      if leaf.shape == mean.shape
    ]
  # The model's kernel of that shape, and the server's control.
  assert sorted(found) == [False, True]
  assert np.abs(mean).max() > 1e-4


@pytest.mark.runs
def test_room_is_asked_for_what_clients_keep(
  cache, tmp_path, tff_context, monkeypatch
):
  """Models and momenta of the ten rounds of two checkpoints, and one before."""
  asked = []
  monkeypatch.setattr(
    run_folder.RunFolder,
    'require_free_space',
    lambda self, num_bytes: asked.append(num_bytes),
  )
  plain = (*OF_ALL, cache, '--clients_per_round=6', '--total_rounds=1')
  run_folders.train(tmp_path / 'a', '--process=fedavg', *plain)
  run_folders.train(tmp_path / 'b', '--process=easgd', *plain)
  states = sum(
    path.stat().st_size
    for path in (tmp_path / 'b' / 'client_states').rglob('*.state')
  )
  assert asked[1] - asked[0] == pytest.approx(11 * states, rel=0.05)
