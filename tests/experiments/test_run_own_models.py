"""Whole runs of processes whose clients keep models of their own."""

import json

import pytest

from experiments import run
from experiments.artifacts import run_folder

FLAGS = (
  '--dataset=digits',
  '--model=dense',
  '--num_clients=6',
  '--batch_size=20',
  '--total_rounds=12',
  '--rounds_per_checkpoint=5',
)
PROCESSES = pytest.mark.parametrize('process', ['easgd', 'overlap_sgd'])


def train(folder, *arguments):
  assert run.main(['run', *FLAGS, *arguments, f'--run_dir={folder}']) == 0
  return json.loads((folder / 'summary.json').read_text())


@pytest.mark.runs
@PROCESSES
def test_it_learns_and_goes_on_with_the_clients_models(
  process, cache, tmp_path, tff_context, copy_cut_off
):
  arguments = (f'--process={process}', cache)
  whole = train(tmp_path / 'whole', *arguments)
  # The network starts at a tenth.
  assert whole['accuracy'] > 0.8
  assert whole['clients_per_round'] == 6
  resumed = train(copy_cut_off(tmp_path / 'whole'), *arguments)
  assert resumed['weights_sha256'] == whole['weights_sha256']
  # A model each way, and the counts.
  assert whole['bytes_up_per_client'] == pytest.approx(
    whole['bytes_down_per_client'], abs=200
  )


@PROCESSES
def test_some_clients_are_refused_before_data_are_read(
  process, cache, tmp_path, capsys
):
  arguments = [f'--process={process}', '--clients_per_round=4', cache]
  folder = tmp_path / 'run'
  assert run.main(['run', *FLAGS, *arguments, f'--run_dir={folder}']) != 0
  told = capsys.readouterr().err
  assert f'--process={process} is defined for rounds of all clients' in told
  assert '--clients_per_round=4 is less than --num_clients=6' in told
  assert not folder.exists()


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
  plain = ('--clients_per_round=6', '--total_rounds=1')
  train(tmp_path / 'a', '--process=fedavg', cache, *plain)
  train(tmp_path / 'b', '--process=easgd', cache, *plain)
  states = sum(
    path.stat().st_size
    for path in (tmp_path / 'b' / 'client_states').rglob('*.state')
  )
  assert asked[1] - asked[0] == pytest.approx(11 * states, rel=0.05)
