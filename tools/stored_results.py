"""What lies in `results/`, and how pages write figures (`NAMES`).

Values that a run has for each of its seeds are a series; their mean is what is
written where nothing else is said.
"""

import functools
import io
import json
import numbers
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from experiments.tables import recipes, seeds
from tff_ssl.algorithms import PROCESSES

RESULTS = pathlib.Path(__file__).parents[1] / 'results'
# Evaluations at the end of a run whose mean is compared.
LAST = 5
# Number of test examples -> how the names of their files begin. An accuracy is
# stored with four digits. Here they tell how many examples were right, and it
# is read as that fraction.
_TESTED = {
  180: ('unknown_classes',),
  800: ('gain_texts',),
  1500: ('gain_animals',),
  2000: ('cifar10_table3', 'gain_cifar10', 'gain_resnet9'),
  6627: ('gain_writers', 'label_hungry', 'native_writers'),
  8920: ('fedul',),
  9400: ('balanced', 'gain_balanced', 'ssfl_table2'),
  15591: ('fedlabel',),
}


def curves(*names: str, column: str = 'accuracy') -> pd.DataFrame:
  """Returns the values of `NAME_curves.csv`, a column for each run and seed.

  Raises:
    ValueError: If a run of the same seed has two values in a round.
  """
  together = pd.concat(_values(name, column) for name in names)
  by_round = together.unstack(['run', 'seed']).sort_index()
  return by_round.sort_index(axis='columns')


def _values(name, column) -> pd.Series:
  table = pd.read_csv(
    RESULTS / f'{name}_curves.csv', index_col=['round', 'run', 'seed']
  )
  values = table[column].dropna()
  if column == 'accuracy':
    for tested, beginnings in _TESTED.items():
      if name.startswith(beginnings):
        return (values * tested).round() / tested
  return values


def last(curves: pd.DataFrame, number: int = LAST) -> pd.Series:
  """Returns the mean of the last evaluations of each run, seed by seed."""
  # Columns may be evaluated in other rounds than their neighbours.
  return curves.apply(lambda column: column.dropna().tail(number).mean())


def last_gain(curves: pd.DataFrame, least: int = LAST) -> pd.Series:
  """Returns what each run gains in the last fifth of its rounds.

  It is that of a straight line through the evaluations there, `least` of them
  or more.
  """

  def gain(column):
    column = column.dropna()
    end = column.index[-1]
    number = max(least, (column.index > 0.8 * end).sum())
    tail = column.tail(number)
    return np.polyfit(tail.index, tail, 1)[0] * 0.2 * end

  return curves.apply(gain)


_table = functools.cache(recipes.load)


def published(recipe: str) -> float:
  """Returns the published figure of TABLE:ROW; `ValueError` if it has none."""
  table, _, row = recipe.partition(':')
  found = _table(table)[row].published
  if found is None:
    raise ValueError(f'{recipe} has no published figure.')
  return found


def stored(file: str, after: str = '') -> object:
  """Returns what a file of `results/` holds.

  Args:
    file: Its name: of a JSON file; of a CSV file, whose first column names the
      rows; or of a page, of which a table is read likewise.
    after: Words of the page behind which the table is the first.
  """
  path = RESULTS / file
  if path.suffix == '.csv':
    return pd.read_csv(path, index_col=0)
  text = path.read_text(encoding='utf-8')
  if path.suffix == '.json':
    return json.loads(text)
  start = text.find(after)
  lines = re.search(r'(?:^\|.*\n)+', text[start:], re.MULTILINE)
  if start < 0 or lines is None:
    raise ValueError(f'{file} has no table after {after!r}')
  header, _, *rows = (line[1:-1].strip() for line in lines[0].splitlines())
  return pd.read_csv(
    io.StringIO('\n'.join([header, *rows])),
    sep=r' *\| *',
    engine='python',
    index_col=0,
  )


def flags(recipe: str) -> Mapping[str, str]:
  """Returns the flags that the run of TABLE:ROW had, by `results/TABLE.md`."""
  page = RESULTS / f'{recipe.partition(":")[0]}.md'
  commands = re.findall(r'^ {4}python -m .*$', page.read_text('utf-8'), re.M)
  command = next(c for c in commands if f' --recipe={recipe} ' in c)
  return dict(re.findall(r' --(\w+)=(\S*)', command))


def student(values: pd.Series) -> seeds.Spread:
  """Returns mean, deviation and Student's 95% interval over the seeds."""
  return seeds.spread(values.dropna())


def share(value: float | Sequence[float], digits: int = 3) -> str:
  """Returns an accuracy, or the mean of several: .943."""
  return _without_zero(f'{pd.Series(value).mean():.{digits}f}')


def signed(value: float | Sequence[float], digits: int = 3) -> str:
  """Returns a difference, or the mean of several: +.078."""
  return _without_zero(f'{pd.Series(value).mean():+.{digits}f}')


def _without_zero(text) -> str:
  return text.replace('0.', '.', 1) if text.lstrip('+-')[:2] == '0.' else text


def as_text(value: object) -> str:
  """Returns text as it is, 1,234, or the mean of accuracies: .806."""
  if isinstance(value, str):
    return value
  return f'{value:,}' if isinstance(value, numbers.Integral) else share(value)


def lead(differences: pd.Series | seeds.Spread) -> str:
  """Returns mean and interval: +.078 (+.041 to +.115)."""
  spread = differences
  if not isinstance(spread, seeds.Spread):
    spread = student(spread)
  mean = signed(spread.mean)
  if spread.low is None:  # Of too few seeds.
    return mean
  return f'{mean} ({signed(spread.low)} to {signed(spread.high)})'


def spans_zero(differences: pd.Series) -> bool:
  """Returns whether Student's interval has zero within: not told apart."""
  spread = student(differences)
  return spread.low < 0 < spread.high


def interval(values: pd.Series, show: Callable = as_text) -> str:
  """Returns Student's interval: .815 to .818."""
  spread = student(values)
  return f'{show(spread.low)} to {show(spread.high)}'


def reach(values: Iterable[float], show: Callable = as_text) -> str:
  """Returns the least and the greatest: .815 to .818."""
  values = pd.Series([*values])
  return f'{show(values.min())} to {show(values.max())}'


def plus_minus(values: pd.Series) -> str:
  """Returns mean and deviation, .970 ± .004; of one seed its value."""
  spread = student(values)
  more = '' if spread.std is None else f' ± {as_text(spread.std)}'
  return as_text(spread.mean) + more


def each(values: Iterable[object], show: Callable = as_text) -> str:
  """Returns all of them: .888, .964 and .961."""
  *first, last = map(show, values)
  return f'{", ".join(first)} and {last}'


def cells(*values: object) -> str:
  """Returns neighbours in a row of a table: .706 | .806."""
  return ' | '.join(map(as_text, values))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
  """Returns a table of Markdown."""
  dashes = '|'.join(['---'] * len(header))
  lines = [f'| {cells(*header)} |', f'|{dashes}|']
  return '\n'.join([*lines, *(f'| {cells(*row)} |' for row in rows)])


# What expressions on pages may use (`tools.page_figures`).
NAMES = {
  function.__name__: function
  for function in (
    *(abs, all, any, float, format, int, len, map, max, min, round, range, set),
    *(sorted, str, curves, last, published, stored, flags, student, share),
    *(signed, lead, interval, reach, plus_minus, each, cells, table),
    *(spans_zero, stats.spearmanr),
  )
} | {'pd': pd, 'PROCESSES': PROCESSES}
