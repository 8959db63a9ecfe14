"""What the commands of this package share: names, a context, an exit code."""

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence

from tff_ssl import algorithms
from tff_ssl.testing import check_exceptions


def build_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
  """Returns a parser that shows a module's docstring, and takes a process."""
  parser = argparse.ArgumentParser(
    prog=prog,
    description=description,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument(
    'process',
    nargs='?',
    metavar='my_module:SPEC',
    help='a tff_ssl.ProcessSpec of yours, or the name of a process of tff_ssl',
  )
  parser.add_argument(
    '--list', action='store_true', help='list what would be done'
  )
  return parser


def chosen(flag: str, names: str | None, known: Iterable[str]) -> list[str]:
  """Returns those of the known names that a flag asks for, in their order.

  Args:
    flag: Such as '--checks'.
    names: Its value, names with commas between them; `None` for all.
    known: All names that there are.

  Raises:
    ValueError: If one is not known.
  """
  known = list(known)
  if names is None:
    return known
  wanted = names.split(',')
  for name in wanted:
    if name not in known:
      near = difflib.get_close_matches(name, known, n=1)
      hint = f'did you mean {near[0]}?' if near else '--list names them.'
      raise ValueError(f'{flag}={name} is not known: {hint}')
  return [name for name in known if name in wanted]


def find(name: str | None) -> algorithms.ProcessSpec:
  """Returns the record of a process; its exceptions must name checks.

  Raises:
    ValueError: If there is none of this name, or none is given.
  """
  if name is None:
    raise ValueError('give a process, as my_module:SPEC.')
  # The module may import TensorFlow, which prints many messages.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  spec = algorithms.PROCESSES.find(name)
  check_exceptions(spec)
  return spec


def install_context() -> None:
  """Lets TFF compute in this process.

  TensorFlow's messages are left out, those of errors too: what fails raises, or
  is a row of what is measured.
  """
  logging.getLogger('tensorflow').setLevel(logging.CRITICAL)
  from tff_ssl.simulation import contexts

  contexts.install_context()


def run(main: Callable[[Sequence[str]], int]) -> None:
  """Ends the program with the exit code of its `main`."""
  try:
    exit_code = main(sys.argv)
  except KeyboardInterrupt:
    exit_code = 130
  # TensorFlow's functions raise errors if they are deleted after their module.
  sys.unraisablehook = lambda unraisable: None
  sys.exit(exit_code)
