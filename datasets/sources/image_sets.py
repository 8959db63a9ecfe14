"""Image folders with a table of prevalences: healthcare systems and hospitals.

The layout follows the case study of FedUL (Section 4.3). Each client is a
healthcare system, and each of its sets is a hospital:

    <data_dir>/train/<system>/<hospital>/*.png   images without labels
    <data_dir>/test/<class>/*.png                images with a label
    <data_dir>/prevalence.csv                    system, hospital and a column
                                                 for each class
                                                 (`datasets.sources.priors_csv`)

Images are 8-bit PNG files of one size, all grey or all RGB. The paper uses the
images of RSNA Intracranial Hemorrhage Detection. Their publisher demands a
registration; convert them to PNG and arrange them in this layout.
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
# The position of the bits per channel in a PNG file: after the signature, the
# length and name of the first chunk, the width and the height.
_BIT_DEPTH = 24


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
        f'{file.parent} does not have the name of a class of {_TABLE} '
        f'({", ".join(table.class_names)}): rename the folder.'
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
  """Returns `data_dir` after checking that it has the table and the folders.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If the table or a folder is absent, or a folder is empty.
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
  # Sorted, because file systems list files in different orders.
  return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
  found = _visible(folder)
  for path in found:
    if not path.is_dir():
      raise ValueError(
        f'{path} is not a folder, and only folders may be here: move it away.'
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
      f'{file} has {content[_BIT_DEPTH]} bits per channel, and 8 of them would '
      'be lost: convert it to 8 bits with the window of values that matters.'
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
