"""Checkpoints that are complete or absent, and never hold code.

The checkpoint of round 12 is the folder `round_00000012`: `state.npz` with the
flattened state, maybe further files, and `manifest.json` with the SHA-256 of
each of them and of itself, by which damage is recognised, but not forgery. No
file needs pickle, so that reading a checkpoint cannot run code. Where clients
keep states, in files elsewhere, the manifest names those that belong to it.
"""

import contextlib
import io
import json
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tree

from experiments.artifacts import durable_files, run_folder, stored_arrays

_FORMAT = 1
_STATE = 'state.npz'
_MANIFEST = 'manifest.json'
_INDENT = 2  # Of the manifest.
# If the first checkpoint of a round is damaged, a second one has the suffix .1,
# since a rename cannot replace a folder.
_NAME = re.compile(r'round_(\d{8,})(?:\.(\d+))?')
# The fields of every manifest, beside its own SHA-256.
_FIELDS = {
  'format': int,
  'round': int,
  'fingerprint': dict,
  'leaves': list,
  'files': dict,
}


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written, or no sound one can be read."""


class UnsoundCheckpointError(Exception):
  """A checkpoint cannot be used; the text says what is damaged."""


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


def _flatten(state: Any) -> tuple[list[np.ndarray], list[dict[str, Any]]]:
  """Returns the arrays of `state`, and the name, dtype and shape of each."""
  arrays, specs = [], []
  for path, leaf in tree.flatten_with_path(state):
    array = _as_array(path, leaf)
    arrays.append(array)
    specs.append(
      {
        'name': _name(path),
        'dtype': array.dtype.name,
        'shape': list(array.shape),
      }
    )
  return arrays, specs


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

    Args:
      folder: Folder of the checkpoints; no other manager may use it.
      template_state: A state with the structure, dtypes and shapes to save.
      fingerprint: The settings that must not change when the run is resumed.
      keep: How many checkpoints to keep; with 2, one may be damaged.
    """
    self._folder = pathlib.Path(folder)
    self._template = template_state
    self._template_arrays, self._specs = _flatten(template_state)
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
    client_states: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
  ) -> None:
    """Saves a state; on return it is on the disk.

    Args:
      round_number: Rounds done; not less than at the newest sound checkpoint.
      state: A state with the structure of the template.
      client_states: The SHA-256 of each client's state that belongs to this
        checkpoint, by the name of its file, which is on the disk already.
        `None` where clients keep no state.
      files: The contents of further files, by name.
    """
    arrays, specs = _flatten(state)
    self._check_structure(specs, 'The state to save')
    buffer = io.BytesIO()
    np.savez(
      buffer, **{f'leaf_{i:05d}': _bits(a) for i, a in enumerate(arrays)}
    )
    contents = {_STATE: buffer.getvalue(), **(files or {})}
    manifest = {
      'format': _FORMAT,
      'round': round_number,
      'fingerprint': self._fingerprint,
      'leaves': specs,
      'files': {
        name: durable_files.sha256(content)
        for name, content in contents.items()
      },
    }
    if client_states is not None:
      manifest['client_states'] = dict(client_states)
    manifest = durable_files.seal(manifest, _INDENT)
    contents[_MANIFEST] = json.dumps(
      manifest, indent=_INDENT, sort_keys=True
    ).encode()
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
    later = [
      number
      for path, number in existing.items()
      if number > round_number and path not in self._damaged
    ]
    if later:
      raise ValueError(
        f'round={round_number} is before the newest checkpoint, of round '
        f'{later[-1]}: continue from that one.'
      )
    name = f'round_{round_number:08d}'
    copies = [
      int(_NAME.fullmatch(path.name)[2] or 0)
      for path, number in existing.items()
      if number == round_number
    ]
    return self._folder / (f'{name}.{max(copies) + 1}' if copies else name)

  def prune(self) -> None:
    """Removes the checkpoints that are older than those to keep."""
    sound = {
      path: number
      for path, number in _find(self._folder).items()
      if path not in self._damaged
    }
    # Where a round has several checkpoints, the last one is the newest.
    by_round = {number: path for path, number in sound.items()}
    kept = list(by_round.values())[-self._keep :]
    kept.append(by_round.get(self.pinned))
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
    check_client_states: Callable[[int, Mapping[str, str] | None], None]
    | None = None,
  ) -> tuple[int, Any, dict[str, bytes]] | None:
    """Loads the newest sound checkpoint.

    Args:
      check_client_states: Called with the round of a checkpoint and what `save`
        got as `client_states`. It raises `UnsoundCheckpointError` where the
        files do not match; an older checkpoint is then tried.

    Returns:
      Its round, state (numpy arrays where the template has arrays or tensors),
      and further files by name; `None` if there is no checkpoint at all.
    """
    faults = []
    for path, round_number in reversed(_find(self._folder).items()):
      try:
        manifest, files = _read(path, round_number)
        run_folder.check_fingerprint(manifest['fingerprint'], self._fingerprint)
        self._check_structure(manifest['leaves'], f'The checkpoint {path}')
        state = self._unflatten(_arrays(files.pop(_STATE, b'')))
        if check_client_states is not None:
          check_client_states(round_number, manifest.get('client_states'))
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

  def _check_structure(self, specs: list[dict[str, Any]], what: str) -> None:
    if len(specs) != len(self._specs):
      raise ValueError(
        f'{what} has {len(specs)} arrays and this process {len(self._specs)}: '
        'use the process and model that it was made with.'
      )
    for found, own in zip(specs, self._specs, strict=True):
      if found != own:
        raise ValueError(
          f'{what} has {found} where this process has {own}: use the process '
          'and model that it was made with.'
        )

  def _unflatten(self, arrays: list[np.ndarray]) -> Any:
    found = [(array.dtype, array.shape) for array in arrays]
    own = [(_bits(array).dtype, array.shape) for array in self._template_arrays]
    if found != own:
      raise UnsoundCheckpointError(
        f'its {_STATE} holds other arrays than its manifest says'
      )
    leaves = []
    for array, spec, leaf in zip(
      arrays, self._template_arrays, tree.flatten(self._template), strict=True
    ):
      if spec.dtype.kind == 'V':
        array = array.view(spec.dtype)
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


def _arrays(content: bytes) -> list[np.ndarray]:
  try:
    return list(stored_arrays.read(content).values())
  except ValueError as error:
    raise UnsoundCheckpointError(f'its {_STATE} cannot be read') from error


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
    manifest = durable_files.unseal((path / _MANIFEST).read_bytes(), _INDENT)
  except ValueError as error:
    raise UnsoundCheckpointError('its manifest cannot be read') from error
  if manifest is None:
    raise UnsoundCheckpointError('its manifest does not match its SHA-256')
  # Whoever writes another manifest can seal that, too.
  for name, kind in _FIELDS.items():
    if not isinstance(manifest.get(name), kind):
      raise UnsoundCheckpointError(f'its manifest has no {name!r}')
  if not isinstance(manifest.get('client_states', {}), dict):
    raise UnsoundCheckpointError("its manifest has no table 'client_states'")
  if manifest['format'] != _FORMAT or manifest['round'] != round_number:
    raise UnsoundCheckpointError('its manifest is of another round or format')
  return manifest
