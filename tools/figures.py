"""What the expressions on pages may use (`tools.page_figures`).

Values that a run has for each of its seeds are a series; their mean is what is
written where nothing else is said.
"""

import io
import json
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd
from scipy import stats

from experiments.reporting import claims, stored_curves
from experiments.tables import seeds
from tff_ssl.algorithms import PROCESSES


def student(values: pd.Series) -> seeds.Spread:
  """Returns mean, deviation and Student's 95% interval over the seeds."""
  return seeds.spread(values.dropna())


def as_text(value: object) -> str:
  """Returns text as it is, 1,234, or the mean of accuracies: .806."""
  if isinstance(value, str):
    return value
  if isinstance(value, numbers.Integral):
    return f'{value:,}'
  return stored_curves.share(value)


def lead(differences: pd.Series) -> str:
  """Returns mean and interval: +.078 (+.041 to +.115)."""
  spread = student(differences)
  return stored_curves.lead(spread.mean, spread.low, spread.high)


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


def stored(file: str, after: str = '') -> object:
  """Returns what a file of `results/` holds.

  Args:
    file: Its name: of a JSON file; of a CSV file, whose first column names the
      rows; or of a page, of which a table is read likewise.
    after: Words of the page behind which the table is the first.

  Raises:
    ValueError: If the page has no such table.
  """
  path = stored_curves.RESULTS / file
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
  page = stored_curves.RESULTS / f'{recipe.partition(":")[0]}.md'
  commands = re.findall(r'^ {4}python -m .*$', page.read_text('utf-8'), re.M)
  command = next(c for c in commands if f' --recipe={recipe} ' in c)
  return dict(re.findall(r' --(\w+)=(\S*)', command))


NAMES = {
  function.__name__: function
  for function in (
    *(abs, all, any, float, format, int, len, map, max, min, round, range, set),
    *(sorted, str, student, lead, interval, reach, plus_minus, each, cells),
    *(table, stored, flags, stored_curves.last, stored_curves.share),
    *(stored_curves.signed, stats.spearmanr),
  )
} | {
  'curves': stored_curves.read,
  'published': claims.published_figure,
  'pd': pd,
  'PROCESSES': PROCESSES,
}
