"""Runs that collapse go back, and go on as if nobody had stopped them."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments import run
from experiments.artifacts import checkpoints
from experiments.running import run_checkpoints

# An untrained model labels everything, so that each measured round collapses.
_ASKED = (
  *('--process=fedavg_ssfl', '--dataset=digits', '--model=dense'),
  *('--num_clients=6', '--clients_per_round=4', '--server_examples=50'),
  *('--threshold=0', '--server_steps=1', '--server_warmup_rounds=0'),
  *('--learning_rate=1e-6', '--rounds_per_evaluation=2'),
  *('--rounds_per_checkpoint=3', '--on_collapse=rewind'),
)


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return f'--cache_dir={tmp_path_factory.mktemp("cache")}'


@pytest.fixture
def train(cache):
  def main(folder, rounds, *more):
    where = (cache, f'--run_dir={folder}', f'--total_rounds={rounds}')
    return run.main(['run', *_ASKED, *where, *more])

  return main


def _result(folder):
  summary = json.loads((folder / 'summary.json').read_text())
  table = pd.read_csv(folder / 'metrics.csv')
  return (
    summary['weights_sha256'],
    summary['rewinds'],
    table['round'].tolist(),
    table['clients_participating'].tolist(),
  )


@pytest.fixture
def uninterrupted(train, tmp_path):
  assert train(tmp_path / 'whole', 5) == 0
  return _result(tmp_path / 'whole')


def test_clients_pause_until_the_collapse(train, tmp_path, capsys):
  assert train(tmp_path, 5) == 0
  _, pauses, rounds, participants = _result(tmp_path)
  said = capsys.readouterr().out
  assert 'Round 2 collapses: back to round 0, and clients pause' in said
  # Rounds 1 and 2 without clients are sound; round 4, with them, is not.
  assert pauses == [[0, 2], [2, 4], [4, 5]]
  assert rounds == [1, 2, 3, 4, 5]
  assert participants == [0] * 5


def test_the_server_alone_did_the_same(uninterrupted, train, tmp_path):
  """All rounds were repeated without clients."""
  sha, *_ = uninterrupted
  assert train(tmp_path / 'alone', 5, '--server_warmup_rounds=5') == 0
  assert _result(tmp_path / 'alone')[0] == sha


def test_stopped_and_resumed_it_is_the_same(uninterrupted, train, tmp_path):
  for rounds in (1, 3, 4, 5):
    assert train(tmp_path / 'parts', rounds) == 0
  resumed = _result(tmp_path / 'parts')
  assert resumed[0] == uninterrupted[0]
  # A run that ends with round 1 tests it, and goes back from there.
  assert resumed[1] != uninterrupted[1]


@pytest.mark.parametrize('ends', ['dropping', 'dropped'])
def test_ended_while_it_goes_back(
  ends, uninterrupted, train, tmp_path, monkeypatch
):
  def crash(*unused):
    raise OSError('the power is gone')

  with monkeypatch.context() as broken:
    if ends == 'dropping':
      broken.setattr(checkpoints.CheckpointManager, 'drop_after', crash)
    else:
      # The checkpoints are dropped, the pause is not noted yet.
      broken.setattr(
        run_checkpoints.RunCheckpoints,
        'load_latest',
        _once_then(run_checkpoints.RunCheckpoints.load_latest, crash),
      )
    assert train(tmp_path / 'cut', 5) == 1
  assert train(tmp_path / 'cut', 5) == 0
  assert _result(tmp_path / 'cut')[0] == uninterrupted[0]


def _once_then(function, crash):
  calls = []

  def call(self):
    calls.append(1)
    return function(self) if len(calls) == 1 else crash()

  return call


def test_a_run_that_kept_no_sound_round_stops(train, tmp_path, capsys):
  folder = tmp_path / 'late'
  assert train(folder, 2, '--on_collapse=warn') == 0
  assert train(folder, 4) == 1
  assert 'no checkpoint from before it' in capsys.readouterr().err


def test_a_sound_run_is_left_alone(cache, tmp_path):
  more = (cache, '--total_rounds=4', '--threshold=0.99')
  for name in ('warn', 'rewind'):
    where = f'--run_dir={tmp_path / name}'
    asked = [x for x in _ASKED if 'threshold' not in x and 'coll' not in x]
    code = run.main(['run', *asked, *more, where, f'--on_collapse={name}'])
    assert code == 0
  warned, rewound = (_result(tmp_path / name) for name in ('warn', 'rewind'))
  assert warned == rewound
  assert rewound[1] == [] and np.all(np.array(rewound[3]) == 4)
