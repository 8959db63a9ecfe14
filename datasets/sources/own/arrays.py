"""A user's npz files: labels, owners and names of classes beside examples.

Whatever the examples are, `labels` are integers or strings `[N]`, of which -1
in train.npz is none; `client_ids` are strings or integers `[N]`, and
`class_names` a string for each class. Other arrays are not read, and a run
names them.
"""

import dataclasses
import difflib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from datasets.files import npz_files
from datasets.files.npz_files import Headers, NpzFile
from datasets.sources.own import rows as rows_lib
from datasets.sources.own.rows import SERVER, SPLITS, TEST, TRAIN, Rows
from datasets.sources.source import UNKNOWN, SourceSpec

OWNERS = 'client_ids'
_OPTIONAL = (OWNERS, 'class_names')
REMEDY = 'write it with np.savez'


@dataclasses.dataclass(frozen=True)
class Arrays:
  """How npz files hold examples of one kind.

  Attributes:
    dataset: The name of the data set.
    key: The array of the examples, such as 'images'.
    one: What messages call one of them.
    check: Takes a file, and the shape and type of that array by its header;
      refuses others.
    convert: Takes the path and the array; returns what a `Split` holds.
  """

  dataset: str
  key: str
  one: str
  check: Callable[[NpzFile, tuple[int, ...], np.dtype], None]
  convert: Callable[[str, np.ndarray], np.ndarray]

  def files(self, data_dir: str | None) -> dict[str, NpzFile]:
    """Returns the files by split after checking that needed ones exist."""
    npz_files.check_present(self.dataset, data_dir, ['train.npz', 'test.npz'])
    files = {split: _file(split, data_dir) for split in SPLITS}
    return {
      split: file
      for split, file in files.items()
      if split in (TRAIN, TEST) or os.path.lexists(file.path)
    }

  def read(
    self, data_dir: str | None
  ) -> tuple[rows_lib.Labelled, dict[str, np.ndarray], dict[str, Any]]:
    """Returns what is known of labels, examples by split, fields of `Source`.

    A training example may lack a label.
    """
    files = self.files(data_dir)
    npz_files.check_sizes(list(files.values()))
    # Beside server.npz, no label need be in train.npz.
    arrays = {
      split: file.read(
        (self.key, *([] if split == TRAIN and SERVER in files else ['labels'])),
        functools.partial(self.check_headers, file),
        optional=self._keys,
        ignores_others=True,
      )
      for split, file in files.items()
    }
    names = _class_names(files, arrays)
    rows = {
      split: self._rows(file, arrays[split], names)
      for split, file in files.items()
    }
    labelled = rows_lib.read(rows, names)
    examples = {
      split: self.convert(file.path, arrays[split][self.key])
      for split, file in files.items()
    }
    for split, file in files.items():
      self.check_same_shape(examples[TRAIN], examples[split], file)
    digest = npz_files.digest(file.path for file in files.values())
    beside = rows_lib.not_read(data_dir, [f'{name}.npz' for name in files])
    return (
      labelled,
      examples,
      {
        'name': self.dataset,
        'version': f'npz-{digest}',
        'notes': (*self._not_read(files), *beside),
      },
    )

  def _rows(self, file, arrays, names) -> Rows:
    labels = arrays.get('labels')
    written = [None] * len(arrays[self.key])
    if labels is not None:
      written = labels_of(file, labels, self.one, names)
    return Rows(
      file.path,
      arrays[self.key],
      written,
      texts(file, OWNERS, arrays[OWNERS]) if OWNERS in arrays else None,
      place=lambda row: f'{self.one} {row}',
      # Beside other labels.
      no_label='write -1'
      if labels is not None and labels.dtype.kind in 'iu'
      else 'leave the text empty',
      label_field='labels',
      owner_field=OWNERS,
    )

  @property
  def _keys(self) -> tuple[str, ...]:
    return (self.key, 'labels', *_OPTIONAL)

  def check_headers(self, file: NpzFile, headers: Headers) -> None:
    """Checks shapes and types of examples, labels, owners, names of classes."""
    shape, dtype = headers[self.key]
    self.check(file, shape, dtype)
    for key in ('labels', OWNERS, rows_lib.CLIENT, 'set_id'):
      if key not in headers:
        continue
      own_shape, own_dtype = headers[key]
      if own_dtype.kind not in 'iuU':
        raise file.wrong(key, own_dtype, 'give integers or unicode strings')
      if own_shape != shape[:1]:
        remedy = f'there are {shape[0]} {self.key}'
        if key == 'labels' and own_shape[:1] == shape[:1]:
          is_column = own_shape[1:] == (1,)
          remedy = f'give a number for each {self.one}: ' + (
            'labels.ravel()' if is_column else 'labels.argmax(axis=1)'
          )
        raise file.wrong(key, own_shape, remedy)
    if 'class_names' in headers:
      names_shape, names_dtype = headers['class_names']
      if names_dtype.kind != 'U' or len(names_shape) != 1:
        raise file.wrong(
          'class_names',
          f'{names_dtype} {list(names_shape)}',
          'give unicode strings, one for each class',
        )

  def check_same_shape(
    self, train: np.ndarray, examples: np.ndarray, file: NpzFile
  ) -> None:
    """Checks that examples of another split have the shape of training ones."""
    if examples.shape[1:] != train.shape[1:]:
      raise file.wrong(
        self.key,
        f'{self.key} of {list(examples.shape[1:])}, and of '
        f'{list(train.shape[1:])} in train.npz',
        f'give all {self.key} one shape',
      )

  def _not_read(self, files: Mapping[str, NpzFile]) -> Iterator[str]:
    """Names the arrays that are not read; a slip of the pen is refused."""
    known = self._keys
    for split, file in files.items():
      others = sorted(file.listed() - set(known))
      for key in others:
        if near := difflib.get_close_matches(key, known, n=1, cutoff=0.85):
          raise file.wrong(key, 'a key that is not read', f'call it {near[0]}')
      if split == TRAIN and OWNERS not in file.listed():
        rows_lib.check_no_owners(file.path, others, known, OWNERS)
      if others:
        yield f'{file.path}: not read are {", ".join(others)}.'

  def spec(self, **fields) -> SourceSpec:
    """Returns the record of the data set."""
    return rows_lib.spec(
      # 2, which is several, where train.npz says who owns examples.
      lambda folder: 2 * (OWNERS in _file(TRAIN, folder).listed()),
      lambda folder: _file(SERVER, folder).length('labels'),
      name=self.dataset,
      check_files=self.files,
      signs=(('train.npz',),),
      **fields,
    )


def _file(split: str, folder: str) -> NpzFile:
  return NpzFile(os.path.join(folder, f'{split}.npz'), REMEDY)


def texts(file: NpzFile, key: str, values: np.ndarray) -> list[str]:
  """Returns an array `[N]` of strings, which must be unicode, or integers."""
  unique, index = np.unique(values, return_inverse=True)
  if unique.dtype.kind == 'U':
    native = unique.astype(unique.dtype.newbyteorder('='), copy=False)
    codes = np.frombuffer(native.tobytes(), np.uint32)
    # NumPy and Python accept such codes without an error.
    if np.any(((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)):
      raise file.wrong(key, 'a string that is not unicode', 'repair it')
  found = [str(one) for one in unique.tolist()]
  return [found[i] for i in index]


def labels_of(
  file: NpzFile, labels: np.ndarray | None, one: str, names
) -> list[str | None]:
  """Returns labels as text, those of `names` where classes have some.

  `one` is what messages call an example.
  """
  if labels.dtype.kind == 'U':
    written = texts(file, 'labels', labels)
    found = [
      n or None for n in map(functools.cache(rows_lib.class_of), written)
    ]
    if unknown := set(found) - {None, *names} if names else ():
      raise file.wrong(
        'labels',
        f'{min(unknown)!r} ({one} {found.index(min(unknown))}), no name of a '
        f'class ({rows_lib.some(names)})',
        'write one of these, or give the numbers of classes as integers',
      )
    return found
  low, high = labels.min(), labels.max()
  if labels.dtype.kind == 'u' and high == np.iinfo(labels.dtype).max:
    raise file.wrong(
      'labels',
      f'{high} in {np.count_nonzero(labels == high):,} of {len(labels):,}',
      f'that is what {UNKNOWN} becomes in {labels.dtype}: store them as int64',
    )
  most = None if names is None else len(names) - 1
  if low < UNKNOWN or (most is not None and high > most):
    raise file.wrong(
      'labels',
      f'{low}..{high}',
      f'number the classes from 0{"" if most is None else f" to {most}"}, and '
      f'mark training {one}s without a label by {UNKNOWN}',
    )
  name = {UNKNOWN: None}
  for number in np.unique(labels).tolist():
    if number != UNKNOWN:
      name[number] = str(number) if names is None else names[number]
  return [name[number] for number in labels.tolist()]


def _class_names(files, arrays) -> list[str] | None:
  """Returns the names of the classes, the same in all files that have some."""
  names = None
  for split, file in files.items():
    if 'class_names' not in arrays[split]:
      continue
    given = texts(file, 'class_names', arrays[split]['class_names'])
    own = [rows_lib.class_of(name) for name in given]
    if len({*own} - {''}) < len(own):
      raise file.wrong(
        'class_names',
        f'{len(own)}, {len({*own} - {""})} of them different names',
        'give each class a name of its own, in their order',
      )
    if names not in (None, own):
      raise file.wrong(
        'class_names',
        f'{rows_lib.some(own)}, where another file has {rows_lib.some(names)}',
        'number the labels of all files by the same names',
      )
    names = own
  return names
