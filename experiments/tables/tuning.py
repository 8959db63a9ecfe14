"""Values of a flag that validation accuracies choose, and the file of them.

The file is a CSV with the columns `row`, `flag` and `chosen`, and one more for
each value with the validation accuracy of the row's run, or the mean of its
runs, each with another fold of the labels for validation. Where a row has no
accuracy at all, nothing is chosen for it.
"""

from __future__ import annotations

import math
import os
import pathlib
import statistics
import types
from collections.abc import Mapping, Sequence

from etils import epy

from experiments.artifacts import results
from experiments.config import flags as flags_lib
from experiments.config import settings as settings_lib
from experiments.config.catalogue import REGISTRIES
from experiments.config.command_line import UsageError
from experiments.tables import child_runs, recipes

with epy.lazy_imports():
  import pandas as pd

_MEASURE = 'validation_accuracy'
_FIXED = ('row', 'flag', 'chosen')
# Flags by which runs are told apart, found and computed, not compared.
_NOT_CHOSEN = settings_lib.FREE | settings_lib.REPETITION


def parse_values(
  flag: str, values: Sequence[str], recipe: recipes.Recipe | None = None
) -> dict[str, object]:
  """Returns the values of a flag by their texts.

  The `recipe` is the row that gets the flag: it may be of a user's own process,
  data set or partition, which have flags of their own.
  """
  if flag in _NOT_CHOSEN:
    raise UsageError(
      f'--flag={flag} names a run and does not say how it learns: choose one '
      'such as learning_rate.'
    )
  given = {} if recipe is None else recipe.flags()
  own = [f'--{name}={given[name]}' for name in REGISTRIES if name in given]
  parsed = {}
  for text in values:
    try:
      parsed[text] = flags_lib.parse(['tune', *own, f'--{flag}={text}'])[flag]
    except UsageError as error:
      raise UsageError(f'--flag={flag} --values={text}: {error}') from error
    except KeyError:
      raise UsageError(
        f'--flag={flag} is no flag of a run: choose one such as learning_rate.'
      ) from None
  if len(set(parsed.values())) < len(values):
    raise UsageError(
      f'--values={",".join(values)} has a value twice: leave one out.'
    )
  return parsed


def choose(
  flag: str,
  runs: Mapping[tuple[str, str], Sequence[child_runs.ChildRun]],
  own: Mapping[str, object] = types.MappingProxyType({}),
) -> pd.DataFrame:
  """Chooses the value with the highest validation accuracy for each row.

  Of equal values, that is the first. With folds a row keeps its own value where
  that is at most one standard error below the highest: a few labels tell no
  more (Breiman et al., "Classification and Regression Trees", 1984, section
  3.4.3).

  Args:
    runs: By row and value, one for each fold. Where one is not finished, the
      value has no accuracy, and a row without any has none `chosen`.
    own: By row, the value that it has by itself.
  """
  rows = {}
  for (row, value), folds in runs.items():
    cells = rows.setdefault(row, {'row': row, 'flag': flag, 'chosen': None})
    found = [_accuracy(run.settings) for run in folds]
    cells[value] = None if None in found else statistics.fmean(found)
  for row, cells in rows.items():
    found = {
      value: accuracy
      for value, accuracy in cells.items()
      if value not in _FIXED and accuracy is not None
    }
    if found:
      cells['chosen'] = best = max(found, key=found.get)
      least = found[best] - _standard_error(found[best], runs[row, best])
      for value in found:
        is_own = getattr(runs[row, value][0].settings, flag) == own.get(row)
        if is_own and found[value] >= least:
          cells['chosen'] = value
  return pd.DataFrame(list(rows.values()))


def _standard_error(
  accuracy: float, folds: Sequence[child_runs.ChildRun]
) -> float:
  """Returns that of a share of the folds' labels; 0 without folds."""
  if len(folds) == 1:
    return 0.0
  labels = sum(
    results.read(run.settings.run_dir)['validation_examples'] for run in folds
  )
  return math.sqrt(accuracy * (1 - accuracy) / labels)


def _accuracy(settings) -> float | None:
  """Returns the validation accuracy of a run; `None` if it is not finished."""
  if not child_runs.is_finished(settings):
    return None
  summary = results.read(settings.run_dir)
  if _MEASURE not in summary:
    raise UsageError(
      f'{settings.run_dir} has no validation accuracy to choose by: give the '
      'rows of the table --split=80_5_15, or with the native partition '
      '--split=90_10_per_client; or choose by folds of the labels (--folds=5).'
    )
  return summary[_MEASURE]


def add_to(path: str | os.PathLike, table: pd.DataFrame) -> pd.DataFrame:
  """Returns the rows of a file that a table lacks, then those of the table."""
  if not pathlib.Path(path).exists():
    return table
  before = pd.read_csv(path, dtype={'chosen': str})
  others = before[~before['row'].isin(table['row'])]
  # Not `pd.concat`, for which empty columns have no type.
  return pd.DataFrame([*others.to_dict('records'), *table.to_dict('records')])


def tried(table: pd.DataFrame) -> dict[tuple[str, ...], list[str]]:
  """Returns the rows of a table by the values that have an accuracy."""
  values = [column for column in table.columns if column not in _FIXED]
  rows = {}
  for cells in table.to_dict('records'):
    found = tuple(value for value in values if pd.notna(cells[value]))
    rows.setdefault(found, []).append(cells['row'])
  rows.pop((), None)
  return rows


def read(
  path: str | os.PathLike,
  known: Mapping[str, recipes.Recipe] = types.MappingProxyType({}),
  rows: Sequence[str] = (),
) -> dict[str, dict[str, object]]:
  """Returns the chosen flag with its value by row, from a file of this kind.

  Args:
    known: The table's rows by name; see `parse_values`.
    rows: Those that must have one, and to return; by default, all there are.
  """
  columns, lines = recipes.read_csv(pathlib.Path(path).expanduser(), str(path))
  if columns[:3] != _FIXED or len(lines) == 0:
    raise UsageError(
      f'{path} is not what experiments.tune writes: its columns are '
      f'{columns}, with {len(lines)} rows below them.'
    )
  chosen = {}
  for line in lines:
    row, flag, text = (line[column] for column in _FIXED)
    if text:
      parsed = parse_values(flag, [text], known.get(row))
      chosen[row] = {flag: parsed[text]}
  missing = [row for row in rows if row not in chosen]
  if missing:
    raise UsageError(
      f'--tuned={path} has chosen nothing for {", ".join(missing)}: run '
      'experiments.tune for them, or name other --rows.'
    )
  return {row: chosen[row] for row in rows or chosen}
