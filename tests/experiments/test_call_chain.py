"""The README's list of files from the command line to the loss."""

import pathlib
import re
import sys
import traceback

import pytest

from experiments import run
from tff_ssl.objectives import consistency

_ROOT = pathlib.Path(__file__).parents[2]
_OWN = {'experiments', 'datasets', 'tff_ssl'}


class _ReachedError(Exception):
  """The loss was called."""


def _called_files():
  """Names the project's files on the stack, outermost first, each once."""
  frames = reversed(list(traceback.walk_stack(sys._getframe(1))))
  paths = [pathlib.Path(frame.f_code.co_filename) for frame, _ in frames]
  names = [
    path.relative_to(_ROOT) for path in paths if path.is_relative_to(_ROOT)
  ]
  return list(
    dict.fromkeys(name.as_posix() for name in names if name.parts[0] in _OWN)
  )


def test_readme_names_the_files_on_the_stack_of_the_first_loss(
  tmp_path, monkeypatch
):
  called = []

  def stop(*arguments):
    del arguments
    called.extend(_called_files())
    raise _ReachedError

  monkeypatch.setattr(consistency.ConsistencyRegularization, '__call__', stop)
  with pytest.raises(_ReachedError):
    run.main(
      [
        'run',
        *('--process=grouping', '--dataset=digits'),
        *(f'--run_dir={tmp_path / "run"}', f'--cache_dir={tmp_path / "cache"}'),
      ]
    )
  called.append('tff_ssl/objectives/consistency.py')

  text = (_ROOT / 'README.md').read_text()
  (passage,) = re.findall(
    r'From the command line to the arithmetic.*?\n\n', text, re.DOTALL
  )
  named = re.findall(r'`((?:experiments|datasets|tff_ssl)/\S+\.py)`', passage)
  assert named == called
  assert 'eleven files' in passage
  assert len(called) == 11
