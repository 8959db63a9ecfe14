"""Reads tables of class priors: CSV files with one row for each client's set.

The first two columns name the client and the set. Each other column is named
after a class; the classes are numbered in this order:

    client_id,set_id,healthy,subdural,epidural
    north,st_mary,0.62,0.30,0.08

The values are shares, not percentages. Those of a row sum to 1 within .001.
"""

import collections
import csv
import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from datasets.sources.own.rows import name_of
from datasets.sources.source import SourceSets
from tff_ssl import prior_checks

_MAX_ROWS = 100_000


@dataclasses.dataclass(frozen=True, eq=False)
class PriorTable:
  """A table of class priors.

  Attributes:
    path: The file.
    class_names: The d classes.
    rows: `{(client, set): float64 [d]}`, in the order of the file.
  """

  path: str
  class_names: tuple[str, ...]
  rows: dict[tuple[str, str], np.ndarray]

  def sets_of(self, owners: Sequence[tuple[str, str]]) -> SourceSets:
    """Joins the table with examples.

    Clients and their sets are numbered as they appear in the table. Names are
    compared without surrounding spaces and in one Unicode normal form.

    Args:
      owners: The client and the set of each of the N examples.

    Raises:
      ValueError: If a set of the table has no example, or a set of the examples
        has no row.
    """
    owners = [(name_of(client), name_of(name)) for client, name in owners]
    found = dict.fromkeys(owners)
    for client, name in found:
      if (client, name) not in self.rows:
        raise ValueError(
          f'{self.path} has no row for the set {name!r} of {client!r}, which '
          'has examples: add the row.'
        )
    for client, name in self.rows:
      if (client, name) not in found:
        raise ValueError(
          f'{self.path} has a row for the set {name!r} of {client!r}, which '
          'has no example: remove the row, or add examples.'
        )
    client_numbers, set_numbers = {}, {}
    num_sets = collections.Counter()
    for client, name in self.rows:
      client_numbers.setdefault(client, len(client_numbers))
      set_numbers[client, name] = num_sets[client]
      num_sets[client] += 1
    most_sets = max(num_sets.values())
    priors = np.zeros((len(client_numbers), most_sets, len(self.class_names)))
    for (client, name), row in self.rows.items():
      priors[client_numbers[client], set_numbers[client, name]] = row
    return SourceSets(
      client_names=tuple(client_numbers),
      client_index=np.array([client_numbers[client] for client, _ in owners]),
      set_index=np.array([set_numbers[owner] for owner in owners]),
      class_priors=priors,
      class_names=self.class_names,
    )


def read(path: str, client_column: str, set_column: str) -> PriorTable:
  """Reads a table.

  Args:
    path: The file, UTF-8.
    client_column: The name of the first column.
    set_column: The name of the second column.

  Returns:
    The table; each row is divided by its sum.

  Raises:
    ValueError: If the file is absent or is not such a table.
  """
  try:
    if not os.path.isfile(path):
      raise OSError('no such file')  # Who opens a pipe waits for ever.
    with open(path, newline='', encoding='utf-8-sig') as file:
      reader = csv.reader(file, strict=True)
      lines = [(reader.line_num, line) for line in reader if line]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise ValueError(
      f'{path}: no readable CSV file ({error}); it must hold the columns '
      f'{client_column}, {set_column} and one for each class.'
    ) from error
  header = [name_of(name) for name in lines[0][1]] if lines else []
  classes = header[2:]
  if (
    header[:2] != [client_column, set_column]
    or len(classes) < 2
    or len(set(header)) < len(header)
    or not all(header)
  ):
    raise ValueError(
      f'{path}: the columns are {header}; they must be {client_column}, '
      f'{set_column} and then two classes or more, each with a name of its own.'
    )
  if not 1 < len(lines) <= _MAX_ROWS + 1:
    raise ValueError(
      f'{path}: found {len(lines) - 1} rows; give one for each set, at most '
      f'{_MAX_ROWS:,}.'
    )
  rows = {}
  for number, line in lines[1:]:
    key, row = _row(path, number, line, header)
    if key in rows:
      raise ValueError(
        f'{path}: line {number}: the set {key[1]!r} of {key[0]!r} has a '
        'second row; keep one.'
      )
    rows[key] = row
  return PriorTable(path, tuple(classes), rows)


def _row(path, number, line, header):
  what = f'{path}: line {number}'
  if len(line) != len(header):
    raise ValueError(
      f'{what} has {len(line)} fields under {len(header)} columns: correct it.'
    )
  client, name = map(name_of, line[:2])
  try:
    shares = np.array([float(field) for field in line[2:]])
  except ValueError as error:
    raise ValueError(
      f'{what}: {line[2:]} are not all numbers: correct them.'
    ) from error
  if not client or not name:
    raise ValueError(
      f'{what}: {header[0]} or {header[1]} is empty: fill it in.'
    )
  return (client, name), prior_checks.normalised_row(what, shares)
