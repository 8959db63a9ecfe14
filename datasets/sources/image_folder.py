"""The user's own pictures, in folders.

    <data_dir>/train/<client>/<class>/       a client's images of a class
    <data_dir>/train/<client>/_unlabelled/   its images without a label
    <data_dir>/test/<class>/                 test images
    <data_dir>/validation/<class>/           (optional) validation images
    <data_dir>/server/<class>/               (optional) the server's images,
                                             which takes none from clients then

Images are PNG or JPEG files of any size, grey or in colour
(`datasets.files.square_images`). The decoded squares are kept in
`<cache_dir>/image_folder/<digest>.npz`, where the digest is that of the names
and the contents of all files and of the size of the squares.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from datasets.files import (
  decoded_arrays,
  image_files,
  npz_files,
  square_images,
)
from datasets.sources import priors_csv, run_profiles
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.sources.source_spec import SourceSpec
from tff_ssl.setting import Setting

UNLABELLED = '_unlabelled'
_SERVER = 'server'

_LAYOUT = image_files.Layout(
  'image_folder',
  holds='train/<client>/<class>/ and test/<class>/',
  kind='PNG or JPEG',
  suffixes=('.png', '.jpg', '.jpeg'),
)

SIDE = Setting(
  'image_folder_side',
  int,
  'Height and width in pixels: images are scaled so that the shorter side has '
  'as many, and the middle square is cut.',
  default=32,
  at_least=4,
)


@dataclasses.dataclass(frozen=True)
class _Files:
  """The files of a split.

  Attributes:
    paths: The N files.
    classes: The class of each; `None` without a label.
    owners: The client of each; empty if there are none.
  """

  paths: tuple[pathlib.Path, ...]
  classes: tuple[str | None, ...]
  owners: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Folders:
  """What the folder of a data set holds.

  Attributes:
    root: The folder.
    class_names: The classes, sorted.
    splits: The files by split: `train`, `test`, and `validation` and `server`
      if they are there.
  """

  root: pathlib.Path
  class_names: tuple[str, ...]
  splits: Mapping[str, _Files]


def load(data_dir: str | None, cache_dir: str, side: int = 32) -> Source:
  """Loads the images.

  Training examples have the order of the names of clients, classes and files.
  The mean, the standard deviation and the background (the median of the corner
  pixels) are computed from the training images.

  Args:
    data_dir: The folder that holds `train/` and `test/`.
    cache_dir: The folder for the decoded images.
    side: Height and width of the images.

  Returns:
    The source. Classes are numbered in the order of their names. A training
    image may lack a label (`UNKNOWN`).

  Raises:
    ValueError: If a folder or a file is absent or unusable.
    OSError: If the cache cannot be written.
  """
  folders = check_files(data_dir)
  digest = _digest(folders, side)
  images = _images(folders, side, cache_dir, digest)
  ends = np.cumsum([len(files.paths) for files in folders.splits.values()])
  splits = {
    name: _split(part, files, folders.class_names)
    for (name, files), part in zip(
      folders.splits.items(), np.split(images, ends[:-1]), strict=True
    )
  }
  train, server = splits['train'], splits.pop(_SERVER, None)
  folder = npz_files.NpzFile(str(folders.root / 'train'), 'replace the images')
  mean, stddev = npz_files.moments(train.images, folder, 'images')
  return Source(
    name='image_folder',
    version=f'image-folder-{digest}',
    title=_title(folders, train),
    num_classes=len(folders.class_names),
    mean=mean,
    stddev=stddev,
    background=npz_files.background(train.images),
    mirrorable=False,
    names=folders.class_names,
    num_server=0 if server is None else len(server.labels),
    preprocessing={'kind': 'pictures', 'side': side},
    **{**splits, 'train': train.followed_by(server)},
  )


def check_files(data_dir: str | None) -> Folders:
  """Returns what lies in the folders, after checks that open no file.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If a folder is absent or empty, or holds what does not belong
      there, or classes do not fit together.
  """
  root = _LAYOUT.root(data_dir)
  train = _train_files(root / 'train')
  server_names = (
    set(_classes(root / _SERVER)) if (root / _SERVER).is_dir() else set()
  )
  class_names = tuple(sorted(set(train.classes) - {None} | server_names))
  if len(class_names) < 2:
    found = f'only the class {class_names[0]!r}' if class_names else 'no class'
    raise ValueError(
      f'{root / "train"} has {found}: put labelled images of two classes or '
      'more into train/<client>/<class>/ or server/<class>/.'
    )
  splits = {'train': train, 'test': _labelled_files(root / 'test', class_names)}
  # Of all names for it, one is read.
  for path in image_files.visible(root):
    if path.name in ('validation', _SERVER):
      splits[path.name] = _labelled_files(path, class_names)
    elif path.name.lower().startswith('val') and path.is_dir():
      raise ValueError(
        f'{path} is not read: call it validation, or move it away.'
      )
  return Folders(root, class_names, splits)


def _train_files(folder: pathlib.Path) -> _Files:
  rows = [
    (file, None if name == UNLABELLED else name, client)
    for client, own in _by_name(folder).items()
    for name, path in _classes(own, (UNLABELLED,)).items()
    for file in _LAYOUT.images(path)
  ]
  return _Files(*zip(*rows, strict=True))


def _labelled_files(
  folder: pathlib.Path, class_names: tuple[str, ...]
) -> _Files:
  rows = []
  for name, path in _classes(folder).items():
    if name not in class_names:
      raise ValueError(
        f'{path}: no training image has the class {name!r}, which accuracy '
        'needs: rename the folder, move it away, or put labelled images into '
        f'train/<client>/{name}/.'
      )
    rows += [(file, name) for file in _LAYOUT.images(path)]
  return _Files(*zip(*rows, strict=True))


def _classes(
  folder: pathlib.Path, allowed: Collection[str] = ()
) -> dict[str, pathlib.Path]:
  """Returns the folders of classes by name.

  Args:
    folder: Where they lie.
    allowed: Names that begin with an underscore and may be there.
  """
  found = _by_name(folder)
  for name, path in found.items():
    if name.startswith('_') and name not in allowed:
      raise ValueError(
        f'{path} has a name that no class may have here: images without a '
        f'label belong in train/<client>/{UNLABELLED}/, and classes begin with '
        'another character.'
      )
  return found


def _by_name(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns the folders in a folder by name."""
  found = {}
  for path in _LAYOUT.folders(folder):
    name = priors_csv.name_of(path.name)
    try:
      name.encode()
    except UnicodeEncodeError as error:
      raise ValueError(
        f'{path} has a name that is not UTF-8: rename the folder.'
      ) from error
    if name in found:
      raise ValueError(
        f'{path} and {found[name]} have one name, but for spaces or the way in '
        'which accents are written: rename one of them.'
      )
    found[name] = path
  return found


def _digest(folders: Folders, side: int) -> str:
  digest = hashlib.sha256(f'{square_images.DECODING} {side}'.encode())
  for files in folders.splits.values():
    for path in files.paths:
      try:
        content = path.read_bytes()
      except OSError as error:
        raise ValueError(
          f'{path} cannot be read ({error.strerror}): make it readable, or '
          'move it away.'
        ) from error
      image_files.add_to_digest(digest, folders.root, path, content)
  return digest.hexdigest()[:16]


def _images(
  folders: Folders, side: int, cache_dir: str, digest: str
) -> np.ndarray:
  """Returns the images of all splits, decoded or from the cache."""
  path = os.path.join(cache_dir, 'image_folder', f'{digest}.npz')
  arrays = decoded_arrays.read(path)
  if arrays is None:
    files = [file for part in folders.splits.values() for file in part.paths]
    images = square_images.read(files, side)
    arrays = decoded_arrays.write(path, {'images': images})
  return arrays['images']


def _split(
  images: np.ndarray, files: _Files, class_names: tuple[str, ...]
) -> Split:
  number_of = {name: number for number, name in enumerate(class_names)}
  labels = [number_of.get(name, UNKNOWN) for name in files.classes]
  return Split(
    images,
    np.array(labels, np.int32),
    np.array(files.owners, object) if files.owners else None,
  )


def _title(folders: Folders, train: Split) -> str:
  examples = ', '.join(
    f'{len(files.paths):,} {name}' for name, files in folders.splits.items()
  )
  clients = len(set(folders.splits['train'].owners))
  title = (
    f'images in {folders.root.resolve().name}: {examples} examples, the '
    f'training images of {clients:,} client{"" if clients == 1 else "s"}'
  )
  unlabelled = np.count_nonzero(train.labels == UNKNOWN)
  if unlabelled:
    title += f'; {unlabelled:,} of the training images have no label'
  return title


def _num_clients(data_dir: str | None) -> int:
  """Returns the number of clients that have a folder; 0 where none is found."""
  if data_dir is None:
    return 0
  folder = pathlib.Path(data_dir).expanduser() / 'train'
  if not folder.is_dir():
    return 0
  return sum(path.is_dir() for path in image_files.visible(folder))


def _count_server(data_dir: str | None) -> int:
  """Returns the number of the server's own images."""
  if data_dir is None:
    return 0
  folder = pathlib.Path(data_dir).expanduser() / _SERVER
  if not folder.is_dir():
    return 0
  try:
    return sum(len(_LAYOUT.images(path)) for path in _classes(folder).values())
  except ValueError:  # Who reads the folder reports it.
    return 0


def _defaults(given: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns the defaults; if several clients have folders, these take part."""
  folder = given.get('data_dir')
  values = run_profiles.with_owners(
    run_profiles.OWN_IMAGES, _num_clients(folder), given
  )
  return run_profiles.with_server(values, _count_server(folder))


SPEC = SourceSpec(
  name='image_folder',
  description='your own pictures, <data_dir>/train/<client>/<class>/*.png or '
  '*.jpg and test/<class>/',
  load=load,
  check_files=check_files,
  settings=(SIDE,),
  has_native_split=True,
  may_lack_labels=True,
  is_of_user=True,
  defaults=_defaults,
)
