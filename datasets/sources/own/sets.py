"""The user's own images in sets of known class priors, in one of two layouts.

`npz_sets` has train.npz and test.npz as in `npz`, where train.npz has
`client_id` and `set_id` and may have `labels`, for measurements, and
priors.csv.

`image_sets` has the layout of the case study of FedUL (Section 4.3): 8-bit PNG
files of one size in train/<system>/<hospital>/ and test/<class>/, and
prevalence.csv. Each client is a healthcare system, each of its sets a hospital.

The tables have one row for each client's set, of shares that sum to 1:

    client_id,set_id,healthy,subdural,epidural
    north,st_mary,0.62,0.30,0.08
"""

import collections
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from datasets.files import image_files, npz_files
from datasets.files.npz_files import NpzFile
from datasets.sources.own import arrays as arrays_lib
from datasets.sources.own import npz, tables
from datasets.sources.own import rows as rows_lib
from datasets.sources.own.rows import TEST, TRAIN, class_of, name_of
from datasets.sources.source import (
  SMALL_CLIENTS,
  Source,
  SourceSets,
  SourceSpec,
)
from tff_ssl.common import prior_checks

_FILES = ('train.npz', 'test.npz')
_OWNERS = ('client_id', 'set_id')
# As tables write them; folders and arrays keep capital letters.
_TRUTH = {'True': 'true', 'False': 'false'}
_PRIORS, _PREVALENCE = 'priors.csv', 'prevalence.csv'
_LAYOUT = image_files.Layout(
  'image_sets',
  holds=f'train/<system>/<hospital>/, test/<class>/ and {_PREVALENCE}',
  kind='PNG',
  suffixes=('.png',),
)


@dataclasses.dataclass(frozen=True, eq=False)
class PriorTable:
  """Class priors, `{(client, set): float64 [d]}`, in the order of the file."""

  path: str
  class_names: tuple[str, ...]
  rows: dict[tuple[str, str], np.ndarray]

  def sets_of(self, owners: Sequence[tuple[str, str]]) -> SourceSets:
    """Joins the table with examples, each of which has a client and a set."""
    owners = [_key(map(name_of, owner)) for owner in owners]
    there, sets = set(owners), collections.defaultdict(list)
    for client, name in dict.fromkeys([*owners, *self.rows]):
      wrong = 'a row', 'has no example: remove the row, or add examples'
      if (client, name) not in self.rows:
        wrong = 'no row', 'has examples: add the row'
      elif (client, name) in there:
        continue
      raise ValueError(
        f'{self.path} has {wrong[0]} for the set {name!r} of {client!r}, which '
        f'{wrong[1]}.'
      )
    for client, name in self.rows:
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
    )


def _key(names: Iterable[str]) -> tuple[str, ...]:
  return tuple(_TRUTH.get(name, name) for name in names)


def read_priors(path: str, client_column: str, set_column: str) -> PriorTable:
  """Reads a table; each row is divided by its sum."""
  table = tables.read(path)
  columns = list(table.columns)
  classes = tuple(map(class_of, columns[2:]))
  if list(map(name_of, columns[:2])) != [client_column, set_column] or len(
    set(classes)
  ) < max(2, len(classes)):
    raise ValueError(
      f'{path}: the columns are {columns}; they must be {client_column}, '
      f'{set_column} and then two classes or more, each with a name of its own.'
    )
  shares = []
  for name in columns[2:]:
    shares.append(tables.numbers(table, name))
    if shares[-1] is None:
      raise table.wrong(name, 'words', 'give shares of the class, such as 0.25')
  rows = {}
  names = zip(*map(table.texts, columns[:2]), strict=True)
  for number, (cells, row) in enumerate(
    zip(names, np.transpose(shares), strict=True), 2
  ):
    key = _key(cells)
    what = f'{path}: row {number}'
    if None in key:
      raise ValueError(
        f'{what}: {client_column} or {set_column} is empty: fill it in.'
      )
    if key in rows:
      raise ValueError(
        f'{what}: the set {key[1]!r} of {key[0]!r} has a second row; keep one.'
      )
    rows[key] = prior_checks.normalised_row(what, row)
  return PriorTable(path, classes, rows)


def _source(table, labels, kind, data_dir, path, images, **fields) -> Source:
  """As `npz.source_of`; the labels of all splits are names of classes."""
  title = (
    f'{kind} in {os.path.basename(os.path.abspath(data_dir))}: '
    f'{len(labels[TRAIN]):,} train examples in {len(table.rows):,} sets and '
    f'{len(labels[TEST]):,} test examples'
  )
  labelled = rows_lib.Labelled(table.class_names, labels, dict.fromkeys(labels))
  fields |= {'title': title}
  return npz.source_of(labelled, kind, data_dir, path, images, **fields)


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
    functools.partial(npz.ARRAYS.check_headers, train_file),
    optional=('labels',),
  )
  tested = test_file.read(
    ('images', 'labels'), functools.partial(npz.ARRAYS.check_headers, test_file)
  )
  names = (arrays_lib.texts(train_file, key, arrays[key]) for key in _OWNERS)
  owners = list(zip(*names, strict=True))
  images = {
    TRAIN: npz.images_of(train_file.path, arrays['images']),
    TEST: npz.images_of(test_file.path, tested['images']),
  }
  npz.ARRAYS.check_same_shape(images[TRAIN], images[TEST], test_file)
  labels = {TRAIN: [None] * len(owners)}
  for split, file, own in zip(images, files, (arrays, tested), strict=True):
    if 'labels' in own:
      labels[split] = arrays_lib.labels_of(
        file, own['labels'], 'image', table.class_names
      )
  if unknown := labels[TEST].count(None):
    raise test_file.wrong(
      'labels',
      f'{unknown:,} of {len(labels[TEST]):,} without a label',
      'each example needs its label here: leave out those without one',
    )
  paths = [os.path.join(data_dir, name) for name in (*_FILES, _PRIORS)]
  return _source(
    table,
    labels,
    'npz files',
    data_dir,
    train_file.path,
    images,
    name='npz_sets',
    version=f'npz-{npz_files.digest(paths)}',
    notes=rows_lib.not_read(
      data_dir, [*_FILES, _PRIORS], 'add its examples to train or test'
    ),
    sets=table.sets_of(owners),
  )


def _check_npz(data_dir: str | None) -> None:
  npz_files.check_present('npz_sets', data_dir, [*_FILES, _PRIORS])


def load_images(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the folders and prevalence.csv; training images have no labels."""
  root = _check_images(data_dir)
  table = read_priors(str(root / _PREVALENCE), 'system', 'hospital')
  train_files = [
    file
    for system in _LAYOUT.folders(root / 'train').values()
    for hospital in _LAYOUT.folders(system).values()
    for file in _LAYOUT.images(hospital)
  ]
  owners = [(f.parent.parent.name, f.parent.name) for f in train_files]
  sets = table.sets_of(owners)
  test_files, classes = [], []
  for name, folder in _LAYOUT.folders(root / 'test').items():
    if (name := class_of(name)) not in table.class_names:
      raise ValueError(
        f'{folder} does not have the name of a class of {_PREVALENCE} '
        f'({", ".join(table.class_names)}): rename the folder.'
      )
    test_files += _LAYOUT.images(folder)
    classes += [name] * (len(test_files) - len(classes))
  files = [*train_files, *test_files]
  digest = image_files.digest(root, files, (root / _PREVALENCE).read_bytes())
  train, test = np.split(_read(files), [len(train_files)])
  return _source(
    table,
    {TRAIN: [None] * len(train), TEST: classes},
    'images',
    data_dir,
    str(root / 'train'),
    {TRAIN: train, TEST: test},
    name='image_sets',
    version=f'png-{digest}',
    notes=rows_lib.not_read(
      root, ['train', 'test', _PREVALENCE], 'add its examples to train or test'
    ),
    sets=sets,
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
  SourceSpec,
  has_sets=True,
  is_of_user=True,
  # FedUL, Section 4.3: five systems of hospitals, all in each round.
  defaults={
    **SMALL_CLIENTS,
    'partition': 'own_sets',
    'clients_per_round': 5,
    'total_rounds': 100,
  },
)
NPZ = _spec(
  name='npz_sets',
  description='your own sets of known class priors, <data_dir>/train.npz, '
  'test.npz and priors.csv',
  builder=load_npz,
  check_files=_check_npz,
  signs=((_PRIORS, 'train.npz'),),
)
IMAGES = _spec(
  name='image_sets',
  description='your own sets as PNG files, <data_dir>/train/<system>/'
  '<hospital>/, test/<class>/ and prevalence.csv',
  builder=load_images,
  check_files=_check_images,
  signs=((_PREVALENCE, 'train'),),
  has_unlabelled=True,
)
