"""Files that travel between machines that share no disk.

A file keeps its path. Where the machines do share a disk after all, nothing
changes: each finds what it would have been sent.
"""

import dataclasses
import fcntl
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_ssl.common import whole_files

_PIECE_BYTES = 64 * 2**20

# The contents of a folder, by name of the file.
Contents = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Offer:
  """A file that machines fetch once.

  Attributes:
    path: Its absolute path, here and there.
    sha256: Of its bytes.
    pieces: References of its bytes, in order.
  """

  path: str
  sha256: str
  pieces: Sequence[Any]

  @classmethod
  def of(cls, path: str, put: Callable[[bytes], Any]) -> 'Offer':
    """Makes the offer of a file; `put` gives the reference of its bytes."""
    digest, pieces = hashlib.sha256(), []
    with open(path, 'rb') as file:
      while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
        pieces.append(put(piece))
    return cls(path, digest.hexdigest(), tuple(pieces))

  def fetch(self, get: Callable[[Any], bytes]) -> None:
    """Writes the file, unless it is there already."""
    os.makedirs(os.path.dirname(self.path), exist_ok=True)
    # Several processes of a machine may want it at once.
    with open(f'{self.path}.fetched', 'ab') as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      if os.path.exists(self.path) and _sha256(self.path) == self.sha256:
        return
      with whole_files.replacing(self.path) as file:
        for piece in self.pieces:
          file.write(get(piece))


def read(folders: Sequence[str]) -> dict[str, Contents]:
  """Returns the contents of folders, empty where there is none."""
  return {folder: _contents(pathlib.Path(folder)) for folder in folders}


def make_equal(contents: Mapping[str, Contents]) -> None:
  """Gives folders of this machine the contents that they have elsewhere."""
  for folder, wanted in contents.items():
    place = pathlib.Path(folder)
    present = _contents(place)
    for name in present.keys() - wanted.keys():
      (place / name).unlink(missing_ok=True)
    write({folder: _new(wanted, present)})


def changes(contents: Mapping[str, Contents]) -> dict[str, Contents]:
  """Returns the files that were written since `make_equal`."""
  return {
    folder: _new(_contents(pathlib.Path(folder)), before)
    for folder, before in contents.items()
  }


def write(contents: Mapping[str, Contents]) -> None:
  """Writes files; each is there as a whole or not at all."""
  for folder, files in contents.items():
    os.makedirs(folder, exist_ok=True)
    for name, content in files.items():
      # Whoever needs them on the disk waits for all of them at once.
      path = os.path.join(folder, name)
      with whole_files.replacing(path, synced=False) as file:
        file.write(content)


def _contents(folder: pathlib.Path) -> Contents:
  if not folder.is_dir():
    return {}
  return {
    path.name: path.read_bytes()
    for path in folder.iterdir()
    if path.is_file() and not path.name.startswith('.')
  }


def _new(files: Contents, before: Contents) -> Contents:
  return {k: v for k, v in files.items() if before.get(k) != v}


def _sha256(path: str) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()
