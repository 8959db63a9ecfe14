"""Checks that a process keeps the promises of every process of tff_ssl.

    python -m tff_ssl.testing my_module:SPEC [--checks=NAME,NAME]
    python -m tff_ssl.testing.faults my_module:SPEC    # what failing clients do

SPEC is a tff_ssl.ProcessSpec in my_module.py, in this folder or on PYTHONPATH.
The process is trained on tiny data, which takes a minute or a few. If it needs
other arguments to learn there, write a test: see tff_ssl/testing.

Exit code: 0 if the process keeps all promises, 1 if it breaks one, 2 if the
checks cannot run.
"""

import inspect
import time
from collections.abc import Sequence

from tff_ssl import algorithms
from tff_ssl.testing import CHECKS, TinyProblem, command_line, run_check


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  parser = command_line.build_parser('python -m tff_ssl.testing', __doc__)
  parser.add_argument(
    '--checks', metavar='NAME,NAME', help='run only these checks'
  )
  values = parser.parse_args(argv[1:])
  if values.list:
    width = max(map(len, CHECKS))
    for name, check in CHECKS.items():
      print(f'{name:{width}}  {inspect.getdoc(check).splitlines()[0]}')
    return 0
  try:
    checks = command_line.chosen('--checks', values.checks, CHECKS)
    spec = command_line.find(values.process)
  except ValueError as error:
    parser.error(str(error))
  print(f'Checking {values.process} ...', flush=True)
  command_line.install_context()
  return _run(spec, checks)


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
  command_line.run(main)
