"""The user's own images in sets of known class priors, in one of two layouts.

`npz_sets`:

    <data_dir>/train.npz    images uint8, or floats from 0 to 1, [N, H, W] or
                            [N, H, W, C], C = 1 or 3;
                            client_id and set_id, strings or integers [N];
                            labels (optional), integers [N]
    <data_dir>/priors.csv   client_id, set_id and a column for each class
    <data_dir>/test.npz     images and labels, to measure accuracy

Labels are numbered from 0 in the order of the columns of priors.csv. Those of
train.npz serve measurements, and supervised processes in comparisons.

`image_sets` has the layout of the case study of FedUL (Section 4.3). Each
client is a healthcare system, and each of its sets is a hospital:

    <data_dir>/train/<system>/<hospital>/*.png   images without labels
    <data_dir>/test/<class>/*.png                images with a label
    <data_dir>/prevalence.csv                    system, hospital and a column
                                                 for each class

Images are 8-bit PNG files of one size, all grey or all in colour. The paper
uses the images of RSNA Intracranial Hemorrhage Detection. Their publisher
demands a registration; convert them to PNG and arrange them in this layout.

The tables have one row for each client's set. The first two columns name the
client and the set. Each other column is named after a class; the classes are
numbered in this order:

    client_id,set_id,healthy,subdural,epidural
    north,st_mary,0.62,0.30,0.08

The values are shares, not percentages. Those of a row sum to 1 within .001.
"""

import collections
import csv
import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from datasets.files import image_files, npz_files
from datasets.files.npz_files import NpzFile
from datasets.sources import run_profiles
from datasets.sources.own import npz
from datasets.sources.own.rows import name_of, not_read
from datasets.sources.source import UNKNOWN, Source, SourceSets, Split
from datasets.sources.source_spec import SourceSpec
from tff_ssl import prior_checks

_MAX_ROWS = 100_000
_FILES = ('train.npz', 'test.npz')
_OWNERS = ('client_id', 'set_id')
_PRIORS, _PREVALENCE = 'priors.csv', 'prevalence.csv'
_LAYOUT = image_files.Layout(
  'image_sets',
  holds=f'train/<system>/<hospital>/, test/<class>/ and {_PREVALENCE}',
  kind='PNG',
  suffixes=('.png',),
)


@dataclasses.dataclass(frozen=True, eq=False)
class PriorTable:
  """A table of class priors.

  `rows` are `{(client, set): float64 [d]}`, in the order of the file.
  """

  path: str
  class_names: tuple[str, ...]
  rows: dict[tuple[str, str], np.ndarray]

  def sets_of(self, owners: Sequence[tuple[str, str]]) -> SourceSets:
    """Joins the table with examples, each of which has a client and a set.

    Clients and their sets are numbered as they appear in the table, which must
    have those of the examples, and no others.
    """
    owners = [(name_of(client), name_of(name)) for client, name in owners]
    found = dict.fromkeys(owners)
    for client, name in found:
      if (client, name) not in self.rows:
        raise ValueError(
          f'{self.path} has no row for the set {name!r} of {client!r}, which '
          'has examples: add the row.'
        )
    sets = collections.defaultdict(list)
    for client, name in self.rows:
      if (client, name) not in found:
        raise ValueError(
          f'{self.path} has a row for the set {name!r} of {client!r}, which '
          'has no example: remove the row, or add examples.'
        )
      sets[client].append(name)
    most_sets = max(map(len, sets.values()))
    priors = np.zeros((len(sets), most_sets, len(self.class_names)))
    index = {
      (client, name): (number, place)
      for number, (client, names) in enumerate(sets.items())
      for place, name in enumerate(names)
    }
    for owner, row in self.rows.items():
      priors[index[owner]] = row
    client_index, set_index = np.array([index[owner] for owner in owners]).T
    return SourceSets(
      client_names=tuple(sets),
      client_index=client_index,
      set_index=set_index,
      class_priors=priors,
      class_names=self.class_names,
    )


def read_priors(path: str, client_column: str, set_column: str) -> PriorTable:
  """Reads a table; each row is divided by its sum."""
  try:
    if not os.path.isfile(path):
      raise OSError('no such file')  # Who opens a pipe waits for ever.
    with open(path, newline='', encoding='utf-8-sig') as file:
      reader = csv.reader(file, strict=True)
      lines = [(reader.line_num, line) for line in reader if line]
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise ValueError(
      f'{path}: no readable CSV file ({error}); it must hold the columns '
      f'{client_column}, {set_column} and one for each class.'
    ) from error
  header = [name_of(name) for name in lines[0][1]] if lines else []
  classes = header[2:]
  if (
    header[:2] != [client_column, set_column]
    or len(classes) < 2
    or len(set(header)) < len(header)
    or not all(header)
  ):
    raise ValueError(
      f'{path}: the columns are {header}; they must be {client_column}, '
      f'{set_column} and then two classes or more, each with a name of its own.'
    )
  if not 1 < len(lines) <= _MAX_ROWS + 1:
    raise ValueError(
      f'{path}: found {len(lines) - 1} rows; give one for each set, at most '
      f'{_MAX_ROWS:,}.'
    )
  rows = {}
  for number, line in lines[1:]:
    key, row = _row(path, number, line, header)
    if key in rows:
      raise ValueError(
        f'{path}: line {number}: the set {key[1]!r} of {key[0]!r} has a '
        'second row; keep one.'
      )
    rows[key] = row
  return PriorTable(path, tuple(classes), rows)


def _row(path, number, line, header):
  what = f'{path}: line {number}'
  if len(line) != len(header):
    raise ValueError(
      f'{what} has {len(line)} fields under {len(header)} columns: correct it.'
    )
  client, name = map(name_of, line[:2])
  try:
    shares = np.array([float(field) for field in line[2:]])
  except ValueError as error:
    raise ValueError(
      f'{what}: {line[2:]} are not all numbers: correct them.'
    ) from error
  if not client or not name:
    raise ValueError(
      f'{what}: {header[0]} or {header[1]} is empty: fill it in.'
    )
  return (client, name), prior_checks.normalised_row(what, shares)


def _source(kind, folder, table, sets, train, test, file, **fields) -> Source:
  mean, stddev = npz_files.moments(train.examples, file, 'images')
  return Source(
    title=(
      f'{kind} in {folder}: {len(train.labels):,} train examples in '
      f'{len(table.rows):,} sets and {len(test.labels):,} test examples'
    ),
    train=train,
    test=test,
    num_classes=len(table.class_names),
    mean=mean,
    stddev=stddev,
    background=npz_files.background(train.examples),
    mirrorable=False,
    sets=sets,
    **fields,
  )


def load_npz(data_dir: str | None, cache_dir: str) -> Source:
  """Loads train.npz, test.npz and priors.csv."""
  _check_npz(data_dir)
  files = [
    NpzFile(os.path.join(data_dir, name), 'write it with np.savez')
    for name in _FILES
  ]
  npz_files.check_sizes(files)
  table = read_priors(os.path.join(data_dir, _PRIORS), *_OWNERS)
  train_file, test_file = files
  arrays = train_file.read(
    ('images', *_OWNERS),
    functools.partial(npz.check_headers, train_file),
    optional=('labels',),
  )
  tested = test_file.read(
    ('images', 'labels'), functools.partial(npz.check_headers, test_file)
  )
  names = (npz.texts(train_file, key, arrays[key]) for key in _OWNERS)
  owners = list(zip(*names, strict=True))
  train = _split(train_file, arrays, len(table.class_names))
  test = _split(test_file, tested, len(table.class_names))
  npz.check_same_shape(train.examples, test.examples, test_file)
  paths = [os.path.join(data_dir, name) for name in (*_FILES, _PRIORS)]
  return _source(
    'npz files',
    os.path.basename(os.path.abspath(data_dir)),
    table,
    table.sets_of(owners),
    train,
    test,
    train_file,
    name='npz_sets',
    version=f'npz-{npz_files.digest(paths)}',
    notes=not_read(
      data_dir, [*_FILES, _PRIORS], 'add its examples to train or test'
    ),
  )


def _check_npz(data_dir: str | None) -> None:
  npz_files.check_present('npz_sets', data_dir, [*_FILES, _PRIORS])


def _split(file: NpzFile, arrays, num_classes: int) -> Split:
  images = npz.images_of(file, arrays)
  labels = arrays.get('labels')
  if labels is None:
    labels = np.full(len(images), UNKNOWN, np.int32)
  elif labels.min() < 0 or labels.max() >= num_classes:
    raise file.wrong(
      'labels',
      f'{labels.min()}..{labels.max()}',
      f'number the {num_classes} classes of {_PRIORS} from 0',
    )
  return Split(images, labels.astype(np.int32))


def load_images(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the folders and prevalence.csv; training images have no labels."""
  root = _check_images(data_dir)
  table = read_priors(str(root / _PREVALENCE), 'system', 'hospital')
  train_files = [
    file
    for system in _LAYOUT.folders(root / 'train')
    for hospital in _LAYOUT.folders(system)
    for file in _LAYOUT.images(hospital)
  ]
  owners = [(f.parent.parent.name, f.parent.name) for f in train_files]
  sets = table.sets_of(owners)
  test_files = [
    file
    for folder in _LAYOUT.folders(root / 'test')
    for file in _LAYOUT.images(folder)
  ]
  classes = [name_of(file.parent.name) for file in test_files]
  for file, name in zip(test_files, classes, strict=True):
    if name not in table.class_names:
      raise ValueError(
        f'{file.parent} does not have the name of a class of {_PREVALENCE} '
        f'({", ".join(table.class_names)}): rename the folder.'
      )
  files = [*train_files, *test_files]
  digest = hashlib.sha256((root / _PREVALENCE).read_bytes())
  for file in files:
    image_files.add_to_digest(digest, root, file, file.read_bytes())
  train, test = np.split(_read(files), [len(train_files)])
  labels = np.array([table.class_names.index(name) for name in classes])
  return _source(
    'images',
    root.resolve().name,
    table,
    sets,
    Split(train, np.full(len(train), UNKNOWN, np.int32)),
    Split(test, labels.astype(np.int32)),
    NpzFile(str(root / 'train'), 'write the images anew'),
    name='image_sets',
    version=f'png-{digest.hexdigest()[:16]}',
    notes=not_read(
      root, ['train', 'test', _PREVALENCE], 'add its examples to train or test'
    ),
  )


def _check_images(data_dir: str | None) -> pathlib.Path:
  """Returns `data_dir` after checking that it has the table and the folders."""
  root = _LAYOUT.root(data_dir)
  if not (root / _PREVALENCE).is_file():
    raise ValueError(
      f'{root / _PREVALENCE}: no such file; data_dir must hold {_LAYOUT.holds}.'
    )
  for name in ('train', 'test'):
    _LAYOUT.folders(root / name)
  return root


def _read(files: Sequence[pathlib.Path]) -> np.ndarray:
  """Reads all images, `uint8 [N, H, W, C]`."""
  images = None

  def check(shape):
    if images is not None and shape != images.shape[1:]:
      raise ValueError(
        f'{file} is {list(shape)} and {files[0]} {list(images.shape[1:])} '
        '(height, width, channels): convert all to one form.'
      )

  for index, file in enumerate(files):
    image = image_files.unscaled(file, check)
    if images is None:
      images = image_files.allocate(len(files), image.shape)
    images[index] = image
  return images


_spec = functools.partial(
  SourceSpec, has_sets=True, is_of_user=True, defaults=run_profiles.OWN_SETS
)
NPZ = _spec(
  name='npz_sets',
  description='your own sets of known class priors, <data_dir>/train.npz, '
  'test.npz and priors.csv',
  load=load_npz,
  check_files=_check_npz,
)
IMAGES = _spec(
  name='image_sets',
  description='your own sets as PNG files, <data_dir>/train/<system>/'
  '<hospital>/, test/<class>/ and prevalence.csv',
  load=load_images,
  check_files=_check_images,
  has_unlabelled=True,
)
