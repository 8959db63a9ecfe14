"""What a checkpoint says of a run, and what no run writes."""

import json

import numpy as np
import pytest

from experiments.artifacts import checkpoints
from experiments.measuring.evaluation import FinishedRound
from experiments.running import run_checkpoints


def _save(folder):
  """Writes checkpoints of rounds 8 and 9."""
  saved = run_checkpoints.RunCheckpoints(
    checkpoints.CheckpointManager(folder, {'w': np.zeros(2)}, {})
  )
  for number in (8, 9):
    state = {'w': np.full(2, float(number))}
    saved.save(FinishedRound(number, state, None), ())


@pytest.mark.parametrize(
  'changes',
  [
    {'participation': None},
    {'participation': [[1, 2]]},
    {'participation': [['x'] * 5]},
    {'participation': [[2**40] * 5]},
    {'participation': [[2**70] * 5]},
    {'participation': [[1.5] * 5]},
    {'tables': [1]},
    {'client_states': [1]},
  ],
)
def test_a_checkpoint_of_another_program_is_passed_over(
  tmp_path, changes, caplog, refusal
):
  _save(tmp_path)
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
