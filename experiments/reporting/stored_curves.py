"""Curves of finished runs that lie in `results/`, and how pages write figures.

An accuracy is stored with four digits. Where the number of test examples is
known, they tell how many were right, and it is read as that fraction.
"""

import pathlib
from collections.abc import Sequence

import pandas as pd

RESULTS = pathlib.Path(__file__).parents[2] / 'results'
# Evaluations at the end of a run whose mean is compared.
LAST = 5
# Number of test examples -> how the names of their files begin.
_TESTED = {
  800: ('gain_texts',),
  1500: ('gain_animals',),
  2000: ('cifar10_table3', 'gain_cifar10', 'gain_resnet9'),
  6627: ('gain_writers', 'label_hungry', 'native_writers'),
  8920: ('fedul',),
  9400: ('balanced', 'gain_balanced', 'ssfl_table2'),
  15591: ('fedlabel',),
}


def read(
  *names: str, column: str = 'accuracy', folder: pathlib.Path = RESULTS
) -> pd.DataFrame:
  """Returns curves: a row for each round, a column for each run and seed.

  Args:
    *names: Files, without `_curves.csv`.
    column: What was measured.
    folder: Where they lie.

  Raises:
    ValueError: If a run of the same seed has two values in a round.
  """
  together = pd.concat(_values(folder, name, column) for name in names)
  by_round = together.unstack(['run', 'seed']).sort_index()
  return by_round.sort_index(axis='columns')


def _values(folder, name, column) -> pd.Series:
  table = pd.read_csv(
    folder / f'{name}_curves.csv', index_col=['round', 'run', 'seed']
  )
  values = table[column].dropna()
  if column == 'accuracy':
    for tested, beginnings in _TESTED.items():
      if name.startswith(beginnings):
        return (values * tested).round() / tested
  return values


def last(curves: pd.DataFrame, number: int = LAST) -> pd.Series:
  """Returns the mean of the last evaluations of each column.

  Args:
    curves: As `read` has them, or those of one run. Columns may be evaluated
      in other rounds than their neighbours.
    number: How many evaluations count.
  """
  return curves.apply(lambda column: column.dropna().tail(number).mean())


def share(value: float | Sequence[float], digits: int = 3) -> str:
  """Returns an accuracy, or the mean of several, as pages write it: .943.

  Args:
    value: The number or numbers; those that are missing do not count.
    digits: Behind the point.
  """
  return _without_zero(f'{pd.Series(value).mean():.{digits}f}')


def signed(value: float | Sequence[float], digits: int = 3) -> str:
  """Returns a difference, or the mean of several: +.078.

  Args:
    value: As in `share`.
    digits: As in `share`.
  """
  return _without_zero(f'{pd.Series(value).mean():+.{digits}f}')


def lead(mean: float, low: float | None, high: float | None) -> str:
  """Returns a difference and the interval of it: +.078 (+.041 to +.115).

  Args:
    mean: The difference.
    low: Lower end; `None` where there are too few seeds for an interval.
    high: Upper end, likewise.
  """
  if low is None:
    return signed(mean)
  return f'{signed(mean)} ({signed(low)} to {signed(high)})'


def _without_zero(text: str) -> str:
  return text.replace('0.', '.', 1) if text.lstrip('+-')[:2] == '0.' else text
