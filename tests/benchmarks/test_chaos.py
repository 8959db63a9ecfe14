"""Runs that are killed at their file operations, or whose disk fails there."""

import contextlib
import functools
import os
import random

import pytest

from benchmarks import broken_runs, chaos
from experiments.artifacts import durable_files, run_folder
from experiments.measuring import privacy_loss

pytestmark = pytest.mark.runs


@pytest.fixture(scope='module')
def opened(request, tmp_path_factory, tff_context):
  """The run of a process, rehearsed."""
  place = tmp_path_factory.mktemp(request.param)
  with chaos.Chaos(request.param, 0, place) as run:
    yield run


@pytest.fixture
def rehearsed(opened):
  """The same with its operations counted, which another test may change."""
  opened.count()
  return opened


of = functools.partial(pytest.mark.parametrize, 'opened', indirect=True)


def point_of(run, name, where, time=1):
  """Returns the number of an operation, the first one or a later one."""
  found = [
    number
    for number, operation in enumerate(run.operations, start=1)
    if tuple(operation) == (name, where)
  ]
  return found[time - 1]


# `make chaos` tries all of them.
@of(['grouping', 'private'])
def test_r1_r3_twenty_points(rehearsed):
  tried = random.Random(0).sample([*rehearsed.points()], 20)
  outcomes = {where: rehearsed.try_point(*where)[1] for where in tried}
  assert set(outcomes.values()) == {broken_runs.SAME}, outcomes


# What was wrong once.
@of(['grouping'])
@pytest.mark.parametrize(
  ('name', 'where', 'fault'),
  [
    # Python said later that an archive was left open, with a traceback.
    ('write', '.temporary-split.npz', 'EIO'),
    # The folder was not known as that of a run any more.
    ('mkdir', 'checkpoints', 'power_cut_of_contents'),
  ],
)
def test_what_was_wrong(name, where, fault, rehearsed):
  point = point_of(rehearsed, name, where)
  assert rehearsed.try_point(point, fault)[1] == broken_runs.SAME


class WithoutSync:
  """The module `os`, whose fsync does nothing."""

  def fsync(self, descriptor):
    pass

  def __getattr__(self, name):
    return getattr(os, name)


def in_place(path, content):
  with open(path, 'wb') as file:
    file.write(content)


def forgiving(write):
  def write_or_not(*arguments):
    with contextlib.suppress(run_folder.RunFolderError):
      write(*arguments)

  return write_or_not


def once(begin):
  def begin_once(self, rounds_done, *arguments):
    ledger = self._ledger.begun
    return begin(self, rounds_done, *arguments) if rounds_done >= ledger else {}

  return begin_once


# Without a guard, the fault against which it is there shows.
@pytest.mark.parametrize(
  ('opened', 'owner', 'name', 'new', 'point', 'fault', 'outcome'),
  [
    # Files are replaced as a whole.
    (
      *('grouping', durable_files, 'write', lambda write: in_place),
      *(('write', 'flags.txt'), 'kill_half', 'not resumable'),
    ),
    # A checkpoint is on the disk before it has its name.
    (
      *('grouping', durable_files, 'os', lambda os: WithoutSync()),
      *(('rename', 'checkpoints/round_00000001'), 'power_cut_of_contents'),
      'not resumable',
    ),
    # Its name is on the disk before the next round.
    (
      *('grouping', durable_files, 'sync_folder', lambda sync: lambda _: None),
      *(('fsync', 'pseudo_labels.csv', 2), 'power_cut'),
      'round 1 was saved, and 0 is left',
    ),
    # What a killed run leaves is removed.
    (
      *('grouping', durable_files, 'sweep', lambda sweep: lambda folder: None),
      *(('fsync', '.temporary-split.npz'), 'kill_before', 'other .temporary-'),
    ),
    # An error of the disk ends the run.
    (
      *('grouping', run_folder.RunFolder, 'write', forgiving),
      *(('replace', 'versions.json'), 'EIO_once', 'versions.json'),
    ),
    # A round that is repeated counts again.
    (
      *('private', privacy_loss.PrivacyLoss, 'begin', once),
      *(('write', 'metrics.csv', 1), 'kill_before', 'and {0: 1, 1: 1, 2: 1}'),
    ),
  ],
  indirect=['opened'],
)
def test_r1_r3_without_its_guard_a_run_ends_otherwise(
  opened, owner, name, new, point, fault, outcome, monkeypatch
):
  monkeypatch.setattr(owner, name, new(getattr(owner, name)))
  opened.count()
  assert outcome in opened.try_point(point_of(opened, *point), fault)[1]
