"""The user's own tables: train.csv and test.csv, or .parquet, a row an example.

Beside `label` and `client_id` (optional), columns are features. Numbers are
standardised by their mean and deviation in train; an empty cell is the mean.
Columns of words become one feature, 1 or 0, for each word of train.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from datasets.files import npz_files
from datasets.sources.own import rows, tables
from datasets.sources.own.rows import CLIENT, SERVER, TRAIN, is_missing, some
from datasets.sources.own.tables import Table
from datasets.sources.source import Source

# A column of more words looks like names or free text.
_MOST_WORDS = 100
# These may be features, or clients.
_MAY_OWN = ('group', 'groups', 'account', 'household', 'facility', 'worker')
# Steps of float32 in a standard deviation of a column, at least.
_FEWEST_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Encoding:
  """How rows become vectors of features: numbers, then words, by column names.

  Attributes:
    numbers: For each column of numbers its mean, the value of an empty cell.
    words: For each column of words, the words, in the order of the features.
    ranges: For each column of numbers, the least and the largest one.
    facts: What was understood of each column, one sentence each.
    notes: What is odd about the columns, one sentence each.
  """

  numbers: Mapping[str, float]
  words: Mapping[str, Sequence[str]]
  ranges: Mapping[str, Sequence[float]]
  facts: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()

  @classmethod
  def of(cls, table: Table, names: Iterable[str]) -> 'Encoding':
    """Returns the encoding of the features `names` of a training table."""
    numbers, words, ranges, facts, notes = {}, {}, {}, [], []
    for name in sorted(names):
      field = f'column {name!r}'
      if name.lower() in _MAY_OWN and CLIENT not in table.columns:
        notes.append(
          f'{table.path}: {field}: call it {CLIENT} if it says who owns a row.'
        )
      if name.lower().startswith('unnamed'):
        notes.append(f'{table.path}: {field}: leave row numbers out.')
      values = tables.numbers(table, name)
      if values is None:
        cells, index = table.distinct(name)
        found = sorted(cells[:-1])
        if len(found) > _MOST_WORDS:
          raise table.wrong(
            name,
            f'{len(found):,} different words such as {found[0]!r}',
            f'a column of words may have {_MOST_WORDS}: if these are numbers, '
            'remove what is none; if they are names, leave the column out; if '
            "they are texts, call it 'text' and give --dataset=text",
          )
        words[name] = tuple(found)
        notes += rows.alike(f'{table.path}: {field}: words', found)
        length = np.median([len(word.split()) for word in found])
        if len(found) > len(table) / 2 and length > 2:
          notes.append(
            f'{table.path}: {field}: {len(found)} texts in {len(table):,} rows '
            "count as words: call it 'text', and give --dataset=text."
          )
        kind = f'{len(found)} words ({some(found, 3)})'
        if marks := [word for word in found if is_missing(word)]:
          kind += f', where {some(marks)} counts as a word'
        missing = np.count_nonzero(index == len(cells) - 1)
      else:
        known = np.sort(values[~np.isnan(values)])
        missing = len(values) - len(known)
        if not len(known):
          raise table.wrong(name, 'no value at all', 'leave the column out')
        finest = np.spacing(np.float32(np.abs(known).max()))
        if 0 < known.std() < _FEWEST_STEPS * finest:
          raise table.wrong(
            name,
            f'numbers around {known.mean():g} that differ by little',
            'float32 does not tell them apart: subtract a constant in all '
            'files',
          )
        # The same in whatever order the rows are.
        numbers[name] = float(known.mean())
        ranges[name] = (float(known[0]), float(known[-1]))
        notes += [f'{table.path}: {field}: {n}' for n in _odd_numbers(known)]
        kind = f'numbers from {known[0]:g} to {known[-1]:g}'
      if missing:
        kind += f', {missing / len(table):.1%} missing'
      facts.append(f'{field}: {kind}.')
    if not numbers and not words:
      raise ValueError(
        f'{table.path} has no column of features beside label and client_id: '
        'add some.'
      )
    return cls(numbers, words, ranges, tuple(facts), tuple(notes))

  @property
  def columns(self) -> tuple[int, ...]:
    """For each feature the number of its column, F integers."""
    sizes = [1] * len(self.numbers) + [len(w) for w in self.words.values()]
    return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())

  def encode(self, table: Table, beside: Iterable[str] = ()) -> np.ndarray:
    """Returns the features, `float32 [N, F]`; columns `beside` are none."""
    names, found = {*self.numbers, *self.words}, {*table.columns} - {*beside}
    for more, what in (
      (names - found, 'a column that is missing'),
      (found - names, 'a column that is unknown to the training file'),
    ):
      if more:
        raise table.wrong(min(more), what, 'give the same columns in all files')
    parts = []
    for name, mean in self.numbers.items():
      values = tables.numbers(table, name, must=True)
      parts.append(np.where(np.isnan(values), mean, values)[:, np.newaxis])
    for name, words in self.words.items():
      cells, index = table.distinct(name)
      cells = np.array(cells, object)[:, np.newaxis]
      parts.append((cells == np.array(words, object))[index])
    return np.concatenate(parts, axis=1).astype(np.float32)

  def unusual(self, table: Table) -> list[list[str]]:
    """Says for each row which words are unknown, and which numbers far off."""
    said = [[] for _ in range(len(table))]
    for name, (low, high) in self.ranges.items():
      values, width = tables.numbers(table, name, must=True), high - low
      far = (values < low - width) | (values > high + width)
      ends = f'{low:g} to {high:g}'
      for row in np.flatnonzero(far):
        said[row].append(f'{name}={values[row]:g} is far from {ends}')
    for name, words in self.words.items():
      cells, index = table.distinct(name)
      known = {None, *words}
      unknown = np.array([cell not in known for cell in cells])
      for row in np.flatnonzero(unknown[index]):
        said[row].append(f'{name}={cells[index[row]]} is unknown')
    return said


def _odd_numbers(known: np.ndarray) -> Iterator[str]:
  """Says where sorted numbers may stand for something else."""
  distinct, counts = np.unique(known, return_counts=True)
  if len(distinct) == len(known) > 2 and (np.diff(known) == 1).all():
    yield 'it numbers the rows: leave it out.'
  if len(distinct) < 4:
    return
  for end, rest in ((0, distinct[1:]), (-1, distinct[:-1])):
    gap = abs(distinct[end] - (rest[0] if end == 0 else rest[-1]))
    if counts[end] > 1 and gap > rest[-1] - rest[0]:
      yield (
        f'{counts[end]:,} cells have {distinct[end]:g}, far from all others: '
        'leave them empty if that means that the value is missing.'
      )


def _moments(
  examples: np.ndarray, num_numbers: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns what standardises features; those of words stay 0 and 1."""
  # The same in whatever order the rows are.
  values = np.sort(examples[:, :num_numbers].astype(np.float64), axis=0)
  stddev = values.std(axis=0)
  # A constant column becomes 0, and does no harm.
  stddev[stddev == 0] = 1.0
  rest = examples.shape[1] - num_numbers
  return (
    (*values.mean(axis=0).tolist(), *[0.0] * rest),
    (*stddev.tolist(), *[1.0] * rest),
  )


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the tables; a training row may lack a label (`UNKNOWN`)."""
  paths = tables.paths_of('table', data_dir)
  found, rows_of = tables.rows_of(paths)
  labelled = rows.read(rows_of)
  beside = (tables.LABEL, CLIENT)
  encoding = Encoding.of(
    found[TRAIN], found[TRAIN].columns.keys() - set(beside)
  )
  examples = {
    name: encoding.encode(table, beside) for name, table in found.items()
  }
  mean, stddev = _moments(examples[TRAIN], len(encoding.numbers))
  return labelled.source(
    'tables',
    data_dir,
    examples,
    name='table',
    version=f'table-{npz_files.digest(paths.values())}',
    mean=mean,
    stddev=stddev,
    columns=encoding.columns,
    notes=(
      *encoding.notes,
      *_unusual(encoding, found),
      *rows.not_read(data_dir, paths.values()),
    ),
    facts=encoding.facts,
    preprocessing={
      'kind': 'table',
      'numbers': dict(encoding.numbers),
      'words': {name: list(words) for name, words in encoding.words.items()},
      'ranges': {name: list(ends) for name, ends in encoding.ranges.items()},
    },
  )


def _unusual(encoding, found):
  """Names values of the other files that the training file lacks."""
  for split, table in found.items():
    if split == TRAIN:
      continue
    said = [one for one in encoding.unusual(table) if one]
    if said:
      yield (
        f'{table.path}: {len(said):,} of {len(table):,} rows have values that '
        f'{TRAIN} lacks, such as {said[0][0]}.'
      )


def _decode(path, input_shape, preprocessing):
  del input_shape
  table = tables.read(path)
  encoding = Encoding(
    *(preprocessing[name] for name in ('numbers', 'words', 'ranges'))
  )
  examples = encoding.encode(table, (tables.LABEL, CLIENT))
  return examples, ['; '.join(one) for one in encoding.unusual(table)]


SPEC = rows.spec(
  tables.count_owners,
  functools.partial(tables.count_rows, SERVER),
  name='table',
  description='your own rows of numbers and words, <data_dir>/train.csv and '
  'test.csv, or .parquet',
  builder=load,
  check_files=functools.partial(tables.paths_of, 'table'),
  form='vectors',
  signs=tables.SIGNS,
  endings=tables.ENDINGS,
  decode=_decode,
)
