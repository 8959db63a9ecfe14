"""The user's own tables: `<data_dir>/train.csv` and `<data_dir>/test.csv`.

Parquet files (`train.parquet`) do as well, and there may be a validation file.
A row is an example:

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
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epy

from datasets.sources import run_profiles
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.sources.source_spec import SourceSpec

# It takes a second to import, which --help does not need.
with epy.lazy_imports():
  import pandas as pd

LABEL, CLIENT = 'label', 'client_id'
_SPLITS = ('train', 'test')
_VALIDATION = 'validation'
_KINDS = ('csv', 'parquet')
# A column of more words looks like names or free text.
_MOST_WORDS = 100


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
        raise _wrong(path, name, 'no value at all', 'leave the column out')
      if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(np.float64, na_value=np.nan)
        if np.isinf(values).any():
          raise _wrong(path, name, 'an infinite number', 'leave the cell empty')
        numbers[name] = float(np.nanmean(values))
        continue
      found = sorted({str(value) for value in column.dropna()})
      if len(found) > _MOST_WORDS:
        raise _wrong(
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
        raise _wrong(
          path,
          sorted(more)[0],
          f'a column that is {found}',
          'give the same columns in all files',
        )
    parts = []
    for name, mean in self.numbers.items():
      column = frame[name]
      if not pd.api.types.is_numeric_dtype(column) and column.notna().any():
        word = next(v for v in column.dropna() if isinstance(v, str))
        raise _wrong(
          path, name, f'{word!r}', 'the training file has numbers there'
        )
      values = column.to_numpy(np.float64, na_value=np.nan)
      parts.append(np.where(np.isnan(values), mean, values)[:, np.newaxis])
    for name, words in self.words.items():
      column = frame[name].map(str, na_action='ignore').to_numpy(object)
      parts.append(column[:, np.newaxis] == np.array(words, object))
    return np.concatenate(parts, axis=1).astype(np.float32)


def count_clients(data_dir: str | None) -> int:
  """Returns the number of owners that the training table names.

  Without a usable file it is 0; `load` then reports the error.

  Args:
    data_dir: The folder with the files, or `None`.
  """
  try:
    path = _path(os.path.expanduser(data_dir or ''), 'train')
    return 0 if path is None else _read(path, [CLIENT])[CLIENT].nunique()
  except ValueError:
    return 0


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
  frames = {split: _read(path) for split, path in paths.items()}
  train = frames['train']
  for split, frame in frames.items():
    _check_frame(frame, paths[split], train)
  classes = _classes(train[LABEL], paths['train'])
  features = train.columns.difference([LABEL, CLIENT], sort=False)
  encoding = Encoding.of(train[features], paths['train'])
  splits = {
    split: _split(frame, encoding, classes, paths[split], split == 'train')
    for split, frame in frames.items()
  }
  mean, stddev = _moments(splits['train'].images, len(encoding.numbers))
  sizes = [f'{len(split.labels):,} {name}' for name, split in splits.items()]
  unlabelled = np.count_nonzero(splits['train'].labels == UNKNOWN)
  return Source(
    name='table',
    version=f'table-{_digest(paths.values())}',
    title=(
      f'tables in {os.path.basename(os.path.abspath(data_dir))}: '
      f'{", ".join(sizes[:-1])} and {sizes[-1]} rows; {len(features)} columns, '
      f'{len(mean)} features'
    )
    + (
      f'; {unlabelled:,} of the training rows have no label'
      if unlabelled
      else ''
    ),
    train=splits['train'],
    test=splits['test'],
    validation=splits.get(_VALIDATION),
    num_classes=len(classes),
    names=tuple(map(str, classes)),
    mean=mean,
    stddev=stddev,
    columns=encoding.columns,
    background=0,
    mirrorable=False,
  )


def check_files(data_dir: str | None) -> dict[str, str]:
  """Returns the files by split after checking that they exist.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If a training or test file is absent, or there are two.
  """
  if data_dir is None:
    raise ValueError(
      "dataset='table' needs data_dir: the folder that holds train.csv and "
      'test.csv.'
    )
  paths = {}
  for split in (*_SPLITS, _VALIDATION):
    path = _path(data_dir, split)
    if path is not None:
      paths[split] = path
    elif split != _VALIDATION:
      raise ValueError(
        f'{os.path.join(data_dir, split)}.csv: no such file; data_dir must '
        'hold train.csv and test.csv, or the same as .parquet.'
      )
  return paths


def _path(folder: str, split: str) -> str | None:
  found = [
    path
    for kind in _KINDS
    if os.path.lexists(path := os.path.join(folder, f'{split}.{kind}'))
  ]
  if len(found) > 1:
    raise ValueError(f'{found[0]} and {found[1]} are there: remove one.')
  return found[0] if found else None


def _read(path: str, columns: list[str] | None = None) -> pd.DataFrame:
  # Ids and labels as they are written: 007 is not 7, and "NA" may be a class.
  try:
    if path.endswith('.csv'):
      frame = pd.read_csv(
        path,
        usecols=columns,
        dtype={LABEL: str, CLIENT: str},
        keep_default_na=False,
        na_values=[''],
        encoding='utf-8',
      )
    else:
      frame = pd.read_parquet(path, columns=columns)
  except (ValueError, OSError) as error:
    reason = ' '.join(str(error).split())
    raise ValueError(f'{path} cannot be read as a table: {reason}.') from error
  for name in frame.columns:
    if not isinstance(name, str) or name.startswith('Unnamed: '):
      raise ValueError(
        f'{path} has the column {name!r}, which is no name: give each column '
        'a name in the first line.'
      )
  return frame


def _check_frame(frame, path, train) -> None:
  if LABEL not in frame:
    raise ValueError(
      f'{path} has no column {LABEL!r}, but {list(frame.columns)[:5]}: name '
      'the column of the classes so.'
    )
  if not len(frame):
    raise ValueError(f'{path} has no row: add some.')
  if CLIENT in frame:
    if CLIENT not in train:
      raise _wrong(
        path,
        CLIENT,
        'here but not in the training file',
        'give it in all files or in the training file alone',
      )
    missing = int(frame[CLIENT].isna().sum())
    if missing:
      raise _wrong(
        path, CLIENT, f'{missing:,} empty cells', 'say who owns each row'
      )


def _classes(labels: pd.Series, path: str) -> list:
  """Returns the classes in order; whole numbers as integers."""
  found = {_class(value) for value in labels.dropna()}
  if not found:
    raise _wrong(
      path, LABEL, 'only empty cells', 'give the labels of some rows'
    )
  if len(found) == 1:
    raise _wrong(
      path, LABEL, f'one single class, {found.pop()!r}', 'give two or more'
    )
  numbers = all(isinstance(value, int) for value in found)
  return sorted(found) if numbers else sorted(found, key=str)


def _class(value: Any) -> int | str:
  text = str(value).strip()
  number = text.removesuffix('.0')
  # 007 is a name.
  if number.lstrip('-').isdecimal() and str(int(number)) == number:
    return int(number)
  return text


def _split(frame, encoding, classes, path, is_training) -> Split:
  number = {name: index for index, name in enumerate(classes)}
  labels = np.full(len(frame), UNKNOWN, np.int32)
  for row, value in enumerate(frame[LABEL]):
    if pd.isna(value):
      continue
    if _class(value) not in number:
      raise _wrong(
        path,
        LABEL,
        f'{_class(value)!r}, unseen in the training file',
        'each class needs labelled training rows',
      )
    labels[row] = number[_class(value)]
  unlabelled = int((labels == UNKNOWN).sum())
  if unlabelled and not is_training:
    raise _wrong(
      path,
      LABEL,
      f'{unlabelled:,} of {len(labels):,} empty',
      'accuracy needs the label of each row here: leave out those without '
      'one, or move them to the training file',
    )
  owners = None
  if CLIENT in frame:
    owners = np.array([str(owner) for owner in frame[CLIENT]], object)
  features = frame.columns.difference([LABEL, CLIENT], sort=False)
  return Split(encoding.encode(frame[features], path), labels, owners)


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


def _digest(paths) -> str:
  together = hashlib.sha256()
  for path in paths:
    with open(path, 'rb') as stream:
      together.update(os.path.basename(path).encode() + b'\0')
      together.update(hashlib.file_digest(stream, 'sha256').digest())
  return together.hexdigest()[:16]


def _wrong(path: str, column: str, found: str, remedy: str) -> ValueError:
  return ValueError(f'{path}: column {column!r}: found {found}; {remedy}.')


def _defaults(given: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the defaults; if the files name owners, these are the clients."""
  clients = count_clients(given.get('data_dir'))
  if not clients or given.get('partition', 'native') != 'native':
    return run_profiles.OWN_TABLE
  return run_profiles.with_clients(run_profiles.OWN_TABLE, clients)


SPEC = SourceSpec(
  name='table',
  description='your own rows of numbers and words, <data_dir>/train.csv and '
  'test.csv, or .parquet',
  load=load,
  check_files=check_files,
  form='vectors',
  has_native_split=True,
  may_lack_labels=True,
  defaults=_defaults,
)
