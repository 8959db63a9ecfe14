"""Plain lines where nobody watches, a bar on a terminal, TensorBoard."""

import asyncio
import io

import pytest
import tensorflow as tf

from experiments.running import progress


class Terminal(io.StringIO):
  """A standard error that claims to be a terminal."""

  def isatty(self):
    return True


def test_one_plain_line_per_evaluation_when_piped(capsys):
  shown = progress.Progress(0, 4)
  shown.update(1, {'train_loss': 1.5, 'seconds': 9.0})
  shown.update(2, {'train_loss': 0.25, 'accuracy': 0.5})
  shown.update(3, {'train_loss': float('nan'), 'mask_rate': 0.125})
  shown.update(4, {'server_loss': 2.0, 'accuracy': 1.0})
  shown.close()
  out, err = capsys.readouterr()
  # A value that is not known anew stays the last one that was.
  assert out.splitlines() == [
    'round 2/4: train_loss 0.2500, accuracy 0.5000, about 1 s left',
    'round 4/4: train_loss 0.2500, accuracy 1.0000, mask_rate 0.1250, '
    'server_loss 2.0000',
  ]
  assert err == '' and '\r' not in out


def test_time_left_is_told_once_clients_train(monkeypatch, capsys):
  """By rounds that do not compile, of the last phase."""
  now = [0.0]
  monkeypatch.setattr('time.time', lambda: now[0])
  shown = progress.Progress(0, 10, [('server warm-up', 2)])
  for done, seconds in enumerate([9, 1, 60, 40, 20, 30, 1, 1, 1, 1], start=1):
    now[0] += seconds
    shown.update(done, {'accuracy': 0.5} if done in (2, 5, 10) else {})
  assert capsys.readouterr().out.splitlines() == [
    'round 2/10: accuracy 0.5000',
    'round 4/10: accuracy 0.5000, about 4.0 min left',
    'round 5/10: accuracy 0.5000, about 2.5 min left',
    'round 10/10: accuracy 0.5000',
  ]


def test_bar_on_a_terminal_starts_where_the_run_resumes(monkeypatch, capsys):
  terminal = Terminal()
  monkeypatch.setattr('sys.stderr', terminal)
  shown = progress.Progress(3, 5)
  shown.update(4, {'accuracy': 0.5})
  shown.update(5, {'accuracy': 0.75})
  shown.close()
  last = terminal.getvalue().rstrip().rpartition('\r')[2]
  assert '5/5' in last and 'accuracy=0.7500' in last
  assert '3/5' in terminal.getvalue()
  assert capsys.readouterr().out == ''


def test_bar_names_the_phase_and_forgets_rounds_that_compile(monkeypatch):
  terminal = Terminal()
  monkeypatch.setattr('sys.stderr', terminal)
  now = [1000.0]
  monkeypatch.setattr('time.time', lambda: now[0])
  monkeypatch.setattr('tqdm.std.time', lambda: now[0])
  shown = progress.Progress(0, 12, [('server warm-up', 2)])
  assert 'server warm-up 1/2: ' in terminal.getvalue()
  for done, seconds in ((1, 100.0), (2, 1.0), (3, 50.0), (4, 2.0), (5, 2.0)):
    now[0] += seconds
    shown.update(done, {})
    last = terminal.getvalue().rstrip().rpartition('\r')[2]
    if done == 1:
      assert last.startswith('server warm-up 2/2: ')
  shown.close()
  assert last.startswith('training: ')
  # Two seconds for each of the seven rounds that are left.
  assert '<00:14' in last


@pytest.mark.parametrize('in_notebook', [False, True])
def test_tensorboard_holds_the_numbers(tmp_path, in_notebook):
  """A cell of a notebook is run in an event loop."""

  def write():
    log = progress.TensorBoardLog(tmp_path)
    log.write(7, {'train': {'loss': 0.5}})

  async def cell():
    write()

  if in_notebook:
    asyncio.run(cell())
  else:
    write()
  found = {
    value.tag: (event.step, tf.make_ndarray(value.tensor).item())
    for path in tmp_path.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  }
  assert found == {'train/loss': (7, 0.5)}
