"""Runs the cases and shows how each one ends: see `--help`."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from tff_ssl.testing import commands

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
  commands.install_context()
  return _run(values.write)


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
  commands.end(main)
