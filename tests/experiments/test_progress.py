"""Plain lines where nobody watches, a bar on a terminal."""

import io

from experiments import progress


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
    'round 2/4: train_loss 0.2500, accuracy 0.5000',
    'round 4/4: train_loss 0.2500, accuracy 1.0000, mask_rate 0.1250, '
    'server_loss 2.0000',
  ]
  assert err == '' and '\r' not in out


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
