"""Runs the contract checks on a user's process: see `--help`."""

import difflib
import inspect
import logging
import os
import sys
import time
from collections.abc import Sequence

from absl import flags

from tff_ssl import algorithms
from tff_ssl.common import user_modules
from tff_ssl.testing import CHECKS, TinyProblem, commands, run_check

_HELP = """\
Checks that a process keeps the promises of every process of tff_ssl.

  python -m tff_ssl.testing my_module:SPEC [--checks=NAME,NAME]

SPEC is a tff_ssl.ProcessSpec in my_module.py, in this folder or on PYTHONPATH.
The process is trained on tiny data, which takes a minute or a few. If it needs
other arguments to learn there, write a test: see tff_ssl/testing.

  --checks=NAME,NAME  run only these checks
  --list              list the checks, one per line

Exit code: 0 if the process keeps all promises, 1 if it breaks one, 2 if the
checks cannot run."""

# Exit codes.
_KEPT, _BROKEN, _USAGE = 0, 1, 2


class _UsageError(ValueError):
  """An error in the command line, described in one sentence."""


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  try:
    values = _parse(argv)
    if values.help:
      print(_HELP)
      return _KEPT
    if values.list:
      _list()
      return _KEPT
    checks = _chosen(values.checks)
    name = _only_process(values(argv)[1:])
    # The module may import TensorFlow, which prints many messages.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    print(f'Checking {name} ...', flush=True)
    spec = _find(name)
  except _UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  commands.install_context(logging.ERROR)
  return _run(spec, checks)


def _parse(argv) -> flags.FlagValues:
  """Parses a command line."""
  values = flags.FlagValues()
  flags.DEFINE_boolean('help', False, 'Help.', flag_values=values)
  flags.DEFINE_boolean('list', False, 'The checks.', flag_values=values)
  flags.DEFINE_list('checks', None, 'Names of checks.', flag_values=values)
  try:
    values(argv)
  except flags.UnrecognizedFlagError as error:
    raise _UsageError(f'--{error.flagname} is no flag: see --help.') from error
  except flags.Error as error:
    text = ' '.join(str(error).split()).rstrip('.')
    raise _UsageError(f'{text}: see --help.') from error
  return values


def _chosen(names) -> list[str]:
  """Returns the checks to run, in the order of the suite."""
  for name in names or ():
    if name not in CHECKS:
      near = difflib.get_close_matches(name, CHECKS, n=1)
      hint = f'did you mean {near[0]}?' if near else '--list names them.'
      raise _UsageError(f'--checks={name} is no check: {hint}')
  if names == []:
    raise _UsageError('--checks= names no check: leave it out, or see --list.')
  return [name for name in CHECKS if names is None or name in names]


def _only_process(arguments) -> str:
  """Returns the only argument that is not a flag."""
  if len(arguments) != 1:
    raise _UsageError(
      f'give one process, as my_module:SPEC, and not {len(arguments)} '
      f'({" ".join(arguments) or "none"}): see --help.'
    )
  return arguments[0]


def _find(name: str) -> algorithms.ProcessSpec:
  """Returns the record of a process; its exceptions must name checks."""
  if not user_modules.is_reference(name):
    raise _UsageError(
      f'process={name!r} names no module: write my_module:SPEC.'
    )
  try:
    spec = algorithms.PROCESSES.find(name)
  except ValueError as error:
    raise _UsageError(str(error)) from error
  if unknown := sorted(set(spec.exceptions) - set(CHECKS)):
    raise _UsageError(
      f'exceptions of {spec.name} names {", ".join(unknown)}, which is no '
      'check: --list shows all checks.'
    )
  return spec


def _run(spec: algorithms.ProcessSpec, checks: Sequence[str]) -> int:
  """Runs checks, prints each result, and returns the exit code."""
  problem = TinyProblem(spec)
  width = max(map(len, checks))
  began, failed = time.monotonic(), 0
  for name in checks:
    print(f'{name:{width}}  ', end='', flush=True)
    started = time.monotonic()
    try:
      run_check(name, problem)
      ended = 'ok'
      if reason := spec.exceptions.get(name):
        ended = f'fails, as its spec says: {reason}'
    except AssertionError as error:
      failed += 1
      ended = f'FAILED: {_one_line(error)}'
    print(f'{time.monotonic() - started:5.1f} s  {ended}', flush=True)
  print(
    f'{spec.name}: {len(checks) - failed} of {len(checks)} promises kept, '
    f'{failed} broken, in {time.monotonic() - began:.0f} s.'
  )
  return _BROKEN if failed else _KEPT


def _one_line(error: Exception) -> str:
  """Returns the text of an error in one line."""
  return ' '.join(str(error).split())


def _list() -> None:
  """Prints the checks with the first lines of their docstrings."""
  width = max(map(len, CHECKS))
  for name, check in CHECKS.items():
    print(f'{name:{width}}  {inspect.getdoc(check).splitlines()[0]}')


if __name__ == '__main__':
  commands.end(main)
