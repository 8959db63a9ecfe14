"""The program ends as it would have ended, wherever it is killed."""

import csv
import signal
import subprocess

import numpy as np
import pytest
import pythons
import tensorflow as tf

_ROUNDS = 4


def _start(folder, *flags, stderr=subprocess.DEVNULL):
  return pythons.start(
    *('-m', 'examples.production_program', '--aggregator=secure'),
    *(f'--folder={folder}', f'--rounds={_ROUNDS}'),
    *flags,
    stderr=stderr,
  )


def _last_state(folder):
  path = folder / 'states' / f'program_state_{_ROUNDS}'
  names = [
    name for name, _ in tf.train.list_variables(f'{path}/variables/variables')
  ]
  return {
    name: tf.train.load_variable(f'{path}/variables/variables', name)
    for name in names
  }


@pytest.mark.notebooks
def test_r1_killed_and_started_again(tmp_path):
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  uninterrupted, killed = _start(whole), _start(parts)
  for line in killed.stdout:
    if line.startswith('round 2:'):
      break
  killed.send_signal(signal.SIGKILL)
  assert killed.wait(60) == -signal.SIGKILL
  killed.stdout.close()

  resumed, _ = _start(parts).communicate(timeout=300)
  expected, _ = uninterrupted.communicate(timeout=300)
  assert 'Going on after round ' in resumed
  assert uninterrupted.returncode == 0
  # The same accuracy, too, and the same round of the best model.
  assert (
    resumed.splitlines()[-1].replace('/parts/', '/whole/')
    == (expected.splitlines()[-1])
  )
  rows = [
    list(csv.DictReader((folder / 'metrics.csv').open()))
    for folder in (whole, parts)
  ]
  assert rows[0] == rows[1]
  assert [row['round'] for row in rows[0]] == ['1', '2', '3', '4']
  states = [_last_state(folder) for folder in (whole, parts)]
  assert states[0].keys() == states[1].keys()
  for name, value in states[0].items():
    np.testing.assert_array_equal(states[1][name], value, err_msg=name)
  other = _start(parts, '--seed=2', '--rounds=9', stderr=subprocess.PIPE)
  _, said = other.communicate(timeout=300)
  assert other.returncode != 0
  assert 'was begun with --seed=1: give the same, or another --folder' in said
  assert not (parts / 'states' / 'program_state_5').exists()
