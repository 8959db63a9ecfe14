"""The user's own images in sets of known class priors, as npz files.

    <data_dir>/train.npz    images uint8, or floats from 0 to 1, [N, H, W] or
                            [N, H, W, C], C = 1 or 3;
                            client_id and set_id, strings or integers [N];
                            labels (optional), integers [N]
    <data_dir>/priors.csv   client_id, set_id and a column for each class
                            (`datasets.sources.priors_csv`)
    <data_dir>/test.npz     images and labels, to measure accuracy

Labels are numbered from 0 in the order of the columns of priors.csv. Those of
train.npz serve measurements, and supervised processes in comparisons.
"""

import os

import numpy as np

from datasets.files import npz_files
from datasets.files.npz_files import MAX_BYTES, NpzFile
from datasets.sources import run_profiles
from datasets.sources.own import npz, priors_csv
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.sources.source_spec import SourceSpec

_FILES = ('train.npz', 'test.npz')
_TABLE = 'priors.csv'
_REMEDY = 'write it with np.savez'
_OWNERS = ('client_id', 'set_id')


def load(
  data_dir: str | None, cache_dir: str, max_bytes: int = MAX_BYTES
) -> Source:
  """Loads train.npz, test.npz and priors.csv.

  Args:
    data_dir: The folder with the three files.
    cache_dir: Ignored: the files are read in place.
    max_bytes: The limit of the uncompressed size that the npz files declare.

  Returns:
    The source, with `sets`.

  Raises:
    ValueError: If a file is absent, damaged or too large, or the files do not
      belong together.
  """
  del cache_dir
  *files, table_file = check_files(data_dir)
  npz_files.check_sizes(files, max_bytes)
  table = priors_csv.read(table_file.path, *_OWNERS)
  num_classes = len(table.class_names)
  arrays = files[0].read(
    ('images', *_OWNERS),
    lambda headers: npz.check_headers(files[0], headers),
    optional=('labels',),
  )
  tested = files[1].read(
    ('images', 'labels'),
    lambda headers: npz.check_headers(files[1], headers),
  )
  owners = list(
    zip(
      *(npz.texts(files[0], key, arrays[key]) for key in _OWNERS),
      strict=True,
    )
  )
  train = _split(files[0], arrays, num_classes)
  test = _split(files[1], tested, num_classes)
  npz.check_same_shape(train.examples, test.examples, files[1])
  sets = table.sets_of(owners)
  mean, stddev = npz_files.moments(train.examples, files[0], 'images')
  return Source(
    name='npz_sets',
    version=f'npz-{npz_files.digest(f.path for f in (*files, table_file))}',
    title=(
      f'npz files in {os.path.basename(os.path.abspath(data_dir))}: '
      f'{len(train.labels):,} train examples in {len(table.rows):,} sets and '
      f'{len(test.labels):,} test examples'
    ),
    train=train,
    test=test,
    num_classes=num_classes,
    mean=mean,
    stddev=stddev,
    background=npz_files.background(train.examples),
    mirrorable=False,
    sets=sets,
  )


def check_files(data_dir: str | None) -> list[NpzFile]:
  """Returns train.npz, test.npz and the table after checking that they exist.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If one of them is absent.
  """
  npz_files.check_present('npz_sets', data_dir, [*_FILES, _TABLE])
  files = [NpzFile(os.path.join(data_dir, name), _REMEDY) for name in _FILES]
  return [*files, NpzFile(os.path.join(data_dir, _TABLE), 'write it anew')]


def _split(file: NpzFile, arrays, num_classes: int) -> Split:
  images = npz.images_of(file, arrays)
  labels = arrays.get('labels')
  if labels is None:
    labels = np.full(len(images), UNKNOWN, np.int32)
  elif labels.min() < 0 or labels.max() >= num_classes:
    raise file.wrong(
      'labels',
      f'{labels.min()}..{labels.max()}',
      f'number the {num_classes} classes of {_TABLE} from 0',
    )
  return Split(images, labels.astype(np.int32))


SPEC = SourceSpec(
  name='npz_sets',
  description='your own sets of known class priors, <data_dir>/train.npz, '
  'test.npz and priors.csv',
  load=load,
  check_files=check_files,
  has_sets=True,
  is_of_user=True,
  defaults=run_profiles.OWN_SETS,
)
