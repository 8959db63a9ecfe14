"""A user's tables: CSV or Parquet files with a label in each row.

A folder holds `train.csv` and `test.csv`, or the same as `.parquet`. There may
be `validation.csv`, and `server.csv` with the labelled rows of the server,
which then takes none from the clients. The column `label` is the class, a
number or a word, and empty where it is unknown; `client_id`, if there is one,
is the owner of the row.
"""

from __future__ import annotations

import csv
import hashlib
import os
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psutil
from etils import epy

from datasets.sources import run_profiles
from datasets.sources.source import UNKNOWN, Split

# It takes a second to import, which --help does not need.
with epy.lazy_imports():
  import pandas as pd
  from pyarrow import parquet

LABEL, CLIENT = 'label', 'client_id'
VALIDATION, SERVER = 'validation', 'server'
_SPLITS = ('train', 'test')
_KINDS = ('csv', 'parquet')
# What readers raise where bytes make no sense to them: those of Parquet files
# also trust what these say of data frames.
_UNREADABLE = (
  *(OSError, ValueError, LookupError, TypeError, AttributeError),
  *(csv.Error, RuntimeError),
)


def check_files(dataset: str, data_dir: str | None) -> dict[str, str]:
  """Returns the files by split after checking that they exist.

  Args:
    dataset: The name of the data set.
    data_dir: The folder, or `None`.

  Raises:
    ValueError: If a training or test file is absent, or there are two.
  """
  if data_dir is None:
    raise ValueError(
      f'dataset={dataset!r} needs data_dir: the folder that holds train.csv '
      'and test.csv.'
    )
  paths = {}
  for split in (*_SPLITS, SERVER, VALIDATION):
    path = _path(data_dir, split)
    if path is not None:
      paths[split] = path
    elif split in _SPLITS:
      raise ValueError(
        f'{os.path.join(data_dir, split)}.csv: no such file; data_dir must '
        'hold train.csv and test.csv, or the same as .parquet.'
      )
  return paths


def count_clients(data_dir: str | None) -> int:
  """Returns the number of owners that the training table names.

  Without a usable file it is 0; who reads the file then reports the error.

  Args:
    data_dir: The folder with the files, or `None`.
  """
  try:
    path = _path(os.path.expanduser(data_dir or ''), 'train')
    return 0 if path is None else _read(path, [CLIENT])[CLIENT].nunique()
  except ValueError:
    return 0


def has_column(data_dir: str, name: str) -> bool:
  """Returns whether the training table has a column.

  Args:
    data_dir: The folder with the files.
    name: Of the column.
  """
  try:
    path = _path(data_dir, 'train')
    return path is not None and _read(path, [name]) is not None
  except ValueError:
    return False


def count_server(data_dir: str | None) -> int:
  """Returns the number of the server's own rows; 0 without a usable file.

  Args:
    data_dir: The folder with the files, or `None`.
  """
  try:
    path = _path(os.path.expanduser(data_dir or ''), SERVER)
    return 0 if path is None else len(_read(path, [LABEL]))
  except ValueError:
    return 0


def read(
  paths: dict[str, str], texts: Sequence[str] = ()
) -> dict[str, pd.DataFrame]:
  """Reads and checks the tables.

  Args:
    paths: The files by split, from `check_files`.
    texts: Columns that hold words, also where they look like numbers.

  Returns:
    The tables by split. Ids and labels are text where the file is CSV.

  Raises:
    ValueError: If a file cannot be read, has no label or row, or its owners are
      not as described above.
  """
  # Words that look like numbers or truth values stay words where the training
  # file has words. It is read again, so that all files hold what is written.
  for path in paths.values():
    _check_cells(path)
  words = dict.fromkeys(texts, str)
  first = _read(paths['train'], words=words)
  words |= dict.fromkeys(first.select_dtypes(object), str)
  train = _read(paths['train'], words=words)
  if SERVER in paths and LABEL not in train:
    nobodys = pd.Series([None] * len(train), dtype=object)
    train = train.assign(**{LABEL: nobodys})
  frames = {
    split: train if split == 'train' else _read(path, words=words)
    for split, path in paths.items()
  }
  for split, frame in frames.items():
    _check_frame(frame, paths[split], frames['train'])
  return frames


def read_one(path: str, words: Mapping[str, type]) -> pd.DataFrame:
  """Reads a table that needs no label.

  Args:
    path: The file.
    words: `str` for each column that holds words, also where they look like
      numbers.

  Raises:
    ValueError: If the file cannot be read, or has no row.
  """
  _check_cells(path)
  frame = _read(path, words=words)
  if not len(frame):
    raise ValueError(f'{path} has no row: add some.')
  return frame


def classes_of(
  frames: Mapping[str, pd.DataFrame], path: str
) -> list[int | str]:
  """Returns the classes: whole numbers in their order, or words in theirs.

  Args:
    frames: The tables by split; the training rows and the server's count.
    path: The training file, for messages.

  Raises:
    ValueError: If there are fewer than two.
  """
  found = {
    _class(value)
    for split in ('train', SERVER)
    if split in frames
    for value in frames[split][LABEL].dropna()
  }
  if not found:
    raise wrong(path, LABEL, 'only empty cells', 'give the labels of some rows')
  if len(found) == 1:
    raise wrong(
      path, LABEL, f'one single class, {found.pop()!r}', 'give two or more'
    )
  numbers = all(isinstance(value, int) for value in found)
  return sorted(found) if numbers else sorted(found, key=str)


def labels_of(
  frame: pd.DataFrame,
  classes: Sequence[int | str],
  path: str,
  *,
  may_lack: bool,
) -> np.ndarray:
  """Returns the number of each row's class, `int32 [N]`, or `UNKNOWN`.

  Args:
    frame: A table.
    classes: From `classes_of`.
    path: The file, for messages.
    may_lack: Whether some labels may be unknown.

  Raises:
    ValueError: If a class is not among them, or a label is missing.
  """
  number = {name: index for index, name in enumerate(classes)}
  labels = np.full(len(frame), UNKNOWN, np.int32)
  for row, value in enumerate(frame[LABEL]):
    if pd.isna(value):
      continue
    if _class(value) not in number:
      raise wrong(
        path,
        LABEL,
        f'{_class(value)!r}, unseen in the training file',
        'each class needs labelled training rows',
      )
    labels[row] = number[_class(value)]
  unlabelled = int((labels == UNKNOWN).sum())
  if unlabelled and not may_lack:
    raise wrong(
      path,
      LABEL,
      f'{unlabelled:,} of {len(labels):,} empty',
      'accuracy needs the label of each row here: leave out those without '
      'one, or move them to the training file',
    )
  return labels


def splits_of(
  frames: Mapping[str, pd.DataFrame],
  paths: Mapping[str, str],
  classes: Sequence[int | str],
  examples: Mapping[str, np.ndarray],
) -> dict[str, Split]:
  """Returns the splits with their labels and owners.

  Args:
    frames: The tables by split.
    paths: Their files, for messages.
    classes: From `classes_of`.
    examples: The examples by split.

  Raises:
    ValueError: As `labels_of`.
  """
  return {
    split: Split(
      examples[split],
      labels_of(frame, classes, paths[split], may_lack=split == 'train'),
      owners_of(frame),
    )
    for split, frame in frames.items()
  }


def defaults_of(
  profile: Mapping[str, Any], given: Mapping[str, Any]
) -> Mapping[str, Any]:
  """Returns the defaults of tables, as far as the files decide on them.

  Args:
    profile: The defaults of tables that name no owners.
    given: The settings that the user gave.
  """
  folder = given.get('data_dir')
  values = run_profiles.with_owners(profile, count_clients(folder), given)
  return run_profiles.with_server(values, count_server(folder))


def owners_of(frame: pd.DataFrame) -> np.ndarray | None:
  """Returns the owners as strings `[N]`; `None` where the table names none.

  Args:
    frame: A table.
  """
  if CLIENT not in frame:
    return None
  return np.array([str(owner) for owner in frame[CLIENT]], object)


def digest(paths: Iterable[str]) -> str:
  """Returns a short sha256 of the files' names and contents.

  Args:
    paths: The files; their order matters.
  """
  together = hashlib.sha256()
  for path in paths:
    with open(path, 'rb') as stream:
      together.update(os.path.basename(path).encode() + b'\0')
      together.update(hashlib.file_digest(stream, 'sha256').digest())
  return together.hexdigest()[:16]


def title(kind: str, data_dir: str, labels: dict[str, np.ndarray]) -> str:
  """Returns what reports say of the tables.

  Args:
    kind: What is in them, such as 'tables'.
    data_dir: The folder.
    labels: Those of each split.
  """
  sizes = [f'{len(of_split):,} {name}' for name, of_split in labels.items()]
  unlabelled = np.count_nonzero(labels['train'] == UNKNOWN)
  return (
    f'{kind} in {os.path.basename(os.path.abspath(data_dir))}: '
    f'{", ".join(sizes[:-1])} and {sizes[-1]} rows'
    + (
      f'; {unlabelled:,} of the training rows have no label'
      if unlabelled
      else ''
    )
  )


def wrong(path: str, column: str, found: str, remedy: str) -> ValueError:
  """Returns the error about a column.

  Args:
    path: The file.
    column: The column.
    found: What is in it.
    remedy: What to do.
  """
  return ValueError(f'{path}: column {column!r}: found {found}; {remedy}.')


def _path(folder: str, split: str) -> str | None:
  found = [
    path
    for kind in _KINDS
    if os.path.lexists(path := os.path.join(folder, f'{split}.{kind}'))
  ]
  if len(found) > 1:
    raise ValueError(f'{found[0]} and {found[1]} are there: remove one.')
  return found[0] if found else None


def _check_cells(path: str) -> None:
  """Refuses cells of a CSV file that pandas would mend in silence."""
  if not path.lower().endswith('.csv'):
    return
  csv.field_size_limit(sys.maxsize)  # Texts may be long.
  try:
    _check_is_file(path)
    with open(path, newline='', encoding='utf-8-sig') as file:
      flaw = _flaw_of(csv.reader(file))
  except _UNREADABLE as error:
    raise _unreadable(path, error) from error
  if flaw is not None:
    raise ValueError(f'{path}: {flaw}.')


def _flaw_of(lines) -> str | None:
  # pandas passes blank lines over.
  rows = (cells for cells in lines if len(cells) > 1 or ''.join(cells).strip())
  names = next(rows, [])
  if len(set(names)) < len(names):
    return f'two columns of {names[:5]} have one name: rename or remove one'
  for cells in rows:
    line = f'line {lines.line_num}'
    if len(cells) != len(names):
      return (
        f'{line} has {len(cells)} cells under {len(names)} columns: correct '
        'it, and write cells that hold commas in quotes'
      )
    if cells == names:
      return f'{line} repeats the first: give each row once'
    if '\0' in ''.join(cells):
      return f'{line} holds a NUL byte: write the file anew'
  return None


def _check_columns(path: str) -> None:
  """Refuses columns of a Parquet file before their cells take memory."""
  with parquet.ParquetFile(path) as file:
    schema, rows = file.schema_arrow, file.metadata.num_rows
  if len(set(schema.names)) < len(schema.names):
    raise ValueError(
      f'two columns of {schema.names[:5]} have one name: rename or remove one'
    )
  nested = [field.name for field in schema if field.type.num_fields]
  if nested:
    raise ValueError(
      f'the cells of {nested[0]!r} hold lists or tables: leave the column out'
    )
  # A byte may stand for millions of equal cells.
  needed = 8 * rows * len(schema.names)
  free = psutil.virtual_memory().available
  if needed > free:
    raise ValueError(
      f'{rows:,} rows take {needed / 1e9:.3g} GB or more, and '
      f'{free / 1e9:.3g} GB of memory are free: give fewer'
    )


def _check_is_file(path):
  if not os.path.isfile(path):  # Who opens a pipe waits for ever.
    raise OSError('no such file')


def _unreadable(path, error) -> ValueError:
  reason = ' '.join(str(error).split()).rstrip('.')
  return ValueError(f'{path} cannot be read as a table: {reason}.')


def _read(
  path: str,
  columns: list[str] | None = None,
  words: Mapping[str, type] = types.MappingProxyType({}),
) -> pd.DataFrame:
  # Ids and labels as they are written: 007 is not 7, and "NA" may be a class.
  try:
    _check_is_file(path)
    if path.lower().endswith('.csv'):
      frame = pd.read_csv(
        path,
        usecols=columns,
        dtype={**words, LABEL: str, CLIENT: str},
        keep_default_na=False,
        na_values=[''],
        encoding='utf-8',
        # Else the type of a column may change from chunk to chunk.
        low_memory=False,
      )
    else:
      _check_columns(path)
      frame = pd.read_parquet(path, columns=columns)
  except _UNREADABLE as error:
    raise _unreadable(path, error) from error
  if LABEL in frame and frame[LABEL].dtype == object:
    # Blanks are no class.
    blank = frame[LABEL].map(str).str.strip() == ''
    frame[LABEL] = frame[LABEL].mask(blank)
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
      raise wrong(
        path,
        CLIENT,
        'here but not in the training file',
        'give it in all files or in the training file alone',
      )
    missing = int(frame[CLIENT].isna().sum())
    if missing:
      raise wrong(
        path, CLIENT, f'{missing:,} empty cells', 'say who owns each row'
      )


def _class(value: Any) -> int | str:
  text = str(value).strip()
  number = text.removesuffix('.0')
  # 007 is a name.
  if number.removeprefix('-').isdecimal() and str(int(number)) == number:
    return int(number)
  return text
