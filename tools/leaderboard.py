"""Which methods of a leaderboard are told apart, and the tables of its page.

The rows of a leaderboard are DATA_LABELS_METHOD; `all` labels are the upper
bound, which has no rank.

Seeds of one data set share its examples. They say how a method does there, and
nothing of other data, so each data set counts once: two methods are compared by
the mean difference on each, paired by seed, and Student's t test asks whether
the mean of these is zero. Where each data set has as many seeds, that is the
test of a linear mixed model with a random effect of the data set. Differences
may vary more on some data sets than on others: below a level of .083 the test
is conservative then (Ibragimov and Mueller, "t-Statistic Based Correlation and
Heterogeneity Robust Inference", JBES 28(4), 2010, Theorem 1). What it rests on
is that they are normal.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from experiments.tables import recipes
from tools import stored_results

LEVEL = 0.01
# Of a method on a data set, to be compared.
_MIN_SEEDS = 3
_ALL = 'all'
_ROW = re.compile(r'([a-z0-9]+)_([a-z]+[0-9]*)_(\w+)')
_UNDECIDED = 'not told apart'


class Cell(NamedTuple):
  """A method on a data set: its recipe, and its accuracy by seed."""

  recipe: recipes.Recipe
  accuracy: pd.Series


class Pair(NamedTuple):
  """Two methods, the better one first.

  Attributes:
    lead: Mean difference over the data sets.
    p: Holm's, over all pairs of the table.
  """

  better: str
  worse: str
  lead: float
  p: float

  @property
  def is_told_apart(self) -> bool:
    return self.p < LEVEL


def cells(table: str, labels: str) -> dict[tuple[str, str], Cell]:
  """Returns the rows of a table with so many labels, by data and method.

  A row without runs has no accuracies.
  """
  ends = _ends(table)
  found = {}
  for row, recipe in recipes.load(table).items():
    data, of, method = _ROW.fullmatch(row).groups()
    if of == labels:
      accuracy = ends[row] if row in ends else pd.Series(dtype=float)
      found[data, method] = Cell(recipe, accuracy)
  return found


def _ends(table) -> pd.Series:
  """Returns the mean of the last evaluations of each run that is stored."""
  if not (stored_results.RESULTS / f'{table}_curves.csv').exists():
    return pd.Series(dtype=float)
  return stored_results.last(stored_results.curves(table))


def holm(values: Iterable[float]) -> np.ndarray:
  """Returns p values after Holm's correction; one that is missing counts as 1.

  Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.
  """
  p = np.nan_to_num(np.fromiter(values, float), nan=1.0)
  order = np.argsort(p)
  steps = p[order] * np.arange(len(p), 0, -1)
  adjusted = np.empty_like(p)
  adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
  return adjusted


def pairs(accuracy: Mapping[tuple[str, str], pd.Series]) -> list[Pair]:
  """Compares all methods with each other.

  Args:
    accuracy: By data set and method, a value for each seed. A pair is compared
      on the data sets that both methods take; where one of the two lacks seeds
      on one of them, it is not told apart.
  """
  methods = list(dict.fromkeys(method for _, method in accuracy))
  names = list(itertools.combinations(methods, 2))
  leads = [_leads(accuracy, *pair) for pair in names]
  adjusted = holm(map(_p_value, leads))
  return [
    Pair(*(pair if lead.mean() >= 0 else pair[::-1]), abs(lead.mean()), p)
    for pair, lead, p in zip(names, leads, adjusted, strict=True)
  ]


def _leads(accuracy, one, other) -> np.ndarray:
  """Returns the mean lead on each data set, NaN where there are few seeds."""
  leads = []
  for data in dict.fromkeys(data for data, _ in accuracy):
    if {(data, one), (data, other)} <= accuracy.keys():
      by_seed = (accuracy[data, one] - accuracy[data, other]).dropna()
      enough = len(by_seed) >= _MIN_SEEDS
      leads.append(by_seed.mean() if enough else np.nan)
  return np.array(leads)


def _p_value(leads) -> float:
  if len(leads) < 2 or np.isnan(leads).any():
    return np.nan
  return stats.ttest_1samp(leads, 0).pvalue


def rank(method: str, compared: Iterable[Pair], of: int) -> str:
  """Returns the ranks of `of` methods that one may have: 2, or 1 to 3.

  The methods that are told apart from it as better and as worse decide.
  """
  apart = [pair for pair in compared if pair.is_told_apart]
  best = 1 + sum(pair.worse == method for pair in apart)
  last = of - sum(pair.better == method for pair in apart)
  if (best, last) == (1, of):
    return _UNDECIDED
  return str(best) if best == last else f'{best} to {last}'


def leaderboard(table: str, labels: str) -> str:
  """Returns a leaderboard as Markdown: a row for each method.

  Costs are those of a round with all its clients, on the data sets that were
  run, from the least to the greatest.
  """
  found = cells(table, labels)
  compared = pairs({key: cell.accuracy for key, cell in found.items()})
  data = list(dict.fromkeys(data for data, _ in found))
  methods = list(dict.fromkeys(method for _, method in found))
  costs = _costs(table)

  def row(name, method, of):
    own = [of.get((each, method)) for each in data]
    # What is not run, or is a bound, has none.
    has_rank = of is found and all(
      cell is None or len(cell.accuracy) >= _MIN_SEEDS for cell in own
    )
    place = rank(method, compared, len(methods)) if has_rank else ''
    return [name, *map(_accuracy, own), place, *_reaches(costs, own)]

  bounds = cells(table, _ALL)
  rows = [row(f'`{method}`', method, found) for method in methods]
  rows += [
    row(f'`{method}`, all labels', method, bounds)
    for method in dict.fromkeys(method for _, method in bounds)
  ]
  header = ['method', *data, 'rank', 's per round', 'MB per round']
  return stored_results.table(header, rows)


def _accuracy(cell) -> str:
  if cell is None:
    return 'does not apply'
  seeds = len(cell.accuracy)
  if seeds == 0:
    return 'not run'
  text = stored_results.plus_minus(cell.accuracy)
  return (
    text if seeds >= _MIN_SEEDS else f'{text} ({seeds} of {_MIN_SEEDS} seeds)'
  )


def _costs(table) -> pd.DataFrame | None:
  """Returns what a round cost by row, as `TABLE.md` says it."""
  if not (stored_results.RESULTS / f'{table}.md').exists():
    return None
  runs = stored_results.stored(f'{table}.md', 'Single runs:')
  return runs.select_dtypes('number').groupby(level=0).mean()


def _reaches(costs, own) -> tuple[str, str]:
  """Returns seconds and megabytes of a round."""
  run = [cell.recipe for cell in own if cell is not None and len(cell.accuracy)]
  if not run:
    return '', ''
  rows = costs.loc[[recipe.row for recipe in run]].fillna(0)
  sent = rows[['bytes down', 'bytes up']].sum(axis=1)
  clients = [recipe.flags().get('clients_per_round', 0) for recipe in run]
  return _reach(rows['s per round'], '.2f'), _reach(sent * clients / 1e6, '.1f')


def _reach(figures, form) -> str:
  ends = (format(end, form) for end in (figures.min(), figures.max()))
  return ' to '.join(dict.fromkeys(ends))


def told_apart(table: str, labels: str) -> str:
  """Returns in words which pairs are told apart, or how many are not."""
  found = cells(table, labels)
  compared = pairs({key: cell.accuracy for key, cell in found.items()})
  apart = [
    f'`{pair.better}` above `{pair.worse}` '
    f'({stored_results.signed(pair.lead)}, p = {pair.p:.2g})'
    for pair in compared
    if pair.is_told_apart
  ]
  return '; '.join(apart) or f'none of {len(compared)} pairs'


def runs_done(table: str) -> tuple[int, int]:
  """Returns how many runs of a table are stored, and how many there are."""
  rows = recipes.load(table).values()
  return len(_ends(table)), sum(len(recipe.seeds) for recipe in rows)


def least_lead(data_sets: int, methods: int) -> float:
  """Returns the least lead that the first pair of Holm's order can be told by.

  It is in units of the standard deviation of the differences between data sets.
  """
  level = LEVEL / (methods * (methods - 1) / 2)
  return stats.t.isf(level / 2, data_sets - 1) / np.sqrt(data_sets)


# What expressions on pages may use (`tools.page_figures`).
NAMES = {
  function.__name__: function
  for function in (leaderboard, told_apart, runs_done, least_lead)
}
