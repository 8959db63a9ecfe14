"""What is said and drawn of sets, against counting by hand."""

import dataclasses

import numpy as np
import pytest

from datasets.partition import assignment, u_sets
from datasets.partition.assignment import Partition
from datasets.records import partition_report

NEAR = [[0.5, 0.5], [0.5004, 0.4996]]


def partition_of(priors, sets):
  priors = u_sets.stack_priors([np.array(own) for own in priors])
  names = ('$north', 'south')[: len(priors)]
  held = u_sets.lay_out(
    [[np.array(one) for one in own] for own in sets], priors, names, seed=0
  )
  return Partition(
    **vars(held),
    name='u_sets',
    source_name='tiny',
    source_version='1',
    num_train=20,
    seed=0,
    arguments={},
  )


@pytest.fixture
def partition():
  return partition_of(
    [np.eye(2), [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]],
    [[[0, 1, 2], [2, 3]], [[5], [6, 7, 8, 9], [10, 11]]],
  )


def test_figures(partition):
  told = partition_report.describe_sets(partition)
  conditions = told.pop('condition_numbers')
  assert told == {
    'sets_of_each_client': [2, 3],
    'min_set_examples': 1,
    'median_set_examples': 2.0,
    'max_set_examples': 4,
    'different_examples': 11,
    'absent_classes': [0, 0],
  }
  # Singular values of the second: 1 and sqrt(1.5).
  assert conditions == pytest.approx([1, np.sqrt(1.5)])
  (line,) = partition_report.lines_of_sets(partition)
  assert '2 to 3 sets' in line and '1/2/4 examples' in line
  assert '1 to 1.22' in line


def test_a_warning_close_to_singular():
  partition = partition_of([NEAR], [[[0, 1], [2, 3]]])
  assert np.linalg.cond(NEAR) > 1000
  line, warning = partition_report.lines_of_sets(partition)
  assert line.startswith('2 sets at each client')
  assert warning.startswith("Warning: the class priors of '$north'")


def test_a_note_of_absent_classes():
  partition = partition_of([[[1.0, 0.0]], np.eye(2)], [[[0, 1]], [[2], [3]]])
  assert partition_report.describe_sets(partition)['absent_classes'] == [1, 0]
  *_, note = partition_report.lines_of_sets(partition)
  assert note.startswith('Note: 1 clients') and 'class 1' in note


def test_a_note_of_noise(partition):
  noisy = dataclasses.replace(partition, arguments={'prior_noise': 0.4})
  *_, note = partition_report.lines_of_sets(noisy)
  assert note.startswith('Note: these are condition') and '=0.4' in note


def test_order_of_examples_depends_on_the_seed(partition):
  sets = [[np.arange(30), np.arange(30, 60)]]
  held, other = (
    u_sets.lay_out(sets, np.eye(2)[None], ('a',), seed) for seed in (1, 2)
  )
  np.testing.assert_array_equal(held.set_ids, held.examples // 30)
  assert held.examples.tolist() != other.examples.tolist()
  assert sorted(held.examples) == list(range(60))
  assert isinstance(held, assignment.Assignment)
  assert dataclasses.is_dataclass(partition)
