"""The page of all cases with their outcomes, `docs/reference/tff_tests.md`."""

import collections
from collections.abc import Iterable, Mapping

from tff_ssl.testing.tff_cases import (
  aggregators,
  fed_avg,
  fed_prox,
  processes,
  programs,
  schedules,
  tutorials,
)
from tff_ssl.testing.tff_cases.cases import (
  DIFFERS,
  NO_COUNTERPART,
  PASSES,
  REFUSED,
  TAKEN,
  Case,
)

COMMAND = (
  'python -m tff_ssl.testing.tff_cases --write=docs/reference/tff_tests.md'
)

_GROUPS = {
  'Federated averaging': fed_avg,
  'FedProx': fed_prox,
  'Schedules of the learning rate': schedules,
  'Recommended aggregators': aggregators,
  'Learning processes': processes,
  'Programs': programs,
  'Tutorials': tutorials,
}
CASES: Mapping[str, Case] = {
  f'{module.__name__.rpartition(".")[2]}.{case.name}': case
  for module in _GROUPS.values()
  for case in module.CASES
}

_MEANINGS = {
  PASSES: 'what the test asserts holds here',
  REFUSED: 'the builder stops with a message',
  TAKEN: 'TFF refuses it, and it works here',
  NO_COUNTERPART: 'no argument here has the name',
  DIFFERS: 'an assertion of the test fails here',
}


def row(case: Case, outcome: str) -> str:
  """Returns the row of a case, given how it ended."""
  cells = (f'`{case.source}`', case.about, outcome)
  escaped = [cell.replace('|', '\\|') for cell in cells]
  return f'| {" | ".join(escaped)} |'


def summary(cases: Iterable[Case]) -> str:
  """Returns how many cases end in which way."""
  counts = collections.Counter(case.kind for case in cases)
  return ', '.join(f'{kind}: {counts[kind]}' for kind in _MEANINGS)


def text(outcomes: Mapping[str, str]) -> str:
  """Returns the page.

  Args:
    outcomes: How each case ended, by its name in `CASES`.
  """
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
    f'Of {len(CASES)} cases: {summary(CASES.values())}.',
    '',
    *(f'- {kind}: {meaning}.' for kind, meaning in _MEANINGS.items()),
  ]
  for title, module in _GROUPS.items():
    group = module.__name__.rpartition('.')[2]
    lines += ['', f'## {title}', '']
    lines += ["| TFF's test | what it is about | here |", '|---|---|---|']
    lines += [
      row(case, outcomes[f'{group}.{case.name}']) for case in module.CASES
    ]
  return '\n'.join(lines) + '\n'
