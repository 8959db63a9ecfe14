"""Image folders with a table of prevalences: systems of hospitals.

The layout of FedUL's case study (Section 4.3), where a client is a healthcare
system and a set a hospital of it:

    <data_dir>/train/<system>/<hospital>/*.png   images without labels
    <data_dir>/test/<class>/*.png                images with a label
    <data_dir>/prevalence.csv                    system, hospital and a column
                                                 for each class
                                                 (`datasets.sources.priors_csv`)

Images are 8-bit PNG of one size, all grey or all RGB. The paper's images, RSNA
Intracranial Hemorrhage Detection, need a registration with their publisher, a
conversion to PNG and this layout.
"""

import hashlib
import pathlib
from collections.abc import Sequence

import numpy as np
import psutil

from datasets.files import npz_files
from datasets.sources import priors_csv, run_profiles
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.sources.source_spec import SourceSpec

_TABLE = 'prevalence.csv'
_LAYOUT = (
  f'data_dir must hold train/<system>/<hospital>/, test/<class>/ and {_TABLE}'
)
_SIGNATURE = b'\x89PNG\r\n\x1a\n'
# Where a PNG file has its bits per channel: after the signature, the length and
# the name of the first chunk, width and height.
_BIT_DEPTH = 24


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the folders and the table.

  Args:
    data_dir: The folder that holds `train/`, `test/` and prevalence.csv.
    cache_dir: Not looked at: the files are read as they are.

  Returns:
    The source, with `sets`; training images have no labels.

  Raises:
    ValueError: If a file is absent or unusable, or they do not belong together.
  """
  del cache_dir
  root = check_files(data_dir)
  table = priors_csv.read(str(root / _TABLE), 'system', 'hospital')
  train_files = [
    file
    for system in _folders(root / 'train')
    for hospital in _folders(system)
    for file in _images(hospital)
  ]
  owners = [(f.parent.parent.name, f.parent.name) for f in train_files]
  sets = table.sets_of(owners)
  test_files = [file for c in _folders(root / 'test') for file in _images(c)]
  for file in test_files:
    if _class_of(file) not in table.class_names:
      raise ValueError(
        f'{file.parent} is named like no class of {_TABLE}, which has '
        f'{", ".join(table.class_names)}: rename the folder.'
      )
  digest = hashlib.sha256((root / _TABLE).read_bytes())
  images = _read([*train_files, *test_files], root, digest)
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
  """Returns `data_dir`, which must have the table and folders of images.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If one is not there, or a folder is empty.
  """
  if data_dir is None:
    raise ValueError(
      "dataset='image_sets' needs data_dir: the folder that holds train/, "
      'test/ and prevalence.csv.'
    )
  root = pathlib.Path(data_dir)
  if not (root / _TABLE).is_file():
    raise ValueError(f'{root / _TABLE}: no such file; {_LAYOUT}.')
  for name in ('train', 'test'):
    _folders(root / name)
  return root


def _class_of(file: pathlib.Path) -> str:
  return priors_csv.name_of(file.parent.name)


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
  if not folder.is_dir():
    raise ValueError(f'{folder}: no such folder; {_LAYOUT}.')
  # By name: the order in which a disk lists files is its own.
  return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
  found = _visible(folder)
  for path in found:
    if not path.is_dir():
      raise ValueError(
        f'{path} lies where only folders are expected: move it away.'
      )
  if not found:
    raise ValueError(f'{folder} is empty: put folders of PNG files into it.')
  return found


def _images(folder: pathlib.Path) -> list[pathlib.Path]:
  found = _visible(folder)
  for path in found:
    if path.suffix.lower() != '.png' or not path.is_file():
      raise ValueError(f'{path} is no PNG file: convert it, or move it away.')
  if not found:
    raise ValueError(f'{folder} is empty: put PNG files into it.')
  return found


def _read(
  files: Sequence[pathlib.Path], root: pathlib.Path, digest
) -> np.ndarray:
  """Reads all images, `uint8 [N, H, W, C]`, and adds them to the digest."""
  images = None
  for index, file in enumerate(files):
    content = file.read_bytes()
    digest.update(str(file.relative_to(root)).encode() + b'\0')
    digest.update(hashlib.sha256(content).digest())
    image = _decode(file, content)
    if images is None:
      images = _allocate(len(files), image.shape)
    if image.shape != images.shape[1:]:
      raise ValueError(
        f'{file} is {list(image.shape)} and {files[0]} '
        f'{list(images.shape[1:])} (height, width, channels): convert all to '
        'one form.'
      )
    images[index] = image
  return images


def _decode(file: pathlib.Path, content: bytes) -> np.ndarray:
  import tensorflow as tf

  if not content.startswith(_SIGNATURE):
    raise ValueError(f'{file} is no PNG file: convert it, or move it away.')
  try:
    image = tf.io.decode_png(content).numpy()
  except tf.errors.InvalidArgumentError as error:
    raise ValueError(
      f'{file} cannot be decoded as PNG: replace it, or move it away.'
    ) from error
  if image.shape[2] not in (1, 3):
    raise ValueError(
      f'{file} has {image.shape[2]} channels: convert it to grey or RGB, '
      'without transparency.'
    )
  if content[_BIT_DEPTH] > 8:
    raise ValueError(
      f'{file} has {content[_BIT_DEPTH]} bits per channel, of which 8 would be '
      'lost: convert it to 8 bits with the window of values that matters.'
    )
  return image


def _allocate(number: int, shape: tuple[int, ...]) -> np.ndarray:
  needed = number * int(np.prod(shape))
  free = psutil.virtual_memory().available
  if needed > free:
    raise ValueError(
      f'{number:,} images of {list(shape)} pixels take {needed / 1e9:.3g} GB, '
      f'and {free / 1e9:.3g} GB of memory are free: give fewer or smaller ones.'
    )
  return np.empty((number, *shape), np.uint8)


SPEC = SourceSpec(
  name='image_sets',
  description='your own sets as PNG files, <data_dir>/train/<system>/'
  '<hospital>/, test/<class>/ and prevalence.csv',
  load=load,
  check_files=check_files,
  has_unlabelled=True,
  has_sets=True,
  defaults=run_profiles.OWN_SETS,
)
