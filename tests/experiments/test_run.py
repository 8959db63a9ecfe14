"""Whole runs on the embedded digits: what they leave, and how they go on.

A run of its own process is started where a signal or a pipe is the point; the
others call `run.main` in this process, and leave it a living TFF context.
"""

import contextlib
import hashlib
import json
import re
import shutil
import time

import costs
import forked
import numpy as np
import pandas as pd
import psutil
import pytest
import run_folders
from PIL import Image
from run_folders import SMALL, assert_same_metrics, metrics_of, summary_of

from datasets.sources.catalogue import load_digits
from experiments import run
from experiments.config import catalogue, flags, settings
from experiments.running import round_loop

ROUNDS = 12
# A low threshold, so that pseudo-labels are trained on at once.
GROUPING = (
  '--process=grouping',
  *SMALL,
  '--server_examples=50',
  '--server_warmup_rounds=1',
  '--threshold=0.5',
  '--rounds_per_evaluation=4',
  f'--total_rounds={ROUNDS}',
)
CLASS_FIGURES = ('macro_f1', 'balanced_accuracy', 'calibration_error')


def main(*arguments):
  return run.main(['run', *map(str, arguments)])


@contextlib.contextmanager
def started(folder, *arguments):
  """Starts a run as a process; its output goes to files beside the folder."""
  process = forked.start(
    'experiments.run',
    *arguments,
    f'--run_dir={folder}',
    out=folder.with_suffix('.out'),
    err=folder.with_suffix('.err'),
  )
  try:
    yield process
  finally:
    process.kill()
    process.join()


def wait_until(condition, process, seconds=150):
  deadline = time.monotonic() + seconds
  while not condition():
    assert process.is_alive(), 'the run ended too early'
    assert time.monotonic() < deadline
    time.sleep(0.005)


def rows_of(folder):
  path = folder / 'metrics.csv'
  return max(0, path.read_bytes().count(b'\n') - 1) if path.exists() else 0


def newest_checkpoint(folder):
  return max((folder / 'checkpoints').glob('round_*'))


def weights_in_checkpoint(folder):
  path = newest_checkpoint(folder)
  with np.load(path / 'state.npz', allow_pickle=False) as arrays:
    return [
      array
      for name, array in arrays.items()
      if name.split()[1].startswith('global_model_weights/')
    ]


def assert_same_run(folder, other):
  names = ('weights_sha256', *CLASS_FIGURES)
  found, expected = (
    [summary_of(where)[name] for name in names] for where in (folder, other)
  )
  assert found == expected
  tables = ((where / 'confusion.csv').read_bytes() for where in (folder, other))
  assert len(set(tables)) == 1
  assert_same_metrics(folder, other)


@pytest.fixture(scope='module')
def whole(tmp_path_factory, cache):
  """An uninterrupted run, as a user starts one, with piped output."""
  folder = tmp_path_factory.mktemp('whole') / 'run'
  with started(folder, *GROUPING, cache) as process:
    process.join(200)
    assert process.exitcode == 0, folder.with_suffix('.err').read_text()
  return folder


# What a run leaves.


@pytest.mark.dear
def test_folder_is_complete(whole):
  assert {path.name for path in whole.iterdir()} == {
    *('.lock', 'checkpoints', 'confusion.csv', 'curves.png'),
    *('flags.txt', 'metrics.csv'),
    *('participation.csv', 'partition.csv'),
    *('split.json', 'split.npz', 'summary.json'),
    *('tensorboard', 'versions.json'),
  }
  with Image.open(whole / 'curves.png') as picture:
    picture.verify()
  assert list((whole / 'tensorboard').glob('events.*'))
  versions = json.loads((whole / 'versions.json').read_text())
  assert versions['numpy'] == np.__version__
  names = [path.name for path in sorted((whole / 'checkpoints').iterdir())]
  assert names == [f'round_{n:08d}' for n in (ROUNDS - 1, ROUNDS)]


def test_each_round_has_one_row(whole):
  table = metrics_of(whole)
  assert table['round'].tolist() == list(range(1, ROUNDS + 1))
  assert table['round'][table['accuracy'].notna()].tolist() == [4, 8, 12]
  assert table['clients_participating'].tolist() == [0, *[4] * (ROUNDS - 1)]
  assert table['mask_rate'].dropna().between(0, 1).all()
  # Where test metrics are, the pseudo-labels are looked at, too.
  watched = table['round'][table['server_mask_rate'].between(0, 1)]
  assert watched.tolist() == [4, 8, 12]
  assert table['server_pseudo_label_accuracy'].dropna().between(0, 1).all()
  assert (table['update_non_finite'] == 0).all()


def test_summary_agrees_with_the_other_files(whole):
  summary, table = summary_of(whole), metrics_of(whole)
  assert (summary['process'], summary['dataset']) == ('grouping', 'digits')
  assert (summary['seed'], summary['rounds']) == (0, ROUNDS)
  assert (summary['clients'], summary['server_examples']) == (6, 50)
  assert summary['seconds'] == pytest.approx(table['seconds'].sum())
  assert summary['seconds_per_round'] == table['seconds'].median()
  # Of the first round, which is the server's, there are none.
  passes = table[['forward_passes', 'backward_passes']]
  assert passes.notna().all(axis=1).tolist() == [False, *[True] * (ROUNDS - 1)]
  assert summary['backward_passes_per_client'] == passes.iloc[1:, 1].median()
  # The weak view of all, and the strong one, with a gradient, of those that are
  # labelled by it.
  weak = passes['forward_passes'] - passes['backward_passes']
  np.testing.assert_allclose(
    passes['backward_passes'][1:], (table['mask_rate'] * weak)[1:]
  )
  assert summary['forward_passes_per_client'] == passes.iloc[1:, 0].median()
  assert 0 < summary['accuracy'] <= summary['best_accuracy'] <= 1
  assert summary['best_accuracy'] == table['accuracy'].max()
  reached = table['round'][table['accuracy'] >= 0.5].tolist()
  assert summary['rounds_to_half'] == (reached[0] if reached else None)
  assert summary['measured_r'] == pytest.approx(0.4, abs=0.02)
  split = json.loads((whole / 'split.json').read_text())
  assert split['num_clients'] == 6


def test_accuracy_is_that_of_the_mean_of_the_groups(whole):
  """The test split and the weights, evaluated with numpy alone."""
  kernel1, bias1, kernel2, bias2 = (
    array.mean(axis=0) for array in weights_in_checkpoint(whole)
  )
  source = load_digits(None, '')
  x = source.test.examples.reshape(-1, 64) / 255
  x = (x - source.mean[0]) / source.stddev[0]
  logits = np.maximum(x @ kernel1 + bias1, 0) @ kernel2 + bias2
  accuracy = np.mean(logits.argmax(axis=1) == source.test.labels)
  assert summary_of(whole)['accuracy'] == pytest.approx(accuracy, abs=1 / 360)
  # 50 labels and 12 rounds: far above one in ten.
  assert accuracy > 0.3


def test_the_classes_together_are_the_test_split(whole):
  summary = summary_of(whole)
  counts = pd.read_csv(whole / 'confusion.csv', index_col=0)
  labels = load_digits(None, '').test.labels
  assert list(counts.columns) == [str(label) for label in range(10)]
  np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(labels))
  right = np.diag(counts)
  assert right.sum() / len(labels) == pytest.approx(summary['accuracy'])
  recalls = right / counts.sum(axis=1)
  assert summary['balanced_accuracy'] == pytest.approx(recalls.mean())
  # F1 is what is right, over the mean of what is there and what is predicted.
  f1 = 2 * right / (counts.sum(axis=1).to_numpy() + counts.sum(axis=0))
  assert summary['macro_f1'] == pytest.approx(f1.mean())
  assert 0 < summary['calibration_error'] < 1


def test_piped_output_is_plain_lines(whole):
  text = whole.with_suffix('.out').read_text()
  lines = text.splitlines()
  assert [line for line in lines if line.startswith('round ')][-1].startswith(
    f'round {ROUNDS}/{ROUNDS}: '
  )
  # From the second round after the server's warm-up on.
  times = [
    line for line in lines if re.match(r'round .*, about .* left$', line)
  ]
  assert len(times) == 3 and times[0].startswith(f'round 3/{ROUNDS}: ')
  assert sum(line.startswith('round ') for line in lines) == 4
  assert f'Results are in {whole}' in lines
  assert '\r' not in text and '\x1b' not in text
  assert 'Traceback' not in whole.with_suffix('.err').read_text()


# Runs that are cut off and go on.


@pytest.mark.parametrize(
  'moments',
  costs.rest_in('runs', [[(3, 0.1)], [(0, 1.5), (6, 0.05)]], dear=True),
  ids=['once', 'twice'],
)
def test_r1_r2_a_killed_run_continues_bit_for_bit(
  moments, whole, cache, tmp_path
):
  """Killed some seconds after it has so many rows of metrics."""
  folder = tmp_path / 'run'
  for rows, delay in moments:
    with started(folder, *GROUPING, cache) as process:
      wait_until((folder / 'flags.txt').exists, process)
      wait_until(lambda rows=rows: rows_of(folder) >= rows, process)
      time.sleep(delay)
      process.kill()
  assert main(*GROUPING, cache, f'--run_dir={folder}') == 0
  assert_same_run(folder, whole)


@pytest.mark.runs
def test_flag_file_locked_folder_sigterm_and_the_hint(whole, tmp_path, capfd):
  folder = tmp_path / 'run'
  flag_file = f'--flagfile={whole / "flags.txt"}'
  with started(folder, flag_file) as process:
    lock = folder / '.lock'
    wait_until(lambda: lock.exists() and lock.read_text(), process)
    began = time.monotonic()
    assert main(flag_file, f'--run_dir={folder}') == 2
    assert time.monotonic() - began < 30
    assert f'used by another run (pid {process.pid})' in capfd.readouterr().err

    wait_until(lambda: rows_of(folder) >= 1, process)
    assert not psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.join(30)
    assert process.exitcode == 143
  assert 1 <= rows_of(folder) < ROUNDS
  assert not (folder / 'summary.json').exists()
  hint = folder.with_suffix('.err').read_text().splitlines()[-1]
  assert hint.startswith('Stopped; continue with: python -m experiments.run --')

  assert main(*hint.split()[6:]) == 0
  assert 'Resuming after round ' in capfd.readouterr().out
  # The same as the run whose flag file it was, in another folder.
  assert_same_run(folder, whole)


@pytest.mark.runs
def test_r7_a_killed_worker_and_more_rounds(
  capfd, cache, tmp_path, monkeypatch
):
  """It dies in the middle of a round; half-way there is a new start."""
  from tff_ssl.simulation import client_sampling

  sample_keys, killed = client_sampling.sample_keys, []

  def kill_worker():
    for child in psutil.Process().children():
      if child.name() == 'worker_binary':
        child.kill()
        killed.append(child.pid)

  def sample_and_kill(**arguments):
    if arguments['round_num'] == 2 and not killed:
      kill_worker()
    return sample_keys(**arguments)

  monkeypatch.setattr(client_sampling, 'sample_keys', sample_and_kill)
  command = (*GROUPING, cache, f'--run_dir={tmp_path / "run"}')
  assert main(*command, '--context=worker') == 1
  assert len(killed) == 1
  assert 'SIGKILL' in capfd.readouterr().err
  assert main(*command, '--context=worker', '--total_rounds=4') == 0
  assert 'Resuming after round 2.' in capfd.readouterr().out
  assert summary_of(tmp_path / 'run')['rounds'] == 4
  # Another context rounds otherwise.
  assert main(*command) == 2
  assert 'context' in capfd.readouterr().err
  assert main(*command, '--context=worker', '--total_rounds=3') == 2
  assert 'the 4 rounds that' in capfd.readouterr().err


@pytest.mark.dear
def test_r4_damaged_checkpoint_falls_back(whole, cache, tmp_path, caplog):
  folder = tmp_path / 'run'
  shutil.copytree(whole, folder)
  path = newest_checkpoint(folder) / 'state.npz'
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  assert main(*GROUPING, cache, f'--run_dir={folder}') == 0
  assert f'continuing from round {ROUNDS - 1}' in caplog.text
  assert_same_run(folder, whole)


@pytest.mark.dear
def test_r4_metrics_that_were_edited_or_lost_are_not_passed_over(
  whole, cache, tmp_path, error_of
):
  folder = tmp_path / 'run'
  shutil.copytree(whole, folder)
  where = (cache, f'--run_dir={folder}')
  lines = (folder / 'metrics.csv').read_text().splitlines()
  lines[2] = lines[2].replace('.', '.5', 1)
  (folder / 'metrics.csv').write_text('\n'.join([*lines, '']))
  assert 'a row was changed' in error_of(run.main, *GROUPING, *where, code=1)
  (folder / 'metrics.csv').unlink()
  error = error_of(run.main, *GROUPING, *where, code=1)
  assert 'metrics.csv does not hold what the run wrote' in error


OTHER_TEXTS = {
  'client_optimizer': 'adam',
  'augmentation': 'rand_augment_1_10',
  'dataset': 'mnist',
  'partition': 'pooled',
  'process': 'fedavg',
  'model': 'small_cnn',
  'norm': 'group',
  'schedule': 'cosine',
}


def test_r6_every_changed_flag_is_refused_on_resumption(whole, capsys):
  flag_file = f'--flagfile={whole / "flags.txt"}'
  stored = flags.parse(['run', flag_file])
  records = catalogue.known()
  before = {p: p.stat().st_mtime_ns for p in whole.iterdir() if p.is_file()}
  for name in set(stored) - settings.FREE:
    value = stored[name]
    if isinstance(value, str):
      choices = (c for c in records[name].choices if c != value)
      other = OTHER_TEXTS.get(name) or next(choices)
    else:
      other = value + 1 if isinstance(value, int) else value / 2 or 0.5
    assert main(flag_file, f'--{name}={other}') == 2, name
    error = capsys.readouterr().err
    assert error.startswith('error: ') and 'Traceback' not in error
    # With Adam it is the stored momentum that is refused first.
    named = 'sgd' if name == 'client_optimizer' else str(other)
    assert name in error and named in error
  assert main(flag_file, '--learning_rate=0.5') == 2
  rows = [line.split() for line in capsys.readouterr().err.splitlines()]
  assert ['name', 'stored', 'now'] in rows
  assert ['learning_rate', '0.03', '0.5'] in rows
  after = {p: p.stat().st_mtime_ns for p in before}
  del before[whole / '.lock'], after[whole / '.lock']
  assert after == before


@pytest.mark.dear
def test_a7_a_run_that_collapses_is_stopped_and_goes_on(
  cache, tmp_path, capsys
):
  # An untrained model labels everything.
  asked = (
    *('--process=fedavg_ssfl', *SMALL, cache, f'--run_dir={tmp_path}'),
    *('--server_examples=50', '--threshold=0', '--server_steps=1'),
    *('--total_rounds=2', '--rounds_per_evaluation=1'),
    *('--rounds_per_checkpoint=2', '--learning_rate=1e-6'),
    '--server_warmup_rounds=0',
  )
  assert main(*asked, '--on_collapse=stop') == 1
  said = capsys.readouterr()
  assert 'Stopped after round 1 (--on_collapse=stop)' in said.err
  assert 'pseudo-labels 100% of examples' in said.out
  assert 'right: collapsing' in said.out
  assert not (tmp_path / 'summary.json').exists()
  assert main(*asked, '--on_collapse=warn') == 0
  assert 'Resuming after round 1.' in capsys.readouterr().out
  assert metrics_of(tmp_path)['is_collapsing'].tolist() == [1, 1]


@pytest.mark.runs
@pytest.mark.parametrize(
  'flags',
  [
    GROUPING,
    ('--process=scaffold', *SMALL, '--labelled_fraction=0.5'),
    ('--process=fedtrinet', *SMALL, '--model=dense_encoder'),
    ('--process=fedavg_robust', *SMALL, '--labelled_fraction=0.5'),
    (
      *('--process=fedavg', *SMALL, '--aggregator=dp'),
      *('--noise_multiplier=0.1', '--clip_norm=0.5'),
    ),
  ],
  ids=lambda flags: flags[0].removeprefix('--process='),
)
def test_r12_three_hundred_rounds_leave_nothing_behind(
  flags, cache, tmp_path, monkeypatch
):
  """Memory, open files and threads stay as they are."""
  found, memory = [], round_loop._memory

  def look():
    own = psutil.Process()
    found.append((own.num_fds(), own.num_threads()))
    return memory()

  monkeypatch.setattr(round_loop, '_memory', look)
  long = ('--total_rounds=300', '--rounds_per_evaluation=50')
  run_folders.train(tmp_path, *flags, cache, *long)
  memory_of_rounds = metrics_of(tmp_path)['python_mib']
  before, after = memory_of_rounds[90:110], memory_of_rounds[280:]
  assert after.median() < 1.02 * before.median()
  descriptors, threads = np.transpose(found[100:])
  assert len(set(descriptors)) == 1
  # One that computes a round may not have ended yet.
  assert np.ptp(threads) <= 4


# Each norm and schedule runs.


@pytest.mark.runs
@pytest.mark.parametrize(
  'process, more',
  [
    ('server_only', ('--server_examples=50', '--norm=batch')),
    ('fedprox', ('--norm=group', '--clients_per_round=3')),
    (
      'fedavg_ssfl',
      ('--schedule=cosine', '--server_warmup_rounds=0'),
    ),
  ],
)
def test_two_rounds_of(process, more, cache, tmp_path):
  common = SMALL[:3] if process == 'server_only' else SMALL
  two_rounds = (f'--process={process}', *common, '--total_rounds=2')
  summary = run_folders.train(tmp_path, *two_rounds, *more, cache)
  assert (summary['process'], summary['rounds']) == (process, 2)
  assert 0 <= summary['accuracy'] <= 1
  clients = {'server_only': 0, 'fedprox': 3}.get(process, 4)
  found = metrics_of(tmp_path)['clients_participating']
  assert found.tolist() == [clients] * 2
  weights = weights_in_checkpoint(tmp_path)
  assert {w.dtype for w in weights} == {np.dtype(np.float32)}
  assert all(np.isfinite(w).all() for w in weights)
  if process in ('fedavg', 'fedprox'):
    # No groups: the state holds the model itself.
    content = b''.join(w.tobytes() for w in weights)
    assert summary['weights_sha256'] == hashlib.sha256(content).hexdigest()
    assert summary['server_examples'] == 0
