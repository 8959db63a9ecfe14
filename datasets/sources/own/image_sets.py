"""Image folders with a table of prevalences: healthcare systems and hospitals.

The layout follows the case study of FedUL (Section 4.3). Each client is a
healthcare system, and each of its sets is a hospital:

    <data_dir>/train/<system>/<hospital>/*.png   images without labels
    <data_dir>/test/<class>/*.png                images with a label
    <data_dir>/prevalence.csv                    system, hospital and a column
                                                 for each class
                                                 (`datasets.sources.priors_csv`)

Images are 8-bit PNG files of one size, all grey or all in colour. The paper
uses the images of RSNA Intracranial Hemorrhage Detection. Their publisher
demands a registration; convert them to PNG and arrange them in this layout.
"""

import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np

from datasets.files import image_files, npz_files, square_images
from datasets.sources import run_profiles
from datasets.sources.own import priors_csv, rows
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.sources.source_spec import SourceSpec

_TABLE = 'prevalence.csv'
_LAYOUT = image_files.Layout(
  'image_sets',
  holds=f'train/<system>/<hospital>/, test/<class>/ and {_TABLE}',
  kind='PNG',
  suffixes=('.png',),
)


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the folders and the table.

  Args:
    data_dir: The folder that holds `train/`, `test/` and prevalence.csv.
    cache_dir: Ignored: the files are read in place.

  Returns:
    The source, with `sets`; training images have no labels.

  Raises:
    ValueError: If a file is absent or unusable, or the images and the table do
      not belong together.
  """
  del cache_dir
  root = check_files(data_dir)
  table = priors_csv.read(str(root / _TABLE), 'system', 'hospital')
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
  for file in test_files:
    if _class_of(file) not in table.class_names:
      raise ValueError(
        f'{file.parent} does not have the name of a class of {_TABLE} '
        f'({", ".join(table.class_names)}): rename the folder.'
      )
  files = [*train_files, *test_files]
  digest = hashlib.sha256((root / _TABLE).read_bytes())
  for file in files:
    image_files.add_to_digest(digest, root, file, file.read_bytes())
  images = _read(files)
  train, test = np.split(images, [len(train_files)])
  labels = [table.class_names.index(_class_of(file)) for file in test_files]
  folder = npz_files.NpzFile(str(root / 'train'), 'write the images anew')
  mean, stddev = npz_files.moments(train, folder, 'images')
  return Source(
    name='image_sets',
    version=f'png-{digest.hexdigest()[:16]}',
    title=(
      f'images in {root.resolve().name}: {len(train):,} train examples in '
      f'{len(table.rows):,} sets and {len(test):,} test examples'
    ),
    train=Split(train, np.full(len(train), UNKNOWN, np.int32)),
    test=Split(test, np.array(labels, np.int32)),
    num_classes=len(table.class_names),
    mean=mean,
    stddev=stddev,
    background=npz_files.background(train),
    mirrorable=False,
    sets=sets,
  )


def check_files(data_dir: str | None) -> pathlib.Path:
  """Returns `data_dir` after checking that it has the table and the folders.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If the table or a folder is absent, or a folder is empty.
  """
  root = _LAYOUT.root(data_dir)
  if not (root / _TABLE).is_file():
    raise ValueError(
      f'{root / _TABLE}: no such file; data_dir must hold {_LAYOUT.holds}.'
    )
  for name in ('train', 'test'):
    _LAYOUT.folders(root / name)
  return root


def _class_of(file: pathlib.Path) -> str:
  return rows.name_of(file.parent.name)


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
    image = square_images.unscaled(file, check)
    if images is None:
      images = image_files.allocate(len(files), image.shape)
    images[index] = image
  return images


SPEC = SourceSpec(
  name='image_sets',
  description='your own sets as PNG files, <data_dir>/train/<system>/'
  '<hospital>/, test/<class>/ and prevalence.csv',
  load=load,
  check_files=check_files,
  has_unlabelled=True,
  has_sets=True,
  is_of_user=True,
  defaults=run_profiles.OWN_SETS,
)
