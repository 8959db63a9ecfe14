"""The user's own pictures, PNG or JPEG files of any size, in folders.

    <data_dir>/train/<client>/<class>/       a client's images of a class
    <data_dir>/train/<client>/_unlabelled/   its images without a label
    <data_dir>/test/<class>/                 (and validation, server)

The decoded squares are kept in `<cache_dir>/image_folder/<digest>.npz`, where
the digest is that of all files and of the size of the squares.
"""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from datasets.files import image_files, npz_files
from datasets.sources.own import npz, rows
from datasets.sources.own.rows import SERVER, TEST, TRAIN, VALIDATION, Rows
from datasets.sources.source import Source
from tff_ssl.common.setting import Setting

UNLABELLED = '_unlabelled'
_LAYOUT = image_files.Layout(
  'image_folder',
  holds='train/<client>/<class>/, or train/all/<class>/ where nobody owns '
  'images, and test/<class>/',
  kind='PNG or JPEG',
  suffixes=image_files.ENDINGS,
)

SIDE = Setting(
  'image_folder_side',
  int,
  'Height and width in pixels: images are scaled so that the shorter side has '
  'as many, and the middle square is cut.',
  default=32,
  at_least=4,
  needed_by="a user's own pictures",
)


def load(
  data_dir: str | None, cache_dir: str, side: int = SIDE.default
) -> Source:
  """Loads the images, in the order of their names."""
  found, labelled, notes = check_files(data_dir)
  files = [file for own in found.values() for file in own.examples]
  decoding = f'{image_files.DECODING} {side}'.encode()
  digest = image_files.digest(data_dir, files, decoding)
  path = os.path.join(cache_dir, 'image_folder', f'{digest}.npz')
  arrays = npz_files.kept(path)
  if arrays is None:
    decoded = image_files.read_squares(files, side)
    arrays = npz_files.keep(path, {'images': decoded})
  ends = np.cumsum([len(own.examples) for own in found.values()])
  parts = np.split(arrays['images'], ends[:-1])
  images = {
    split: npz.images_of(own.path, part)
    for (split, own), part in zip(found.items(), parts, strict=True)
  }
  clients = len(set(found[TRAIN].owners))
  return npz.source_of(
    labelled,
    f'images of {clients:,} client{"" if clients == 1 else "s"}',
    data_dir,
    found[TRAIN].path,
    images,
    name='image_folder',
    version=f'image-folder-{digest}',
    notes=notes,
    preprocessing={'kind': 'image_folder', 'side': side},
  )


def check_files(
  data_dir: str | None,
) -> tuple[dict[str, Rows], rows.Labelled, tuple[str, ...]]:
  """Returns the files by split, their labels, and sentences; opens no file."""
  root = _LAYOUT.root(data_dir)
  clients = _LAYOUT.folders(root / TRAIN)
  found = {TRAIN: _rows(root / TRAIN, clients)}
  for split in (SERVER, VALIDATION, TEST):
    if split == TEST or (root / split).is_dir():
      found[split] = _rows(root / split, {None: root / split})
  remedy = (
    'call it train, test, validation or server (images without a label lie in '
    f'train/<client>/{UNLABELLED}/)'
  )
  beside = rows.not_read(root, rows.SPLITS, remedy, ('',))
  return found, rows.read(found), beside


def _rows(
  path: pathlib.Path, of_owners: Mapping[str | None, pathlib.Path]
) -> Rows:
  """Returns the files of a split, whose owner is `None` where it has none."""
  files, labels, owners = [], [], []
  for owner, folder in of_owners.items():
    for name, own in _LAYOUT.folders(folder).items():
      if name.startswith('_') and (owner is None or name != UNLABELLED):
        raise ValueError(
          f'{own} has a name that no class may have here: images without a '
          f'label belong in train/<client>/{UNLABELLED}/, and classes begin '
          'with another character.'
        )
      images = _LAYOUT.images(own)
      files += images
      labels += [None if name == UNLABELLED else name] * len(images)
      owners += [owner] * len(images)
  return Rows(
    str(path),
    files,
    labels,
    None if None in of_owners else owners,
    place=lambda row: str(files[row].relative_to(path)),
    no_label=f'call the folder {UNLABELLED}',
    label_field='folders of classes',
    owner_field='folders of clients',
  )


def _decode(path, input_shape, preprocessing):
  file = pathlib.Path(path)
  if file.suffix.lower() not in image_files.ENDINGS:
    return npz.decode(path, input_shape, preprocessing)
  side, _, channels = input_shape
  images = image_files.read_squares([file], side, channels)
  return images, npz.unusual(images)


def _count_owners(folder: str) -> int:
  return len(image_files.visible(pathlib.Path(folder) / TRAIN))


def _count_server(folder: str) -> int:
  path = pathlib.Path(folder) / SERVER
  if not path.is_dir():
    return 0
  return len(_rows(path, {None: path}).examples)


SPEC = rows.spec(
  _count_owners,
  _count_server,
  name='image_folder',
  description='your own pictures, <data_dir>/train/<client>/<class>/*.png or '
  '*.jpg and test/<class>/',
  builder=load,
  check_files=check_files,
  settings=(SIDE,),
  signs=((TRAIN,),),
  endings=npz.SPEC.endings,
  decode=_decode,
)
