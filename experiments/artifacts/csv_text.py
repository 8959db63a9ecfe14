"""Text in CSV files that people open in spreadsheets."""

from __future__ import annotations

import math

from etils import epy

with epy.lazy_imports():
  import pandas as pd

# A spreadsheet reads a cell with such a first character as a formula, which may
# send data elsewhere. Names of classes and clients come from users' files.
_FORMULA_STARTS = ('=', '+', '-', '@', '\t', '\r')


def cell(text: str) -> str:
  """Returns a text as a cell that a spreadsheet does not run.

  Args:
    text: A name, say. A number such as -1 stays as it is.
  """
  if not text.startswith(_FORMULA_STARTS) or _is_number(text):
    return text
  return f"'{text}"


def of_table(table: pd.DataFrame, **how) -> str:
  """Returns a table as CSV, in which no name is a formula.

  Args:
    table: Its cells, columns and index are numbers or strings.
    **how: Arguments of `pandas.DataFrame.to_csv`.
  """
  safe = table.copy()
  for place, dtype in enumerate(table.dtypes):
    if dtype.kind == 'O':
      safe.isetitem(place, table.iloc[:, place].map(_safe))
  safe.columns = [_safe(name) for name in table.columns]
  safe.index = table.index.map(_safe)
  return safe.to_csv(**how)


def _safe(value):
  return cell(value) if isinstance(value, str) else value


def _is_number(text: str) -> bool:
  try:
    return math.isfinite(float(text))
  except ValueError:
    return False
