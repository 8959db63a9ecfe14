"""Who took part: counted by hand, kept in a checkpoint, written as a table."""

import numpy as np
import pandas as pd

from experiments.running import participants
from tff_ssl.simulation.client_faults import Cohort


def _cohort(invited, dropped=(), stragglers=(), corrupt=()):
  columns = (invited, dropped, stragglers, corrupt)
  return Cohort([], *(np.array(column, np.int32) for column in columns))


def test_counts_and_rests_survive_a_checkpoint(tmp_path):
  noted = participants.Participation()
  noted.note(1, _cohort([2, 0], dropped=[0]))
  kept = np.array(noted.table.tolist(), np.int32)
  noted = participants.Participation(kept)
  noted.note(2, _cohort([]))
  noted.note(3, _cohort([4, 2], stragglers=[4], corrupt=[2]))
  noted.write(tmp_path / 'table.csv', [*'abcdef'])
  expected = {
    'client': [0, 1, 2, 3, 4, 5],
    'name': [*'abcdef'],
    'invited': [1, 0, 2, 0, 1, 0],
    'dropped': [1, 0, 0, 0, 0, 0],
    'stragglers': [0, 0, 0, 0, 1, 0],
    'corrupt': [0, 0, 1, 0, 0, 0],
    'last_round': [1, 0, 3, 0, 3, 0],
  }
  table = pd.read_csv(tmp_path / 'table.csv')
  pd.testing.assert_frame_equal(table, pd.DataFrame(expected))
  # Client 0 was in round 1, clients 2 and 4 in round 3.
  assert noted.resting(4, 1).tolist() == []
  assert noted.resting(4, 2).tolist() == [2, 4]
  assert noted.resting(4, 4).tolist() == [0, 2, 4]
  assert noted.resting(5, 4).tolist() == [2, 4]


def test_nobody_rests_before_the_first_round():
  noted = participants.Participation()
  assert noted.resting(1, 100).tolist() == []
