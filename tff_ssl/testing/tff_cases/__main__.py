"""Runs the cases and shows how each one ends: see `--help`."""

import logging
import os
import pathlib
import sys
from collections.abc import Sequence

from absl import flags

_HELP = """\
Runs what TFF's own tests and tutorials do, with builders of ours.

  python -m tff_ssl.testing.tff_cases [--write=FILE]

  --write=FILE  write the page of all cases to this file

Exit code: 0 if each case ends as it must, 1 if one does not (then nothing is
written), 2 if the cases cannot run."""

# Exit codes.
_AS_EXPECTED, _OTHERWISE, _USAGE = 0, 1, 2


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  values = flags.FlagValues()
  flags.DEFINE_boolean('help', False, 'Help.', flag_values=values)
  flags.DEFINE_string('write', None, 'The page.', flag_values=values)
  try:
    rest = values(argv)[1:]
  except flags.Error as error:
    print(f'error: {error} See --help.', file=sys.stderr)
    return _USAGE
  if rest:
    print(f'error: {rest[0]} has no place here: see --help.', file=sys.stderr)
    return _USAGE
  if values.help:
    print(_HELP)
    return _AS_EXPECTED
  # TensorFlow prints many messages.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  logging.getLogger('tensorflow').setLevel(logging.CRITICAL)
  from tff_ssl.simulation import workers

  try:
    workers.install_context()
  except RuntimeError as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  try:
    return _run(values.write)
  finally:
    workers.stop_workers()


def _run(file: str | None) -> int:
  """Runs all cases, prints each outcome, and writes the page."""
  from tff_ssl.testing.tff_cases import cases, page

  outcomes, failed = {}, 0
  for name, case in page.CASES.items():
    try:
      outcomes[name] = cases.outcome(case)
      print(f'{name}: {outcomes[name]}', flush=True)
    except Exception as error:
      failed += 1
      print(f'{name}: FAILED: {type(error).__name__}: {error}', flush=True)
  print(f'{page.summary(page.CASES.values())}. Of these failed: {failed}.')
  if failed:
    return _OTHERWISE
  if file is not None:
    pathlib.Path(file).write_text(page.text(outcomes), encoding='utf-8')
    print(f'{file} is written.')
  return _AS_EXPECTED


if __name__ == '__main__':
  exit_code = main(sys.argv)
  # TensorFlow's functions raise errors if they are deleted after their module.
  sys.unraisablehook = lambda unraisable: None
  sys.exit(exit_code)
