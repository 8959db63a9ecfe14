"""Checkpoints that are complete or absent, and never hold code.

The checkpoint of round 12 is the folder `round_00000012`: `state.npz` with the
flattened state, maybe further files, and `manifest.json` with the SHA-256 of
each of them and of itself, by which damage is recognised, but not forgery. No
file needs pickle, so that reading a checkpoint cannot run code.
"""

import contextlib
import io
import json
import logging
import os
import pathlib
import re
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tree

from datasets.files import npz_files
from experiments.artifacts import durable_files

_FORMAT = 2
_STATE = 'state.npz'
_MANIFEST = 'manifest.json'
# If the first checkpoint of a round is damaged, a second one has the suffix .1,
# since a rename cannot replace a folder.
_NAME = re.compile(r'round_(\d{8,})(?:\.(\d+))?')
# The fields of every manifest, beside its own SHA-256.
_FIELDS = {'format': int, 'round': int, 'fingerprint': dict, 'files': dict}

# How a digest begins where settings are compared.
SHA256 = 'sha256:'


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written, or no sound one can be read."""


class UnsoundCheckpointError(Exception):
  """A checkpoint cannot be used; the text says what is damaged."""


class FingerprintMismatch(ValueError):
  """A run would be resumed with other settings than it was started with."""


def check_fingerprint(
  stored: Mapping[str, Any],
  now: Mapping[str, Any],
  free: Collection[str] = (),
) -> None:
  """Compares the settings of an earlier start with the present ones.

  Those that differ, but for the free ones, are a table in the error.
  """
  absent = '(absent)'
  rows = []
  for name in sorted({*stored, *now} - set(free)):
    before, after = (str(values.get(name, absent)) for values in (stored, now))
    if before == after:
      continue
    if before.startswith(SHA256) and after.startswith(SHA256):
      # Of data: which they are is nothing to read.
      before, after = 'as it was', 'changed'
    rows.append((name, before, after))
  if rows:
    import tabulate  # It takes a while, which no other start needs.

    table = tabulate.tabulate(
      rows, ('name', 'stored', 'now'), 'plain', disable_numparse=True
    )
    raise FingerprintMismatch(
      'This run was started with other settings or data; restore them or '
      f'name another folder (--run_dir):\n{table}'
    )


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
  """Returns the content of a file of arrays, by name."""
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  return buffer.getvalue()


def unpack_arrays(content: bytes) -> dict[str, np.ndarray]:
  """Returns the arrays of a file by sorted name, if `pack_arrays` made it.

  NumPy allocates what a header declares before it reads, and unpacks what is
  packed, however large it becomes. So sizes are compared first; nothing is
  unpickled.
  """
  try:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      members = archive.infolist()
      if sum(member.file_size for member in members) > len(content):
        raise ValueError('its parts are larger than the whole')
      for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
          raise ValueError(f'{member.filename} is packed, as np.savez does not')
        with archive.open(member) as stream:
          _, _, declared = npz_files.read_npy_header(stream)
        if declared != member.file_size:
          raise ValueError(
            f'{member.filename} declares {declared} bytes and has '
            f'{member.file_size}'
          )
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
      return {name: arrays[name] for name in sorted(arrays.files)}
  except MemoryError:
    raise
  # The readers of zip and npy raise a dozen types where bytes make no sense to
  # them: whatever it is, np.savez did not write the file.
  except Exception as error:
    raise ValueError(f'no file of np.savez: {error}') from error


def _as_array(path: tuple, leaf: Any) -> np.ndarray:
  array = np.asarray(leaf, order='C')
  # Beside numbers, only bfloat16 and similar types ('V' without fields) are
  # plain bits; objects would need pickle.
  is_extension = array.dtype.kind == 'V' and array.dtype.names is None
  # Of texts, bytes alone: of differential privacy, they name the mechanism.
  if array.dtype.kind not in 'biufcS' and not is_extension:
    raise TypeError(
      f'The state holds {type(leaf).__name__} at {_name(path)}: a checkpoint '
      'takes arrays of numbers, booleans and bytes only.'
    )
  return array


def _name(path: tuple) -> str:
  return '/'.join(map(str, path)) or 'its root'


def _flatten(state: Any) -> dict[str, np.ndarray]:
  """Returns the arrays of a state by place, name, dtype and shape."""
  arrays = {}
  for place, (path, leaf) in enumerate(tree.flatten_with_path(state)):
    array = _as_array(path, leaf)
    label = f'{place:05d} {_name(path)} {array.dtype.name} {list(array.shape)}'
    arrays[label] = array
  return arrays


def _bits(array: np.ndarray) -> np.ndarray:
  # The npy format does not keep the name of an extension type.
  if array.dtype.kind == 'V':
    return array.view(f'u{array.dtype.itemsize}')
  return array


class CheckpointManager:
  """Saves and loads the state of a run; a saved state is on the disk.

  Attributes:
    pinned: The round whose checkpoint is kept however many follow, or `None`.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    template_state: Any,
    fingerprint: Mapping[str, Any],
    keep: int = 2,
  ):
    """Prepares the folder and removes the files of an interrupted save.

    All states have the structure, dtypes and shapes of the template. The
    settings in the fingerprint must not change when the run is resumed. Of so
    many checkpoints that are kept, all but one may be damaged.
    """
    self._folder = pathlib.Path(folder)
    self._template = template_state
    self._arrays = _flatten(template_state)
    # As it will be read: JSON has no tuples.
    self._fingerprint = json.loads(json.dumps(fingerprint))
    self._keep = keep
    self.pinned: int | None = None
    self._damaged: set[pathlib.Path] = set()
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
      durable_files.sweep(self._folder)
    except OSError as error:
      raise CheckpointError(
        f'The checkpoints in {self._folder} cannot be kept: {error.strerror}; '
        'make the folder writable or choose another run folder.'
      ) from error

  def oldest_round(self) -> int:
    """Returns the round of the oldest checkpoint, or 0 if there is none."""
    return min(_find(self._folder).values(), default=0)

  def is_sound(self, round_number: int) -> bool:
    """Returns whether a round has a checkpoint that can be loaded."""
    with contextlib.suppress(UnsoundCheckpointError, OSError):
      for path, number in reversed(_find(self._folder).items()):
        if number == round_number:
          _read(path, number)
          return True
    return False

  def drop_after(self, round_number: int) -> None:
    """Removes all checkpoints of later rounds.

    The newest goes first: a process that ends on its way leaves checkpoints of
    which the newest is as good as ever.
    """
    try:
      for path, number in reversed(_find(self._folder).items()):
        if number > round_number:
          durable_files.remove_folder(path)
          # A sound one may take its name.
          self._damaged.discard(path)
      durable_files.sync_folder(self._folder)
    except OSError as error:
      raise CheckpointError(
        f'The checkpoints after round {round_number} in {self._folder} cannot '
        f'be removed: {error.strerror}; make the folder writable and start '
        'again.'
      ) from error

  def save(
    self,
    round_number: int,
    state: Any,
    files: Mapping[str, bytes] | None = None,
  ) -> None:
    """Saves a state and further files; on return they are on the disk.

    The rounds done may not be less than at the newest sound checkpoint.
    """
    arrays = _flatten(state)
    self._check_structure(list(arrays), 'The state to save')
    packed = pack_arrays({name: _bits(array) for name, array in arrays.items()})
    contents = {_STATE: packed, **(files or {})}
    manifest = {
      'format': _FORMAT,
      'round': round_number,
      'fingerprint': self._fingerprint,
      'files': {
        name: durable_files.sha256(content)
        for name, content in contents.items()
      },
    }
    manifest = durable_files.seal(manifest)
    contents[_MANIFEST] = json.dumps(manifest, indent=2).encode()
    try:
      durable_files.write_folder(self._new_path(round_number), contents)
    except OSError as error:
      free = shutil.disk_usage(self._folder).free
      raise CheckpointError(
        f'The checkpoint of round {round_number} cannot be written to '
        f'{self._folder}: {error.strerror}; it needs '
        f'{sum(map(len, contents.values()))} bytes and the disk has {free} '
        'free. The last sound checkpoint is untouched: make room and start '
        'again to continue.'
      ) from error
    self.prune()
    self._remove(self._damaged)
    self._damaged.clear()

  def _new_path(self, round_number: int) -> pathlib.Path:
    existing = _find(self._folder)
    path = self._folder / f'round_{round_number:08d}'
    for earlier, number in existing.items():
      if number > round_number and earlier not in self._damaged:
        raise ValueError(
          f'round={round_number} is before a checkpoint of round {number}: '
          'continue from that one.'
        )
      if number == round_number:
        copy = int(earlier.suffix.removeprefix('.') or 0) + 1
        path = path.with_suffix(f'.{copy}')
    return path

  def prune(self) -> None:
    """Removes the checkpoints that are older than those to keep."""
    found = _find(self._folder)
    sound = [path for path in found if path not in self._damaged]
    # Where a round has several checkpoints, the last one is the newest.
    by_round = {found[path]: path for path in sound}
    kept = [*by_round.values()][-self._keep :] + [by_round.get(self.pinned)]
    self._remove(path for path in sound if path not in kept)

  def _remove(self, paths: Iterable[pathlib.Path]) -> None:
    try:
      for path in paths:
        durable_files.remove_folder(path)
    except OSError as error:
      raise CheckpointError(
        f'Old checkpoints in {self._folder} cannot be removed: '
        f'{error.strerror}. The newest one is written: make the folder '
        'writable and start again to continue.'
      ) from error

  def load_latest(
    self,
    accept: Callable[[int, dict[str, bytes]], None] | None = None,
  ) -> tuple[int, Any, dict[str, bytes]] | None:
    """Returns round, state and further files of the newest sound checkpoint.

    The state has numpy arrays where the template has arrays or tensors. Where
    `accept` raises `UnsoundCheckpointError` for a round and its further files,
    an older checkpoint is tried. Without any checkpoint it is `None`.
    """
    faults = []
    for path, round_number in reversed(_find(self._folder).items()):
      try:
        manifest, files = _read(path, round_number)
        check_fingerprint(manifest['fingerprint'], self._fingerprint)
        state = self._unflatten(files.pop(_STATE, b''), path)
        if accept is not None:
          accept(round_number, files)
      except (UnsoundCheckpointError, OSError) as error:
        self._damaged.add(path)
        faults.append(f'{path.name}: {error}')
        continue
      if faults:
        logging.getLogger(__name__).warning(
          'Damaged checkpoints in %s are passed over (%s): continuing from '
          'round %d; the next save removes them.',
          self._folder,
          '; '.join(faults),
          round_number,
        )
      return round_number, state, files
    if faults:
      raise CheckpointError(
        f'No checkpoint in {self._folder} is sound ({"; ".join(faults)}): '
        'restore the files from a copy, or choose another run folder.'
      )
    return None

  def _check_structure(self, found: Sequence[str], what: str) -> None:
    remedy = 'use the process and model that it was made with.'
    if len(found) != len(self._arrays):
      raise ValueError(
        f'{what} has {len(found)} arrays and this process '
        f'{len(self._arrays)}: {remedy}'
      )
    for other, own in zip(found, self._arrays, strict=True):
      if other != own:
        raise ValueError(
          f'{what} has {other} where this process has {own}: {remedy}'
        )

  def _unflatten(self, content: bytes, path: pathlib.Path) -> Any:
    """Returns the state of the checkpoint at `path`, from its verified file."""
    try:
      arrays = unpack_arrays(content)
    except ValueError as error:
      raise UnsoundCheckpointError(f'its {_STATE} cannot be read') from error
    other = UnsoundCheckpointError(f'its {_STATE} holds other arrays')
    if not all(
      name.endswith(f' {list(a.shape)}') for name, a in arrays.items()
    ):
      raise other
    self._check_structure(list(arrays), f'The checkpoint {path}')
    leaves = []
    for array, own, leaf in zip(
      arrays.values(),
      self._arrays.values(),
      tree.flatten(self._template),
      strict=True,
    ):
      if array.dtype != _bits(own).dtype:
        raise other
      array = array.view(own.dtype)
      if isinstance(leaf, (bool, int, float, complex, bytes, np.generic)):
        # It stays of its own type, Python's or numpy's.
        array = type(leaf)(array[()])
      leaves.append(array)
    return tree.unflatten_as(self._template, leaves)


def _find(folder: pathlib.Path) -> dict[pathlib.Path, int]:
  """Returns the round of each checkpoint, sound or not, oldest first."""
  if not folder.is_dir():
    return {}
  matches = (_NAME.fullmatch(path.name) for path in folder.iterdir())
  numbers = sorted((int(m[1]), int(m[2] or 0), m[0]) for m in matches if m)
  return {folder / name: number for number, _, name in numbers}


def rounds_done(folder: str | os.PathLike) -> int:
  """Returns the round of the newest checkpoint that looks sound, 0 without.

  Reads no more than manifests; the folder need not exist.
  """
  for path, round_number in reversed(_find(pathlib.Path(folder)).items()):
    with contextlib.suppress(UnsoundCheckpointError, OSError):
      _read_manifest(path, round_number)
      return round_number
  return 0


def load_file(folder: str | os.PathLike, name: str) -> tuple[int, bytes]:
  """Returns the round and the content of the newest sound file of this name."""
  folder = pathlib.Path(folder)
  faults = []
  for path, round_number in reversed(_find(folder).items()):
    try:
      manifest = _read_manifest(path, round_number)
      return round_number, _read_file(path, name, manifest)
    except (UnsoundCheckpointError, OSError) as error:
      faults.append(f'{path.name}: {error}')
  if faults:
    raise CheckpointError(
      f'No checkpoint in {folder} has a sound {name} ({"; ".join(faults)}): '
      'let the run go on for a round, with a higher --total_rounds if it is '
      'over.'
    )
  raise ValueError(
    f'{folder.parent} holds no checkpoint: let the run finish a round.'
  )


def _read(
  path: pathlib.Path, round_number: int
) -> tuple[dict[str, Any], dict[str, bytes]]:
  """Returns the verified manifest and files of the checkpoint at `path`."""
  manifest = _read_manifest(path, round_number)
  names = manifest['files']
  return manifest, {name: _read_file(path, name, manifest) for name in names}


def _read_file(
  path: pathlib.Path, name: str, manifest: Mapping[str, Any]
) -> bytes:
  """Returns the verified content of a file of the checkpoint at `path`."""
  content = (path / name).read_bytes()
  if durable_files.sha256(content) != manifest['files'].get(name):
    raise UnsoundCheckpointError(f'its {name} does not match its SHA-256')
  return content


def _read_manifest(path: pathlib.Path, round_number: int) -> dict[str, Any]:
  """Returns the verified manifest of the checkpoint at `path`."""
  try:
    manifest = durable_files.unseal((path / _MANIFEST).read_bytes())
  except ValueError as error:
    raise UnsoundCheckpointError('its manifest cannot be read') from error
  if manifest is None:
    raise UnsoundCheckpointError('its manifest does not match its SHA-256')
  # Whoever writes another manifest can seal that, too.
  for name, kind in _FIELDS.items():
    if not isinstance(manifest.get(name), kind):
      raise UnsoundCheckpointError(f'its manifest has no {name!r}')
  if manifest['format'] != _FORMAT or manifest['round'] != round_number:
    raise UnsoundCheckpointError('its manifest is of another round or format')
  return manifest
