"""The user's own tables: `<data_dir>/train.csv` and `<data_dir>/test.csv`.

Parquet files (`train.parquet`) do as well. There may be a validation file, and
a file `server` with the labelled rows of the server. A row is an example:

* `label`: the class, a number or a word; in the training file it may be empty;
* `client_id` (optional): the owner of the row. It is in all files, or in the
  training file alone;
* all other columns are features. Columns of numbers are standardised by their
  mean and standard deviation in the training file, and an empty cell is their
  mean. Columns of words become one feature for each word of the training file,
  1 or 0; of an empty cell or an unknown word all are 0.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
from etils import epy

from datasets.sources import run_profiles
from datasets.sources.source import Source
from datasets.sources.source_spec import SourceSpec
from datasets.sources.tables import table_files
from datasets.sources.tables.table_files import (
  CLIENT,
  LABEL,
  SERVER,
  VALIDATION,
)

# It takes a second to import, which --help does not need.
with epy.lazy_imports():
  import pandas as pd

# A column of more words looks like names or free text.
_MOST_WORDS = 100
# Steps of float32 in a standard deviation of a column, at least.
_FEWEST_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Encoding:
  """How rows become vectors of features.

  Attributes:
    numbers: For each column of numbers, its mean, which stands for an empty
      cell.
    words: For each column of words, the words, in the order of the features.
  """

  numbers: Mapping[str, float]
  words: Mapping[str, tuple[str, ...]]

  @classmethod
  def of(cls, frame: pd.DataFrame, path: str) -> Encoding:
    """Returns the encoding of a training table.

    Args:
      frame: The columns of features.
      path: The file, for messages.

    Raises:
      ValueError: If a column cannot be a feature, or none is left.
    """
    numbers, words = {}, {}
    for name in frame.columns:
      column = frame[name]
      if column.isna().all():
        raise table_files.wrong(
          path, name, 'no value at all', 'leave the column out'
        )
      if pd.api.types.is_numeric_dtype(column):
        values = _numbers(column, path)
        _check_resolution(name, values, path)
        numbers[name] = float(np.nanmean(values))
        continue
      found = sorted({str(value) for value in column.dropna()})
      if len(found) > _MOST_WORDS:
        raise table_files.wrong(
          path,
          name,
          f'{len(found):,} different words such as {found[0]!r}',
          f'a column of words may have {_MOST_WORDS}: if these are numbers, '
          'remove what is none; if they are names, leave the column out',
        )
      words[name] = tuple(found)
    if not numbers and not words:
      raise ValueError(
        f'{path} has no column of features beside {LABEL} and {CLIENT}: add '
        'some.'
      )
    return cls(numbers, words)

  @property
  def columns(self) -> tuple[int, ...]:
    """For each feature the number of its column, F integers."""
    sizes = [1] * len(self.numbers) + [len(w) for w in self.words.values()]
    return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())

  def encode(self, frame: pd.DataFrame, path: str) -> np.ndarray:
    """Returns the features, `float32 [N, F]`, not standardised.

    Args:
      frame: Has the columns of the training table, in any order.
      path: The file, for messages.

    Raises:
      ValueError: If a column is missing or unknown, or has words in the place
        of numbers.
    """
    names = [*self.numbers, *self.words]
    for more, found in (
      (set(names) - set(frame.columns), 'missing'),
      (set(frame.columns) - set(names), 'unknown to the training file'),
    ):
      if more:
        raise table_files.wrong(
          path,
          sorted(more)[0],
          f'a column that is {found}',
          'give the same columns in all files',
        )
    parts = []
    for name, mean in self.numbers.items():
      values = _numbers(frame[name], path)
      parts.append(np.where(np.isnan(values), mean, values)[:, np.newaxis])
    for name, words in self.words.items():
      column = frame[name].map(str, na_action='ignore').to_numpy(object)
      parts.append(column[:, np.newaxis] == np.array(words, object))
    return np.concatenate(parts, axis=1).astype(np.float32)


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the tables.

  Args:
    data_dir: The folder with the files.
    cache_dir: Ignored: the files are read in place.

  Returns:
    The source. Its classes are the labels, numbers in their order or words in
    alphabetical order. A training row may lack a label (`UNKNOWN`).

  Raises:
    ValueError: If a file is absent or unreadable, or the tables are not as
      described above.
  """
  del cache_dir
  paths = check_files(data_dir)
  frames = table_files.read(paths)
  classes = table_files.classes_of(frames, paths['train'])
  encoding = Encoding.of(features_of(frames['train']), paths['train'])
  examples = {
    split: encoding.encode(features_of(frame), paths[split])
    for split, frame in frames.items()
  }
  splits = table_files.splits_of(frames, paths, classes, examples)
  mean, stddev = _moments(splits['train'].images, len(encoding.numbers))
  return Source(
    name='table',
    version=f'table-{table_files.digest(paths.values())}',
    title=table_files.title(
      'tables', data_dir, {name: s.labels for name, s in splits.items()}
    ),
    train=splits['train'].followed_by(splits.get(SERVER)),
    test=splits['test'],
    validation=splits.get(VALIDATION),
    num_classes=len(classes),
    names=tuple(map(str, classes)),
    mean=mean,
    stddev=stddev,
    columns=encoding.columns,
    background=0,
    mirrorable=False,
    num_server=len(frames.get(SERVER, ())),
    preprocessing={
      'kind': 'table',
      'numbers': dict(encoding.numbers),
      'words': {name: list(found) for name, found in encoding.words.items()},
    },
  )


def check_files(data_dir: str | None) -> dict[str, str]:
  """Returns the files by split after checking that they exist.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If a training or test file is absent, or there are two.
  """
  return table_files.check_files('table', data_dir)


def features_of(frame: pd.DataFrame) -> pd.DataFrame:
  """Returns the columns of features.

  Args:
    frame: A table.
  """
  return frame[frame.columns.difference([LABEL, CLIENT], sort=False)]


def _numbers(column: pd.Series, path: str) -> np.ndarray:
  """Returns a column of numbers, `float64 [N]`, NaN where a cell is empty."""
  values = pd.to_numeric(column, errors='coerce').to_numpy(
    np.float64, na_value=np.nan
  )
  words = column[np.isnan(values) & column.notna()]
  if len(words):
    raise table_files.wrong(
      path,
      column.name,
      f'{words.iloc[0]!r}',
      'the training file has numbers there',
    )
  with np.errstate(over='ignore'):
    is_infinite = np.isinf(values.astype(np.float32))
  if is_infinite.any():
    raise table_files.wrong(
      path, column.name, 'an infinite number', 'leave the cell empty'
    )
  return values


def _check_resolution(name: str, values: np.ndarray, path: str) -> None:
  """Refuses numbers that differ by less than float32 tells apart."""
  finest = np.spacing(np.float32(np.nanmax(np.abs(values))))
  if 0 < np.nanstd(values) < _FEWEST_STEPS * finest:
    raise table_files.wrong(
      path,
      name,
      f'numbers around {np.nanmean(values):g} that differ by little',
      'float32 does not tell them apart: subtract a constant in all files',
    )


def _moments(examples: np.ndarray, num_numbers: int):
  """Returns what standardises features; those of words stay 0 and 1."""
  values = examples[:, :num_numbers].astype(np.float64)
  stddev = values.std(axis=0)
  # A constant column becomes 0, and does no harm.
  stddev[stddev == 0] = 1.0
  rest = examples.shape[1] - num_numbers
  return (
    (*values.mean(axis=0).tolist(), *[0.0] * rest),
    (*stddev.tolist(), *[1.0] * rest),
  )


SPEC = SourceSpec(
  name='table',
  description='your own rows of numbers and words, <data_dir>/train.csv and '
  'test.csv, or .parquet',
  load=load,
  check_files=check_files,
  form='vectors',
  has_native_split=True,
  may_lack_labels=True,
  is_of_user=True,
  defaults=functools.partial(table_files.defaults_of, run_profiles.OWN_TABLE),
)
