"""Client states and checkpoints: nothing is resumed with other states."""

import hashlib
import json
import os
import pathlib

import numpy as np
import pytest

from experiments.artifacts import checkpoints, run_folder
from experiments.running import client_state_files

STATE = {'w': np.zeros(2, np.float32)}
PARTICIPANTS = [{0, 1}, {1, 2}, {2, 0}, {1, 3}]


def write(path, content):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)


class Run:
  """A run whose clients write files, as the worker would."""

  def __init__(self, folder):
    self.folder = folder
    states = run_folder.client_states(folder)
    self.states = client_state_files.ClientStateFiles(states, seed=7)
    kept = folder / 'checkpoints'
    self.manager = checkpoints.CheckpointManager(kept, STATE, {})

  def path(self, client, round_num):
    name = f'client_states/seed-7/{client}/{round_num:010}.state'
    return self.folder / name

  def train(self, first, last):
    """Trains the rounds, with a checkpoint after each."""
    for round_num in range(first, last):
      clients = PARTICIPANTS[round_num]
      for client in clients:
        content = f'{client} in {round_num}'.encode() * 50
        write(self.path(client, round_num), content)
      digests = self.states.record(round_num + 1, clients)
      files = {'states.json': json.dumps(digests).encode()}
      self.manager.save(round_num + 1, STATE, files)
      self.states.prune(clients, self.manager.oldest_round())

  def resume(self):
    """Returns the round of the checkpoint from which the run goes on."""
    again = Run(self.folder)

    def check(round_number, files):
      digests = json.loads(files['states.json'])
      again.states.resume(round_number, digests)

    return again, again.manager.load_latest(check)[0]

  def named_by(self, round_number):
    folder = self.folder / 'checkpoints' / f'round_{round_number:08}'
    return json.loads((folder / 'states.json').read_text())


@pytest.fixture
def trained(tmp_path):
  run = Run(tmp_path)
  run.train(0, 3)
  return run


def test_a_checkpoint_names_the_newest_state_of_each_client(trained):
  newest = [(0, 2), (1, 1), (2, 2)]
  assert trained.named_by(3) == {
    f'seed-7/{client}/{round_num:010}.state': hashlib.sha256(
      f'{client} in {round_num}'.encode() * 50
    ).hexdigest()
    for client, round_num in newest
  }


def test_a_resumed_run_knows_the_states_it_did_not_write(trained):
  again, round_number = trained.resume()
  assert round_number == 3
  again.train(3, 4)
  rounds = {0: 2, 1: 3, 2: 2, 3: 3}
  assert set(again.named_by(4)) == {
    f'seed-7/{client}/{number:010}.state' for client, number in rounds.items()
  }
  assert again.resume()[1] == 4


def test_states_of_the_rounds_that_are_repeated_do_not_matter(trained):
  for client in (0, 3):
    write(trained.path(client, 3), b'cut sh')
  assert trained.resume()[1] == 3


def test_a_client_that_was_left_out_keeps_its_state(trained):
  before = trained.states.record(3, [])
  assert trained.states.record(4, PARTICIPANTS[3]) == before


def flip(path):
  content = bytearray(path.read_bytes())
  content[17] ^= 4
  path.write_bytes(content)


@pytest.mark.parametrize(
  'damage, fault',
  [
    (flip, 'does not match its SHA-256'),
    (lambda path: os.truncate(path, 299), 'does not match its SHA-256'),
    (lambda path: os.truncate(path, 0), 'does not match its SHA-256'),
    (pathlib.Path.unlink, 'is missing'),
  ],
)
class TestDamage:
  def test_of_the_newest_state_falls_back(self, trained, damage, fault, caplog):
    path = trained.path(2, 2)  # The checkpoint of round 2 needs number 1.
    damage(path)
    again, round_number = trained.resume()
    assert round_number == 2
    assert f'{path} {fault}' in caplog.text
    again.train(2, 3)
    assert again.resume()[1] == 3

  def test_of_a_state_that_all_need_is_refused(self, trained, damage, fault):
    path = trained.path(1, 1)
    damage(path)
    with pytest.raises(checkpoints.CheckpointError) as caught:
      trained.resume()
    for text in ('No checkpoint', f'{path} {fault}', 'restore the files'):
      assert text in str(caught.value)


def test_a_state_that_the_checkpoint_does_not_know(trained, caplog):
  trained.path(1, 2).write_bytes(b'foreign')  # Client 1 had left it in round 1.
  assert trained.resume()[1] == 2
  assert f'{trained.path(1, 2)} does not belong to it' in caplog.text


def test_all_states_missing_is_one_sentence(trained):
  for path in trained.folder.rglob('*.state'):
    path.unlink()
  missing = r'\.state is missing \(1 of 3 such files'
  with pytest.raises(checkpoints.CheckpointError, match=missing):
    trained.resume()


def test_a_checkpoint_that_names_no_states_is_refused(tmp_path):
  run = Run(tmp_path)
  write(run.path(0, 0), b'old')
  run.manager.save(2, STATE, {'states.json': b'null'})
  with pytest.raises(checkpoints.CheckpointError, match='no client states'):
    run.resume()


def test_states_are_on_the_disk_before_a_checkpoint(tmp_path, monkeypatch):
  calls, fsync, rename = [], os.fsync, os.rename

  def recording_fsync(descriptor):
    calls.append(os.readlink(f'/proc/self/fd/{descriptor}'))
    fsync(descriptor)

  def recording_rename(source, target):
    calls.append('rename')
    rename(source, target)

  monkeypatch.setattr(os, 'fsync', recording_fsync)
  monkeypatch.setattr(os, 'rename', recording_rename)
  run = Run(tmp_path)
  run.train(0, 1)
  before = set(calls[: calls.index('rename')])
  for client in PARTICIPANTS[0]:
    path = run.path(client, 0)
    assert {str(path), *map(str, path.parents[:4])} <= before
  assert str(tmp_path) in before


def test_a_failing_disk_is_an_error(tmp_path, failing_calls, refusal):
  run = Run(tmp_path)
  run.train(0, 1)
  told = ('Input/output error', '.state, cannot')
  with (
    refusal(*told, error=checkpoints.CheckpointError),
    failing_calls(['fsync'], OSError(5, 'Input/output error'), 1),
  ):
    run.train(1, 2)
  assert run.resume()[1] == 1
