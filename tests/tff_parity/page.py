"""Runs TFF's tests with our builders, and writes the page of how each ends.

python -m tests.tff_parity.page            # runs the cases of this folder
python -m tests.tff_parity.page --write    # writes the page, if all end so
"""

import argparse
import collections
import logging
import pathlib
from collections.abc import Mapping, Sequence

import tff_ssl
from experiments.config import command_line
from tests.tff_parity import cases, groups

PAGE = pathlib.Path(__file__).parents[2] / 'docs/reference/tff_tests.md'
COMMAND = 'python -m tests.tff_parity.page --write'
_MEANINGS = {
  'passes': 'what the test asserts holds here',
  'refused': 'the builder stops with a message',
  'taken': 'TFF refuses it, and it works here',
  'no counterpart': 'no argument here has the name',
  'does not hold': 'an assertion of the test fails here',
}


def row(case: cases.Case, ended: str) -> str:
  """Returns the row of a case, given how it ended."""
  cells = (f'`{case.source}`', case.about, ended)
  escaped = [cell.replace('|', '\\|') for cell in cells]
  return f'| {" | ".join(escaped)} |'


def text(outcomes: Mapping[str, str]) -> str:
  """Returns the page, given how the case of each name ended."""
  lines = [
    "# TFF's tests with our builders",
    '',
    f'`{COMMAND}` runs these cases and writes this page. What stands under '
    '"here" is what the run gave; where a message is shown, it was raised.',
    '',
    "Each case is written here after a test or tutorial of TFF's, with "
    '`build_fed_avg` in the place of its builder. Models and data are tiny. '
    'Where something is refused, the case also runs with the builder of TFF '
    "0.87. Tests of TFF's own parts, in which no builder has a place, are left "
    'out.',
    '',
    f'Of {len(groups.CASES)} cases: {_summary()}.',
    '',
    *(f'- {kind}: {meaning}.' for kind, meaning in _MEANINGS.items()),
  ]
  for name, group in groups.GROUPS.items():
    lines += ['', f'## {group.title}', '']
    lines += ["| TFF's test | what it is about | here |", '|---|---|---|']
    lines += [row(case, outcomes[f'{name}.{case.name}']) for case in group]
  return '\n'.join(lines) + '\n'


def _summary() -> str:
  """Returns how many cases end in which way."""
  counts = collections.Counter(case.end.kind for case in groups.CASES.values())
  return ', '.join(f'{kind}: {counts[kind]}' for kind in _MEANINGS)


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command; returns 1 if a case ends otherwise than it must."""
  parser = argparse.ArgumentParser(prog='python -m tests.tff_parity.page')
  parser.add_argument('--write', action='store_true', help='write the page')
  write = parser.parse_args(arguments).write
  logging.getLogger('tensorflow').setLevel(logging.CRITICAL)
  tff_ssl.install_context()
  outcomes, failed = {}, 0
  for name, case in groups.CASES.items():
    try:
      outcomes[name] = cases.outcome(case)
      print(f'{name}: {outcomes[name]}', flush=True)
    except Exception as error:
      failed += 1
      print(f'{name}: FAILED: {type(error).__name__}: {error}', flush=True)
  print(f'{_summary()}. Of these failed: {failed}.')
  if failed:
    return 1
  if write:
    PAGE.write_text(text(outcomes), encoding='utf-8')
  return 0


if __name__ == '__main__':
  command_line.run(main)
