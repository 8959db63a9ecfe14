"""Checks that a process keeps the promises of every process of tff_ssl.

    python -m tff_ssl.testing my_module:SPEC [--checks=NAME,NAME]

SPEC is a tff_ssl.ProcessSpec in my_module.py, in this folder or on PYTHONPATH.
The process is trained on tiny data, which takes a minute or a few. If it needs
other arguments to learn there, write a test: see tff_ssl/testing.

Exit code: 0 if the process keeps all promises, 1 if it breaks one, 2 if the
checks cannot run.
"""

import argparse
import difflib
import inspect
import logging
import os
import sys
import time
from collections.abc import Sequence

from tff_ssl import algorithms
from tff_ssl.common import user_modules
from tff_ssl.testing import CHECKS, TinyProblem, check_exceptions, run_check


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m tff_ssl.testing',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument('process', nargs='?', metavar='my_module:SPEC')
  parser.add_argument(
    '--checks', metavar='NAME,NAME', help='run only these checks'
  )
  parser.add_argument('--list', action='store_true', help='list the checks')
  values = parser.parse_args(argv[1:])
  if values.list:
    width = max(map(len, CHECKS))
    for name, check in CHECKS.items():
      print(f'{name:{width}}  {inspect.getdoc(check).splitlines()[0]}')
    return 0
  try:
    checks = _chosen(values.checks)
    if values.process is None:
      raise ValueError('give a process, as my_module:SPEC.')
    # The module may import TensorFlow, which prints many messages.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    print(f'Checking {values.process} ...', flush=True)
    spec = _find(values.process)
  except ValueError as error:
    parser.error(str(error))
  logging.getLogger('tensorflow').setLevel(logging.ERROR)
  from tff_ssl.simulation import contexts

  contexts.install_context()
  return _run(spec, checks)


def _chosen(names: str | None) -> list[str]:
  """Returns the checks to run, in the order of the suite."""
  if names is None:
    return list(CHECKS)
  wanted = names.split(',')
  for name in wanted:
    if name not in CHECKS:
      near = difflib.get_close_matches(name, CHECKS, n=1)
      hint = f'did you mean {near[0]}?' if near else '--list names them.'
      raise ValueError(f'--checks={name} is no check: {hint}')
  return [name for name in CHECKS if name in wanted]


def _find(name: str) -> algorithms.ProcessSpec:
  """Returns the record of a process; its exceptions must name checks."""
  if not user_modules.is_reference(name):
    raise ValueError(f'process={name!r} names no module: write my_module:SPEC.')
  spec = algorithms.PROCESSES.find(name)
  check_exceptions(spec)
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
      ended = f'FAILED: {" ".join(str(error).split())}'
    print(f'{time.monotonic() - started:5.1f} s  {ended}', flush=True)
  print(
    f'{spec.name}: {len(checks) - failed} of {len(checks)} promises kept, '
    f'{failed} broken, in {time.monotonic() - began:.0f} s.'
  )
  return int(failed > 0)


if __name__ == '__main__':
  try:
    exit_code = main(sys.argv)
  except KeyboardInterrupt:
    exit_code = 130
  # TensorFlow's functions raise errors if they are deleted after their module.
  sys.unraisablehook = lambda unraisable: None
  sys.exit(exit_code)
