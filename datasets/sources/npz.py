"""The user's own images: `<data_dir>/train.npz` and `<data_dir>/test.npz`.

There may be a `<data_dir>/validation.npz`, for choosing settings, and a
`<data_dir>/server.npz` with the labelled images of the server, which then takes
none from the clients. `np.savez` or `np.savez_compressed` writes each file. It
has the arrays

* `images`: `uint8 [N, H, W]` or `[N, H, W, C]`, C = 1 or 3; or floats from 0 to
  1, which are rounded to 1/255;
* `labels`: any integer type, `[N]`, the classes, numbered from 0 without gaps.
  In train.npz, -1 stands for an image without a label; beside a server.npz, the
  array may be missing there;
* `client_ids` (optional): strings or integers, `[N]`, the owner of each
  example. They are in train.npz alone, or also in the others;
* `class_names` (optional, in train.npz): strings, one for each class.

Other arrays are not read, and a run names them.

The files are not trusted. Nothing is unpickled. The declarations in the zip
directory and in the array headers are checked before an array is read.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from datasets.files import npz_files
from datasets.files.npz_files import MAX_BYTES, Headers, NpzFile
from datasets.sources import run_profiles
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.sources.source_spec import SourceSpec

_SPLITS = ('train', 'test')
# Files that may be there.
_VALIDATION, _SERVER = 'validation', 'server'
_OPTIONAL = ('client_ids', 'class_names')
_KEYS = ('images', 'labels', *_OPTIONAL)
_REMEDY = 'write it with np.savez'


def has_client_ids(data_dir: str | None) -> bool:
  """Returns whether train.npz says who owns each example.

  This is cheap, because it reads only the file's directory. Without a usable
  file the answer is no; `load` then reports the error.

  Args:
    data_dir: The folder with the two files, or `None`.
  """
  if data_dir is None:
    return False
  folder = os.path.expanduser(data_dir)
  return _file(folder, 'train').has_key('client_ids')


def load(
  data_dir: str | None, cache_dir: str, max_bytes: int = MAX_BYTES
) -> Source:
  """Loads train.npz, test.npz and, if there is one, validation.npz.

  The mean, the standard deviation and the background (the median of the corner
  pixels) are computed from the training images.

  Args:
    data_dir: The folder with the files.
    cache_dir: Ignored: the files are read in place.
    max_bytes: The limit of the uncompressed size that all files declare.

  Returns:
    The source. `num_classes` is the largest label + 1. A training image may
    lack a label (`UNKNOWN`). Each test and validation image has one.

  Raises:
    ValueError: If a file is absent, damaged or too large, or its arrays are
      not as described above.
  """
  del cache_dir
  files = check_files(data_dir)
  npz_files.check_sizes(list(files.values()), max_bytes)
  arrays = {
    split: _read(file, may_lack_labels=split == 'train' and _SERVER in files)
    for split, file in files.items()
  }
  splits = {split: _split(files[split], arrays[split]) for split in files}
  of_clients, server = splits['train'], splits.get(_SERVER)
  for split in files.keys() - {'train'}:
    _check_labelled(of_clients, splits[split], files[split])
  # What is learnt of colours is what clients see.
  mean, stddev = npz_files.moments(of_clients.images, files['train'], 'images')
  train = of_clients.followed_by(server)
  _check_classes(train.labels, files['train'])
  for split in (_VALIDATION, 'test'):
    if split in splits:
      _check_seen(train, splits[split], files[split])
  num_classes = int(train.labels.max()) + 1
  return Source(
    name='npz',
    version=f'npz-{npz_files.digest(list(files.values()))}',
    title=_title(data_dir, splits),
    train=train,
    test=splits['test'],
    validation=splits.get(_VALIDATION),
    num_classes=num_classes,
    mean=mean,
    stddev=stddev,
    background=npz_files.background(of_clients.images),
    mirrorable=False,
    names=_class_names(files['train'], arrays['train'], num_classes),
    num_server=0 if server is None else len(server.labels),
    notes=_notes(files.values()),
  )


def _title(data_dir: str, splits: Mapping[str, Split]) -> str:
  sizes = [
    f'{len(splits[name].labels):,} {name}'
    for name in ('train', _SERVER, _VALIDATION, 'test')
    if name in splits
  ]
  title = (
    f'npz files in {os.path.basename(os.path.abspath(data_dir))}: '
    f'{", ".join(sizes[:-1])} and {sizes[-1]} examples'
  )
  unlabelled = np.count_nonzero(splits['train'].labels == UNKNOWN)
  if unlabelled:
    title += f'; {unlabelled:,} of the training images have no label'
  return title


def _notes(files: Iterable[NpzFile]) -> tuple[str, ...]:
  """Names the arrays that are not read; a slip of the pen is refused."""
  notes = []
  for file in files:
    others = file.other_keys(_KEYS)
    for key in others:
      if near := difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.85):
        raise file.wrong(key, 'a key that is not read', f'call it {near[0]}')
    if others:
      notes.append(f'{file.path}: not read are {", ".join(others)}.')
  return tuple(notes)


def _class_names(
  file: NpzFile, arrays: Mapping[str, np.ndarray], num_classes: int
) -> tuple[str, ...] | None:
  if 'class_names' not in arrays:
    return None
  names = as_strings(file, 'class_names', arrays['class_names']).tolist()
  if len(set(names)) != num_classes or len(names) != num_classes:
    raise file.wrong(
      'class_names',
      f'{len(names)}, {len(set(names))} of them different',
      f'give a name for each of the {num_classes} classes, in their order',
    )
  return tuple(names)


def check_files(data_dir: str | None) -> dict[str, NpzFile]:
  """Returns the files by split after checking that both needed ones exist.

  Args:
    data_dir: As in `load`.

  Returns:
    `train` and `test`; `validation` and `server` if they are there.

  Raises:
    ValueError: If train.npz or test.npz is absent.
  """
  npz_files.check_present('npz', data_dir, ['train.npz', 'test.npz'])
  files = {
    split: _file(data_dir, split) for split in (*_SPLITS, _VALIDATION, _SERVER)
  }
  return {
    split: file
    for split, file in files.items()
    if split in _SPLITS or os.path.lexists(file.path)
  }


def _file(folder: str, split: str) -> NpzFile:
  return NpzFile(os.path.join(folder, f'{split}.npz'), _REMEDY)


def _read(file: NpzFile, may_lack_labels: bool) -> dict[str, np.ndarray]:
  optional = (*_OPTIONAL, *(['labels'] if may_lack_labels else []))
  return file.read(
    ('images', *([] if may_lack_labels else ['labels'])),
    lambda headers: check_headers(file, headers),
    optional=optional,
    ignores_others=True,
  )


def _split(file: NpzFile, arrays: Mapping[str, np.ndarray]) -> Split:
  images = with_channels(npz_files.as_bytes(file, 'images', arrays['images']))
  labels = arrays.get('labels', np.full(len(images), UNKNOWN))
  if labels.min() < UNKNOWN or labels.max() >= 2**31 - 1:
    raise file.wrong(
      'labels',
      f'{labels.min()}..{labels.max()}',
      'number the classes from 0, and mark training images without a label '
      f'by {UNKNOWN}',
    )
  client_ids = arrays.get('client_ids')
  if client_ids is not None:
    client_ids = as_strings(file, 'client_ids', client_ids)
  return Split(images, labels.astype(np.int32), client_ids)


def with_channels(images: np.ndarray) -> np.ndarray:
  """Returns contiguous images `[N, H, W, C]`.

  Args:
    images: `[N, H, W]`, which are grey, or `[N, H, W, C]`.
  """
  if images.ndim == 3:
    images = images[..., np.newaxis]
  return np.ascontiguousarray(images)


def check_headers(file: NpzFile, headers: Headers) -> None:
  """Checks shapes and types of images, labels and ids.

  Args:
    file: The file, for messages.
    headers: Its headers: that of `images`, and those of the other arrays that
      it has.

  Raises:
    ValueError: If a shape or a type is wrong.
  """
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
  for key, kinds, remedy in [
    ('labels', 'iu', 'labels are integers from 0'),
    *(
      (key, 'iuU', 'ids are unicode strings or integers')
      for key in ('client_ids', 'client_id', 'set_id')
    ),
  ]:
    if key not in headers:
      continue
    key_shape, key_dtype = headers[key]
    if key_dtype.kind not in kinds:
      raise file.wrong(key, key_dtype, remedy)
    if key_shape != shape[:1]:
      raise file.wrong(key, key_shape, f'there are {shape[0]} images')
  if 'class_names' in headers:
    names_shape, names_dtype = headers['class_names']
    if names_dtype.kind != 'U' or len(names_shape) != 1:
      raise file.wrong(
        'class_names',
        f'{names_dtype} {list(names_shape)}',
        'give unicode strings, one for each class',
      )


def as_strings(file: NpzFile, key: str, ids: np.ndarray) -> np.ndarray:
  """Turns ids into an object array in which equal ids share one string.

  Args:
    file: The file of the ids, for messages.
    key: The key of the ids in the file.
    ids: Strings or integers `[N]`.

  Raises:
    ValueError: If a string is not unicode.
  """
  unique, index = np.unique(ids, return_inverse=True)
  if unique.dtype.kind == 'U':
    native = unique.astype(unique.dtype.newbyteorder('='), copy=False)
    codes = np.frombuffer(native.tobytes(), np.uint32)
    # NumPy and Python accept such codes without an error.
    if np.any(((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)):
      raise file.wrong(key, 'a string that is not unicode', 'repair the id')
  strings = [str(one) for one in unique.tolist()]
  return np.array(strings, dtype=object)[index]


def _check_labelled(train: Split, split: Split, file: NpzFile) -> None:
  """Checks a split without unlabelled images against the training images."""
  check_same_shape(train, split, file)
  if train.client_ids is None and split.client_ids is not None:
    raise file.wrong(
      'client_ids',
      'here but not in train.npz',
      'give them in all files or in train.npz alone',
    )
  unlabelled = np.count_nonzero(split.labels == UNKNOWN)
  if unlabelled:
    raise file.wrong(
      'labels',
      f'{unlabelled:,} of {len(split.labels):,} that are {UNKNOWN}',
      'each image needs its label here: leave out those without one, or move '
      'them to train.npz',
    )


def _check_seen(train: Split, split: Split, file: NpzFile) -> None:
  unseen = np.setdiff1d(split.labels, train.labels)
  if unseen.size:
    raise file.wrong(
      'labels',
      f'{unseen[:5].tolist()}, unseen in train.npz',
      'each class needs labelled training examples',
    )


def check_same_shape(train: Split, test: Split, test_file: NpzFile) -> None:
  """Checks that images of another split have the shape of training images.

  Args:
    train: The training split.
    test: The test or validation split.
    test_file: The file of that split, for messages.

  Raises:
    ValueError: If they do not.
  """
  shape, test_shape = train.images.shape[1:], test.images.shape[1:]
  if shape != test_shape:
    raise test_file.wrong(
      'images',
      f'images of {list(test_shape)}, and of {list(shape)} in train.npz',
      'give all images one height, width and number of channels',
    )


def _check_classes(labels: np.ndarray, file: NpzFile) -> None:
  """Checks that the classes of the training images are 0 to d - 1."""
  classes = np.unique(labels)
  classes = classes[classes != UNKNOWN]
  if not classes.size:
    raise file.wrong(
      'labels',
      f'only {UNKNOWN}, which stands for an image without a label',
      'give the labels of some training images',
    )
  if classes[0] > 0:
    raise file.wrong(
      'labels',
      f'the classes {classes[0]}..{classes[-1]}, which do not start at 0',
      f'subtract {classes[0]} from the labels in both files (but keep '
      f'{UNKNOWN} for images without a label)',
    )
  # A gap is where a class differs from its position.
  gaps = np.flatnonzero(classes != np.arange(len(classes)))
  if gaps.size:
    raise file.wrong(
      'labels',
      f'the classes 0..{classes[-1]} without any image of class {gaps[0]}',
      f'number the {len(classes)} classes without gaps, 0 to '
      f'{len(classes) - 1}, in both files',
    )


def _defaults(given: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the defaults, as far as the files decide on them."""
  values = run_profiles.OWN_IMAGES
  if 'partition' not in given and has_client_ids(given.get('data_dir')):
    values = dict(values, partition='native')
  return run_profiles.with_server(values, _count_server(given.get('data_dir')))


def _count_server(data_dir: str | None) -> int:
  """Returns the number of the server's own examples, 0 if it has none."""
  if data_dir is None:
    return 0
  return _file(os.path.expanduser(data_dir), _SERVER).length('labels')


SPEC = SourceSpec(
  name='npz',
  description='your own <data_dir>/train.npz and test.npz, maybe '
  'validation.npz and server.npz',
  load=load,
  check_files=check_files,
  has_native_split=True,
  may_lack_labels=True,
  is_of_user=True,
  defaults=_defaults,
)
