"""Runs that collapse go back, and go on as if nobody had stopped them."""

import numpy as np
import pytest
import run_folders

from experiments import run
from experiments.artifacts import checkpoints
from experiments.running import run_checkpoints

pytestmark = pytest.mark.runs


# A model that hardly knows anything labels everything, until the server has
# trained it for some rounds.
_ASKED = (
  *('--process=fedavg_ssfl', *run_folders.SMALL, '--server_examples=50'),
  *('--threshold=0', '--server_steps=10', '--server_warmup_rounds=0'),
  *('--learning_rate=0.03', '--rounds_per_evaluation=2'),
  *('--rounds_per_checkpoint=3', '--on_collapse=rewind'),
)
_ROUNDS = 9
_PAUSES = [[0, 2], [2, 4], [4, 6], [6, 8]]


@pytest.fixture(scope='module')
def train(cache):
  def main(folder, rounds, *more):
    where = (cache, f'--run_dir={folder}', f'--total_rounds={rounds}')
    return run.main(['run', *_ASKED, *where, *more])

  return main


def _result(folder):
  summary = run_folders.summary_of(folder)
  table = run_folders.metrics_of(folder)
  return (
    summary['weights_sha256'],
    summary['rewinds'],
    table['round'].tolist(),
    table['clients_participating'].tolist(),
  )


@pytest.fixture(scope='module')
def uninterrupted(train, tmp_path_factory):
  folder = tmp_path_factory.mktemp('whole') / 'run'
  assert train(folder, _ROUNDS) == 0
  return _result(folder)


@pytest.mark.dear
def test_clients_pause_until_the_collapse(train, tmp_path, capsys):
  assert train(tmp_path, _ROUNDS) == 0
  _, pauses, rounds, participants = _result(tmp_path)
  said = capsys.readouterr().out
  assert 'Round 2 collapses: back to round 0, and clients pause' in said
  # Rounds without clients are sound, those with them are not but for the last.
  assert pauses == _PAUSES
  assert rounds == list(range(1, _ROUNDS + 1))
  assert participants == [0] * 8 + [4]


def test_a_pause_is_training_of_the_server_alone(
  uninterrupted, train, tmp_path
):
  assert train(tmp_path / 'alone', _ROUNDS, '--server_warmup_rounds=8') == 0
  alone = _result(tmp_path / 'alone')
  assert alone[0] == uninterrupted[0] and alone[1] == []
  assert train(tmp_path / 'never', _ROUNDS, '--server_warmup_rounds=9') == 0
  assert _result(tmp_path / 'never')[0] != uninterrupted[0]


@pytest.mark.parametrize('step', ['before', 'dropping', 'loading', 'noting'])
@pytest.mark.parametrize('time', [1, 3])
def test_ended_while_it_goes_back(
  step, time, uninterrupted, train, tmp_path, monkeypatch
):
  """The power goes at a step of the first or the third time of going back."""
  owner, name, more = {
    'before': (run_checkpoints.RunCheckpoints, 'go_back', 0),
    'dropping': (checkpoints.CheckpointManager, 'drop_after', 0),
    # Each start of a run loads, too.
    'loading': (run_checkpoints.RunCheckpoints, 'load_latest', 1),
    # With the first checkpoint that would know of it.
    'noting': (run_checkpoints.RunCheckpoints, 'save', None),
  }[step]
  calls, whole = [], getattr(owner, name)

  def cut(self, *arguments):
    calls.append(1)
    if more is None:
      is_due = len(self.rewinds.pauses) == time
    else:
      is_due = len(calls) == time + more
    if is_due:
      raise OSError('the power is gone')
    return whole(self, *arguments)

  with monkeypatch.context() as broken:
    broken.setattr(owner, name, cut)
    assert train(tmp_path / 'cut', _ROUNDS) == 1
  assert train(tmp_path / 'cut', _ROUNDS) == 0
  assert _result(tmp_path / 'cut') == uninterrupted


def test_stopped_it_may_go_back_later(train, tmp_path):
  """A run that was to stop has kept its last sound round."""
  folder = tmp_path / 'later'
  assert train(folder, _ROUNDS, '--on_collapse=stop') == 1
  assert train(folder, _ROUNDS) == 0
  # It went on from the collapse in round 2, and collapsed again.
  assert _result(folder)[1][0] == [0, 4]


def test_a_run_that_kept_no_sound_round_stops(train, tmp_path, capsys):
  folder = tmp_path / 'late'
  assert train(folder, 2, '--on_collapse=warn') == 0
  kept = sorted((folder / 'checkpoints').iterdir())
  assert train(folder, 4) == 1
  assert 'no checkpoint from before it' in capsys.readouterr().err
  # Nothing is lost.
  assert set(kept) <= set((folder / 'checkpoints').iterdir())


def test_rewinding_may_be_turned_off_for_a_while(train, tmp_path, capsys):
  """What was sound is not kept meanwhile, and is not gone back to."""
  folder = tmp_path / 'mixed'
  assert train(folder, 3) == 0
  assert train(folder, 6, '--on_collapse=warn') == 0
  assert train(folder, 8) == 1
  assert 'no checkpoint from before it' in capsys.readouterr().err
  assert list((folder / 'checkpoints').iterdir())


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
