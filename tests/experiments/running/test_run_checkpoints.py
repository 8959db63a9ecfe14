"""When clients pause, and what a checkpoint says of it, by hand."""

import json

import numpy as np
import pytest

from experiments.artifacts import checkpoints
from experiments.measuring.evaluation import FinishedRound
from experiments.running import run_checkpoints


def test_clients_pause_from_the_sound_round_to_the_collapse():
  noted = run_checkpoints.Rewinds()
  noted.note(10, {'is_collapsing': 0})
  noted.note(15, {})  # Not measured.
  noted.note(20, {'is_collapsing': 1})
  assert noted.go_back(20) == 10
  paused = [n for n in range(1, 40) if noted.is_paused(n)]
  assert paused == list(range(11, 21))
  # The next collapse is later, and so is what it leads back to.
  noted.note(20, {'is_collapsing': 0})
  noted.note(30, {'is_collapsing': 1})
  assert noted.go_back(30) == 20
  paused = [n for n in range(1, 40) if noted.is_paused(n)]
  assert paused == list(range(11, 31))


def test_a_collapse_at_once_leads_back_to_the_start():
  noted = run_checkpoints.Rewinds()
  assert noted.go_back(5) == 0
  assert [n for n in range(9) if noted.is_paused(n)] == [1, 2, 3, 4, 5]


def _saved(folder, on_collapse='rewind'):
  """Checkpoints of rounds 5 (sound), 7, 8 and 9, and what saved them."""
  saved = run_checkpoints.RunCheckpoints(
    checkpoints.CheckpointManager(folder, {'w': np.zeros(2)}, {}),
    on_collapse=on_collapse,
  )
  for number in (5, 7, 8, 9):
    row = {'is_collapsing': 0} if number == 5 else {}
    saved.save(_round(number, row), ())
  return saved


def _round(number, row):
  return FinishedRound(number, {'w': np.full(2, float(number))}, None, row)


def _rounds_in(folder):
  return [int(path.name[6:14]) for path in sorted(folder.iterdir())]


def test_it_goes_back_to_the_sound_round(tmp_path):
  saved = _saved(tmp_path)
  collapsed = _round(10, {'is_collapsing': 1})
  saved.save(collapsed, ())
  # A round that collapses has no checkpoint, the sound one is kept.
  assert _rounds_in(tmp_path) == [5, 8, 9]
  number, state = saved.go_back(collapsed, {'w': np.zeros(2)})
  assert number == 5 and state['w'].tolist() == [5, 5]
  again = run_checkpoints.RunCheckpoints(
    checkpoints.CheckpointManager(tmp_path, {'w': np.zeros(2)}, {}),
    on_collapse='rewind',
  )
  assert again.load_latest()[0] == 5
  assert again.rewinds == run_checkpoints.Rewinds([(5, 10)], 5)


def test_a_damaged_sound_round_loses_nothing(tmp_path):
  saved = _saved(tmp_path)
  (tmp_path / 'round_00000005' / 'state.npz').write_bytes(b'damaged')
  before = sorted(tmp_path.iterdir())
  with pytest.raises(checkpoints.CheckpointError, match='round 5.*damaged'):
    saved.go_back(_round(10, {'is_collapsing': 1}), {'w': np.zeros(2)})
  assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
  'changes',
  [
    {'participation': None},
    {'participation': [[1, 2]]},
    {'participation': [['x'] * 5]},
    {'participation': [[2**40] * 5]},
    {'participation': [[2**70] * 5]},
    {'participation': [[1.5] * 5]},
    {'pauses': [1]},
    {'tables': [1]},
    {'client_states': [1]},
    {'sound_round': {}, 'pauses': None},
  ],
)
def test_a_checkpoint_of_another_program_is_passed_over(
  tmp_path, changes, caplog, refusal
):
  _saved(tmp_path)
  _, content = checkpoints.load_file(tmp_path, 'run.json')
  said = json.dumps({**json.loads(content), **changes}).encode()
  for number, files in ((10, {'run.json': said}), (11, {})):
    manager = checkpoints.CheckpointManager(tmp_path, {'w': np.zeros(2)}, {})
    manager.save(number, {'w': np.zeros(2)}, files)
    saved = run_checkpoints.RunCheckpoints(manager)
    if number == 10:
      assert saved.load_latest()[0] == 9
      assert 'its run.json is not as a run writes it' in caplog.text
  with refusal('its run.json is not', error=checkpoints.CheckpointError):
    saved.load_latest()


def test_without_the_setting_nothing_is_kept(tmp_path):
  saved = _saved(tmp_path, on_collapse='warn')
  assert _rounds_in(tmp_path) == [8, 9]
  saved.load_latest()
  assert saved.rewinds == run_checkpoints.Rewinds([], None)
