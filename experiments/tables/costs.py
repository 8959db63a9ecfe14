"""What the rows of tables cost, by the runs whose results are stored.

They ran on one or two cores of several machines, some beside other runs.
"""

import collections
import functools
import pathlib
import re
import statistics
from collections.abc import Mapping

from experiments.tables import recipes

_RESULTS = pathlib.Path(__file__).parents[2] / 'results'
_SECONDS = 's per round'
_FLAG = re.compile(r'--(\w+)=(\S+)')
# Rows with the same values have clients of about the same cost, or servers
# where these train alone. Of others nothing is told: even with one network and
# data set, the seconds per example of rows differ up to 28-fold.
_ALIKE = ('dataset', 'model', 'local_steps', 'local_epochs', 'batch_size')
_ALIKE_ALONE = ('dataset', 'model', 'server_steps', 'server_batch_size')


def hours(recipe: recipes.Recipe, rounds: int | None = None) -> float | None:
  """Returns the hours of rounds, by default all; `None` if none like it ran.

  A row that did not run itself has the mean cost of a client of rows with the
  same data, network and local steps; without clients, that of the server.
  """
  flags = dict(_FLAG.findall(recipe.flags_text))
  seconds = _per_round().get(recipe.run_name)
  try:
    if seconds is None:
      seconds = _per_client()[_kind(flags)] * _num_clients(flags)
    if rounds is None:
      rounds = int(flags['total_rounds'])
  except (KeyError, ValueError):  # A user's row may lack what a run needs.
    return None
  return seconds * rounds / 3600


@functools.cache
def _per_round() -> dict[str, float]:
  """Returns the seconds of a round by TABLE:ROW, as the pages say them."""
  found = {}
  for page in sorted(_RESULTS.glob('*.md')):
    _, _, rest = page.read_text(encoding='utf-8').partition('Single runs:')
    table, _, commands = rest.partition('Commands:')
    lines = [line.split('|') for line in table.splitlines() if '|' in line]
    columns = [cell.strip() for cell in lines[0]] if lines else []
    if _SECONDS in columns:
      place = columns.index(_SECONDS)
      # Below the names of the columns and the line of dashes.
      rows = {cells[1].strip(): float(cells[place]) for cells in lines[2:]}
      for name in re.findall(r'--recipe=(\S+)', commands):
        if (row := name.rpartition(':')[2]) in rows:
          found[name] = rows[row]
  return found


@functools.cache
def _per_client() -> dict[tuple, float]:
  """Returns the mean seconds of a client, or the server, by kind of row."""
  found = collections.defaultdict(list)
  for table in {name.rpartition(':')[0] for name in _per_round()}:
    for recipe in recipes.load(table).values():
      flags = dict(_FLAG.findall(recipe.flags_text))
      if recipe.name in _per_round() and _kind(flags):
        seconds = _per_round()[recipe.name] / _num_clients(flags)
        found[_kind(flags)].append(seconds)
  return {kind: statistics.fmean(seconds) for kind, seconds in found.items()}


def _kind(flags: Mapping[str, str]) -> tuple | None:
  """Returns what decides the cost of a client, or of the server alone."""
  if flags.get('process') == 'server_only':
    return tuple(map(flags.get, _ALIKE_ALONE))
  if 'clients_per_round' not in flags:
    return None
  # In passes over its examples, it matters how many a client has.
  clients = None if 'local_steps' in flags else flags.get('num_clients')
  return clients, *map(flags.get, _ALIKE)


def _num_clients(flags: Mapping[str, str]) -> int:
  """Returns the clients of a round; the server alone counts as one."""
  return int(flags.get('clients_per_round', 1))
