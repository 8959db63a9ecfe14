"""--dry_run prepares and refuses as a run does, and trains nothing."""

import os
import re
import signal
import time
import types

import numpy as np
import pytest
import pythons

from experiments import run
from experiments.artifacts import checkpoints, run_folder
from experiments.config import settings
from experiments.preparing import building, description


@pytest.fixture
def where(tmp_path):
  return (
    f'--run_dir={tmp_path / "runs" / "x"}',
    f'--cache_dir={tmp_path / "cache"}',
  )


@pytest.mark.dear
def test_says_what_would_run_and_leaves_no_run(where, tmp_path, capsys):
  given = ('--process=grouping', '--dataset=digits', '--num_groups=3')
  assert run.main(['run', '--dry_run', *given, *where]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert '--num_groups=3' in lines and '--threshold=0.95' in lines
  assert any(line.startswith('20 clients with ') for line in lines)
  assert '100 rounds with 10 clients each.' in lines
  time = r'A round takes \S+ s on this machine, .* for the 100 that are left'
  assert any(re.match(time, line) for line in lines)
  folder = tmp_path / 'runs' / 'x'
  assert f'{folder}: the run would begin there with round 1.' in lines
  assert lines[-1] == 'Nothing was trained (--dry_run).'
  assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize(
  'flag, message',
  [
    ('--control_update=from_steps', 'does not use it'),
    # What only the data tell.
    ('--server_examples=5', '--server_examples=5 is less than the 10 classes'),
  ],
)
def test_refuses_as_a_run_does(flag, message, where, error_of):
  given = ('--dry_run', '--process=grouping', '--dataset=digits')
  assert message in error_of(run.main, *given, *where, flag)


@pytest.fixture
def begun(tmp_path):
  """Settings of a run that has done 4 of its 6 rounds in its folder."""
  made = settings.make(
    {
      'process': 'fedavg',
      'dataset': 'digits',
      'total_rounds': 6,
      'run_dir': str(tmp_path / 'run'),
      'cache_dir': str(tmp_path / 'cache'),
    }
  )
  with run_folder.RunFolder(made.run_dir) as folder:
    folder.write_flags(made.used)
    state = {'w': np.zeros(3, np.float32)}
    manager = checkpoints.CheckpointManager(
      folder.path / run_folder.CHECKPOINTS, state, {}
    )
    for done in (3, 4):
      manager.save(done, state)
    folder.keep()
  return made


def files_in(folder):
  return {path: path.stat().st_mtime_ns for path in folder.rglob('*')}


@pytest.mark.parametrize(
  'total, folder, said',
  [
    (6, 'run', 'the run there would be resumed after round 4 of 6.'),
    (4, 'run', 'the run there has done all its 4 rounds, and would write its'),
    (6, 'new/run', 'the run would begin there with round 1.'),
  ],
)
def test_says_what_would_become_of_a_run_in_the_folder(
  total, folder, said, begun, tmp_path
):
  begun.total_rounds = begun.used['total_rounds'] = total
  begun.run_dir = str(tmp_path / folder)
  before = files_in(tmp_path / 'run')
  with run_folder.inspected(begun):
    (line,) = description.lines_of_folder(begun)
  assert line.startswith(f'{begun.run_dir}: {said}')
  assert files_in(tmp_path / 'run') == before
  assert not (tmp_path / 'new').exists()


def test_a_damaged_checkpoint_is_passed_over_as_in_a_run(begun, tmp_path):
  *_, last = sorted((tmp_path / 'run' / 'checkpoints').iterdir())
  (last / 'manifest.json').write_text('{}')
  assert 'after round 3 of 6' in description.lines_of_folder(begun)[0]


def refusal_of_both(made):
  """What a run and a dry run say, alike, of a folder that cannot be used."""
  texts = []
  for enter in (run_folder.opened, run_folder.inspected):
    with (
      pytest.raises((ValueError, run_folder.RunFolderError)) as caught,
      enter(made),
    ):
      pass
    texts.append(str(caught.value))
  of_a_run, of_a_dry_run = texts
  assert of_a_run == of_a_dry_run
  return of_a_run


@pytest.mark.parametrize(
  'folder, words',
  [
    ('file', 'cannot be created: File exists'),
    ('file/run', 'cannot be created: File exists'),
    ('other', 'holds files that are not of a run (thesis.tex)'),
  ],
)
def test_the_folder_is_refused_as_by_a_run(begun, tmp_path, folder, words):
  (tmp_path / 'file').write_text('')
  (tmp_path / 'other').mkdir()
  (tmp_path / 'other' / 'thesis.tex').write_text('')
  begun.run_dir = str(tmp_path / folder)
  assert words in refusal_of_both(begun)


def test_other_flags_than_those_of_the_run_are_refused(begun):
  begun.used['learning_rate'] = 0.5
  started = 'This run was started with other settings'
  assert refusal_of_both(begun).startswith(started)


def test_a_run_that_is_going_on_is_told(begun):
  with run_folder.RunFolder(begun.run_dir):
    assert 'is used by another run (pid' in refusal_of_both(begun)


def test_fewer_rounds_than_are_done_are_refused(begun, refusal):
  begun.total_rounds = 3
  few = '--total_rounds=3 is less than the 4 rounds'
  with refusal(few), run_folder.inspected(begun):
    pass


@pytest.mark.runs
def test_costs_are_those_of_the_process(tmp_path):
  """S models of 4 bytes a weight go down, and S rows for the groups go up."""
  made = settings.make(
    {
      'process': 'grouping',
      'dataset': 'digits',
      'model': 'dense',
      'num_groups': 3,
      'local_steps': 7,
      'cache_dir': str(tmp_path),
    }
  )
  opened = building.Run.open(made)
  weights = 64 * 200 + 200 + 200 * 10 + 10
  sent = description.communication(
    made, opened.process, opened.model.initial_weights(0)
  )
  assert sent['bytes_up_per_client'] // (4 * weights) == 3
  assert sent['bytes_down_per_client'] // (4 * weights) == 3
  lines = description.lines_of_costs(opened, sent)
  assert '7 steps of 20 examples: 140 go forward' in ' '.join(lines)


@pytest.mark.parametrize(
  'process, more',
  [
    ('fedavg', None),
    ('scaffold', None),
    ('grouping', 'Pseudo-labels come on top; '),
    ('fedmatch', 'Pseudo-labels and labelled minibatches come on top; '),
  ],
)
def test_costs_name_what_a_process_does_beside_its_minibatches(process, more):
  made = settings.make({'process': process, 'dataset': 'digits'})
  sent = {'bytes_down_per_client': 1, 'bytes_up_per_client': 1}
  sizes = types.SimpleNamespace(client_sizes=np.array([20, 30]))
  lines = description.lines_of_costs(
    types.SimpleNamespace(
      settings=made, data=types.SimpleNamespace(partition=sizes)
    ),
    sent,
  )
  found = [line for line in lines if 'come on top' in line]
  assert found == (
    [] if more is None else [f'{more}metrics.csv counts all passes.']
  )


@pytest.mark.runs
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_scratch_folder(number, where, tmp_path):
  """It comes while the folder is there, and before the process is built."""
  scratch = tmp_path / 'scratch'
  scratch.mkdir()
  given = ('--dry_run', '--process=grouping', '--dataset=digits')
  run_of_it = pythons.start(
    *('-m', 'experiments.run', *given, *where),
    env={**os.environ, 'TMPDIR': str(scratch)},
  )
  while not any(path.is_dir() for path in scratch.iterdir()):
    assert run_of_it.poll() is None
    time.sleep(0.01)
  run_of_it.send_signal(number)
  run_of_it.communicate(timeout=60)
  assert run_of_it.returncode == 128 + number
  assert list(scratch.iterdir()) == []
