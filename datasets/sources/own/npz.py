"""The user's own images: `train.npz`, `test.npz`, maybe `validation`, `server`.

Each file has `images`, `uint8` or floats from 0 to 1, `[N, H, W]` or `[N, H, W,
C]`; `labels`, integers or strings `[N]`, of which -1 in train.npz is none; and
maybe `client_ids`, strings or integers `[N]`, and `class_names`, a string for
each class. Other arrays are not read, and a run names them.
"""

import difflib
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.files import image_files, npz_files
from datasets.files.npz_files import Headers, NpzFile
from datasets.sources.own import rows as rows_lib
from datasets.sources.own.rows import SERVER, SPLITS, TEST, TRAIN, Rows
from datasets.sources.source import UNKNOWN, Source

OWNERS = 'client_ids'
_OPTIONAL = (OWNERS, 'class_names')
_KEYS = ('images', 'labels', *_OPTIONAL)
_REMEDY = 'write it with np.savez'
# Pixels of what was divided by 255, or by 16 and more.
_DARK = 16


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the files; a training image may lack a label (`UNKNOWN`)."""
  files = check_files(data_dir)
  npz_files.check_sizes(list(files.values()))
  # Beside server.npz, no label need be in train.npz.
  arrays = {
    split: file.read(
      ('images', *([] if split == TRAIN and SERVER in files else ['labels'])),
      functools.partial(check_headers, file),
      optional=_KEYS,
      ignores_others=True,
    )
    for split, file in files.items()
  }
  names = _class_names(files, arrays)
  labelled = rows_lib.read(
    {
      split: Rows(
        file.path,
        arrays[split]['images'],
        labels_of(file, arrays[split], names),
        texts(file, OWNERS, arrays[split].get(OWNERS)),
        place=lambda row: f'image {row}',
        no_label=_no_label(arrays[split].get('labels')),
        label_field='labels',
        owner_field=OWNERS,
      )
      for split, file in files.items()
    },
    names,
  )
  images = {
    split: images_of(files[split].path, arrays[split]['images'])
    for split in files
  }
  for split, file in files.items():
    check_same_shape(images[TRAIN], images[split], file)
  return source_of(
    labelled,
    'npz files',
    data_dir,
    files[TRAIN].path,
    images,
    name='npz',
    version=f'npz-{npz_files.digest(file.path for file in files.values())}',
    notes=(
      *_not_read(files),
      *rows_lib.not_read(data_dir, [f'{x}.npz' for x in files]),
    ),
  )


def source_of(
  labelled: rows_lib.Labelled, kind, data_dir, path: str, images, **fields
) -> Source:
  """As `Labelled.source`; what is learnt of colours is what clients see."""
  mean, stddev = npz_files.moments(images[TRAIN], path)
  background = npz_files.background(images[TRAIN])
  fields |= {'mean': mean, 'stddev': stddev, 'background': background}
  return labelled.source(kind, data_dir, images, **fields)


def check_files(data_dir: str | None) -> dict[str, NpzFile]:
  """Returns the files by split after checking that both needed ones exist."""
  npz_files.check_present('npz', data_dir, ['train.npz', 'test.npz'])
  files = {split: _file(split, data_dir) for split in SPLITS}
  return {
    split: file
    for split, file in files.items()
    if split in (TRAIN, TEST) or os.path.lexists(file.path)
  }


def _file(split: str, folder: str) -> NpzFile:
  return NpzFile(os.path.join(folder, f'{split}.npz'), _REMEDY)


def check_headers(file: NpzFile, headers: Headers) -> None:
  """Checks shapes and types of images, labels, owners and names of classes."""
  shape, dtype = headers['images']
  if dtype != np.uint8 and (dtype.kind != 'f' or dtype.itemsize > 8):
    raise file.wrong(
      'images', dtype, 'give uint8 from 0 to 255, or floats from 0 to 1'
    )
  if len(shape) not in (3, 4):
    raise file.wrong('images', shape, 'the shape is [N, H, W] or [N, H, W, C]')
  if min(shape) < 1:
    raise file.wrong('images', shape, 'no dimension may be 0')
  if len(shape) == 4 and shape[3] not in (1, 3):
    raise file.wrong('images', shape, 'channels come last, 1 or 3 of them')
  for key in ('labels', OWNERS, rows_lib.CLIENT, 'set_id'):
    if key not in headers:
      continue
    own_shape, own_dtype = headers[key]
    if own_dtype.kind not in 'iuU':
      raise file.wrong(key, own_dtype, 'give integers or unicode strings')
    if own_shape != shape[:1]:
      remedy = f'there are {shape[0]} images'
      if key == 'labels' and own_shape[:1] == shape[:1]:
        remedy = 'give a number for each image: ' + (
          'labels.ravel()' if own_shape[1:] == (1,) else 'labels.argmax(axis=1)'
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


def images_of(path: str, stored: np.ndarray) -> np.ndarray:
  """Returns images as `uint8 [N, H, W, C]`; refuses pixels of another scale."""
  images = npz_files.as_bytes(path, stored)
  if images.ndim == 3:
    images = images[..., np.newaxis]
  if images.max() == 1:
    raise npz_files.wrong(
      path,
      'images',
      'the pixels 0 and 1 alone, where 255 is white',
      'multiply them by 255, or store what was divided by 255 as float32'
      if stored.dtype == np.uint8
      else 'these were divided twice, divide by 255 once',
    )
  return np.ascontiguousarray(images)


def texts(
  file: NpzFile, key: str, values: np.ndarray | None
) -> list[str] | None:
  """Returns an array `[N]` of strings, which must be unicode, or integers."""
  if values is None:
    return None
  unique, index = np.unique(values, return_inverse=True)
  if unique.dtype.kind == 'U':
    native = unique.astype(unique.dtype.newbyteorder('='), copy=False)
    codes = np.frombuffer(native.tobytes(), np.uint32)
    # NumPy and Python accept such codes without an error.
    if np.any(((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)):
      raise file.wrong(key, 'a string that is not unicode', 'repair it')
  found = [str(one) for one in unique.tolist()]
  return [found[i] for i in index]


def _no_label(labels: np.ndarray | None) -> str:
  """Says how an example without a label is written, beside other labels."""
  has_numbers = labels is not None and labels.dtype.kind in 'iu'
  return 'write -1' if has_numbers else 'leave the text empty'


def labels_of(file: NpzFile, arrays, names) -> list[str | None]:
  """Returns the labels as text, those of `names` where classes have some."""
  labels = arrays.get('labels')
  if labels is None:
    return [None] * len(arrays['images'])
  if labels.dtype.kind == 'U':
    written = texts(file, 'labels', labels)
    found = [
      n or None for n in map(functools.cache(rows_lib.class_of), written)
    ]
    if unknown := set(found) - {None, *names} if names else ():
      raise file.wrong(
        'labels',
        f'{min(unknown)!r} (image {found.index(min(unknown))}), no name of a '
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
      f'mark training images without a label by {UNKNOWN}',
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


def check_same_shape(
  train: np.ndarray, images: np.ndarray, file: NpzFile
) -> None:
  """Checks that images of another split have the shape of training images."""
  if images.shape[1:] != train.shape[1:]:
    raise file.wrong(
      'images',
      f'images of {list(images.shape[1:])}, and of {list(train.shape[1:])} in '
      'train.npz',
      'give all images one height, width and number of channels',
    )


def _not_read(files: Mapping[str, NpzFile]):
  """Names the arrays that are not read; a slip of the pen is refused."""
  for split, file in files.items():
    others = sorted(file.listed() - set(_KEYS))
    for key in others:
      if near := difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.85):
        raise file.wrong(key, 'a key that is not read', f'call it {near[0]}')
    if split == TRAIN and OWNERS not in file.listed():
      rows_lib.check_no_owners(file.path, others, _KEYS, OWNERS)
    if others:
      yield f'{file.path}: not read are {", ".join(others)}.'


def unusual(images: np.ndarray) -> list[str]:
  """Says of each image to classify whether its pixels look divided."""
  tops = images.reshape(len(images), -1).max(axis=1)
  return [
    f'no pixel is above {top}, where 255 is white' if 0 < top < _DARK else ''
    for top in tops.tolist()
  ]


def decode(
  path: str, input_shape: tuple[int, ...], preprocessing: Mapping[str, Any]
) -> tuple[np.ndarray, list[str]]:
  """Reads images of the size that the model takes; see `SourceSpec.decode`."""
  del preprocessing
  ending = pathlib.Path(path).suffix.lower()

  def check_shape(shape):
    if tuple(shape) != tuple(input_shape):
      raise ValueError(
        f'{path}: found images of {list(shape)} (height, width, channels), and '
        f'the model takes {list(input_shape)}; resize or convert them as those '
        'that it was trained on.'
      )

  def check(headers):
    check_headers(file, headers)
    # Without an axis of channels, images are grey.
    check_shape((*headers['images'][0][1:], 1)[:3])

  if ending in image_files.ENDINGS:
    images = image_files.unscaled(pathlib.Path(path), check_shape)[np.newaxis]
    return images, unusual(images)
  if ending == '.npz':
    file = NpzFile(path, _REMEDY)
    npz_files.check_sizes([file])
    images = file.read(('images',), check, ignores_others=True)['images']
  else:
    file = NpzFile(path, 'write it with np.save')
    images = file.read_single('images', check)
  images = npz_files.as_bytes(path, images).reshape(-1, *input_shape)
  return np.ascontiguousarray(images), unusual(images)


def _count_owners(folder: str) -> int:
  """Returns 2, which is several, where train.npz says who owns examples."""
  return 2 * (OWNERS in _file(TRAIN, folder).listed())


def _count_server(folder: str) -> int:
  return _file(SERVER, folder).length('labels')


SPEC = rows_lib.spec(
  _count_owners,
  _count_server,
  name='npz',
  description='your own <data_dir>/train.npz and test.npz, maybe '
  'validation.npz and server.npz',
  builder=load,
  check_files=check_files,
  signs=(('train.npz',),),
  endings=('.npz', '.npy', *image_files.ENDINGS),
  decode=decode,
)
