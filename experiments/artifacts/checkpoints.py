"""Checkpoints that are complete or absent, and never hold code.

The checkpoint of round 12 is the folder `round_00000012`. It holds `state.npz`
with the flattened state, and `manifest.json` with the SHA-256 of the state and
of the manifest itself. By these, a damaged checkpoint is recognised. A new
folder has a temporary name until all its files are on the disk; then it is
renamed, and from then on the checkpoint exists. No file needs pickle, so that
reading a checkpoint cannot run code. There may be further files, each with its
SHA-256 in the manifest.

Where clients keep states, in files elsewhere, the manifest also names the files
that belong to the checkpoint, each with its SHA-256.
"""

import contextlib
import hashlib
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

from experiments.artifacts import run_folder, stored_arrays

_FORMAT = 1
_STATE = 'state.npz'
_MANIFEST = 'manifest.json'
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

# The fields for each array of the state.
_LEAF_FIELDS = {'name', 'dtype', 'shape'}


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written, or no sound one can be read."""


class UnsoundCheckpointError(Exception):
  """A checkpoint cannot be used; the text says what is damaged."""


def _digest(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()


def _canonical(manifest: Mapping[str, Any]) -> bytes:
  return json.dumps(manifest, indent=2, sort_keys=True).encode()


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
  """Saves and loads the state of a run; a saved state is on the disk."""

  def __init__(
    self,
    folder: str | os.PathLike,
    template_state: Any,
    fingerprint: Mapping[str, Any],
    keep: int = 2,
  ):
    """Prepares `folder` and removes the files of an interrupted save.

    Args:
      folder: Folder of the checkpoints; no other manager may use it.
      template_state: A state with the structure, dtypes and shapes to save,
        such as the initial one.
      fingerprint: The settings that must not change when the run is resumed, of
        JSON types.
      keep: How many checkpoints to keep, at least 1. With 2, there is another
        one if the newest is damaged.

    Raises:
      ValueError: If `keep` is less than 1.
      TypeError: If the template holds anything but numbers and bytes.
      CheckpointError: If the folder cannot be used.
    """
    if keep < 1:
      raise ValueError(f'keep={keep!r} must be at least 1.')
    self._folder = pathlib.Path(folder)
    self._template = template_state
    self._template_arrays, self._specs = _flatten(template_state)
    # As it will be read: JSON has no tuples.
    self._fingerprint = json.loads(json.dumps(fingerprint))
    self._keep = keep
    self._pinned: int | None = None
    self._loaded: pathlib.Path | None = None
    self._damaged: set[pathlib.Path] = set()
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
      run_folder.sweep_temporaries(self._folder)
    except OSError as error:
      raise CheckpointError(
        f'The checkpoints in {self._folder} cannot be kept: {error.strerror}; '
        'make the folder writable or choose another run folder.'
      ) from error

  def _checkpoints(self) -> dict[pathlib.Path, int]:
    return _find(self._folder)

  def oldest_round(self) -> int:
    """Returns the round of the oldest checkpoint, or 0 if there is none."""
    return min(self._checkpoints().values(), default=0)

  def pin(self, round_number: int | None) -> None:
    """Keeps the checkpoint of a round, however many there are after it.

    Args:
      round_number: The round, in the place of one that was pinned before;
        `None` for no round.
    """
    self._pinned = round_number

  def is_sound(self, round_number: int) -> bool:
    """Returns whether a round has a checkpoint that can be loaded.

    Args:
      round_number: The round.
    """
    paths = [p for p, n in self._checkpoints().items() if n == round_number]
    if not paths:
      return False
    try:
      _, arrays = _read(paths[-1], round_number)
      self._check_arrays(arrays)
    except (UnsoundCheckpointError, OSError):
      return False
    return True

  def drop_after(self, round_number: int) -> None:
    """Removes all checkpoints of later rounds, the newest first.

    A process that ends on its way leaves checkpoints of which the newest is as
    good as ever.

    Args:
      round_number: The round.

    Raises:
      CheckpointError: If one cannot be removed.
    """
    try:
      for path, number in reversed(self._checkpoints().items()):
        if number > round_number:
          _remove(path)
          # A sound one may take its name.
          self._damaged.discard(path)
      run_folder.sync_folder(self._folder)
    except OSError as error:
      raise CheckpointError(
        f'The checkpoints after round {round_number} in {self._folder} cannot '
        f'be removed: {error.strerror}; make the folder writable and start '
        'again.'
      ) from error

  def file_of_loaded(self, name: str) -> bytes | None:
    """Returns a file beside the state that `load_latest` loaded.

    Args:
      name: Of the file, as `save` got it.

    Returns:
      Its content, or `None` if there is no such file.

    Raises:
      CheckpointError: If it has changed since.
    """
    if self._loaded is None:
      return None
    try:
      manifest = _read_manifest(self._loaded, self._checkpoints()[self._loaded])
      if name not in manifest['files']:
        return None
      return _read_file(self._loaded, name, manifest)
    except (UnsoundCheckpointError, OSError) as error:
      raise CheckpointError(f'{self._loaded}: {error}') from error

  def save(
    self,
    round_number: int,
    state: Any,
    client_states: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
  ) -> None:
    """Saves `state`; on return it is on the disk.

    Args:
      round_number: Number of rounds that made the state; not less than that of
        the newest sound checkpoint.
      state: A state with the structure of the template.
      client_states: The SHA-256 of each file of a client's state that belongs
        to this checkpoint, by name. The files are on the disk already. `None`
        where clients keep no state.
      files: The contents of further files, by name; `load_file` reads them.

    Raises:
      ValueError: If the state differs in structure from the template, or a
        later checkpoint exists.
      CheckpointError: If it cannot be written; earlier ones are unchanged.
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
      'files': {name: _digest(content) for name, content in contents.items()},
    }
    if client_states is not None:
      manifest['client_states'] = dict(client_states)
    manifest['sha256'] = _digest(_canonical(manifest))
    try:
      self._commit(round_number, contents, _canonical(manifest))
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

  def _commit(
    self, round_number: int, contents: Mapping[str, bytes], manifest: bytes
  ) -> None:
    existing = self._checkpoints()
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
    if copies:
      name = f'{name}.{max(copies) + 1}'
    temporary = self._folder / f'{run_folder.TEMPORARY_PREFIX}{name}'
    if temporary.exists():  # An earlier attempt of this manager failed.
      shutil.rmtree(temporary)
    temporary.mkdir()
    for own_name, content in contents.items():
      run_folder.write_durably(temporary / own_name, content)
    run_folder.write_durably(temporary / _MANIFEST, manifest)
    temporary.rename(self._folder / name)
    run_folder.sync_folder(self._folder)

  def prune(self) -> None:
    """Removes the checkpoints that are older than those to keep.

    `save` does so, too, and removes those that `load_latest` found damaged.

    Raises:
      CheckpointError: If one cannot be removed.
    """
    sound = {
      path: number
      for path, number in self._checkpoints().items()
      if path not in self._damaged
    }
    # Where a round has several checkpoints, the last one is the newest.
    by_round = {number: path for path, number in sound.items()}
    kept = list(by_round.values())[-self._keep :]
    kept.append(by_round.get(self._pinned))
    self._remove(path for path in sound if path not in kept)

  def _remove(self, paths: Iterable[pathlib.Path]) -> None:
    try:
      for path in paths:
        _remove(path)
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
  ) -> tuple[int, Any] | None:
    """Loads the newest sound checkpoint.

    Args:
      check_client_states: Called with the round of a checkpoint and what `save`
        got as `client_states`. It raises `UnsoundCheckpointError` where the
        files do not match; an older checkpoint is then tried. `None` where only
        the server's state is of interest.

    Returns:
      Its round and state (numpy arrays where the template has arrays or
      tensors), or None if there is no checkpoint at all.

    Raises:
      CheckpointError: If there are checkpoints, and none is sound.
      ValueError: If the newest sound one differs in structure from the
        template.
      run_folder.FingerprintMismatch: If it was made with other settings.
    """
    faults = []
    for path, round_number in reversed(self._checkpoints().items()):
      try:
        manifest, arrays = _read(path, round_number)
        run_folder.check_fingerprint(manifest['fingerprint'], self._fingerprint)
        self._check_structure(manifest['leaves'], f'The checkpoint {path}')
        self._check_arrays(arrays)
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
      self._loaded = path
      return round_number, self._unflatten(arrays)
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

  def _check_arrays(self, arrays: list[np.ndarray]) -> None:
    """Compares what `state.npz` holds with what the manifest says of it."""
    found = [(array.dtype, array.shape) for array in arrays]
    own = [(_bits(array).dtype, array.shape) for array in self._template_arrays]
    if found != own:
      raise UnsoundCheckpointError(
        f'its {_STATE} holds other arrays than its manifest says'
      )

  def _unflatten(self, arrays: list[np.ndarray]) -> Any:
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


def _remove(path: pathlib.Path) -> None:
  """Removes a checkpoint; nobody sees one that is half removed."""
  doomed = path.with_name(f'{run_folder.TEMPORARY_PREFIX}{path.name}')
  path.rename(doomed)
  run_folder.remove(doomed)


def _find(folder: pathlib.Path) -> dict[pathlib.Path, int]:
  """Returns the round of each checkpoint, sound or not, oldest first."""
  matches = (_NAME.fullmatch(path.name) for path in folder.iterdir())
  numbers = sorted((int(m[1]), int(m[2] or 0), m[0]) for m in matches if m)
  return {folder / name: number for number, _, name in numbers}


def rounds_done(folder: str | os.PathLike) -> int:
  """Returns the round of the newest checkpoint that looks sound, 0 without.

  Needs no template of the state, leaves the folder as it is, and reads no more
  than the manifests.

  Args:
    folder: Folder of the checkpoints; it need not exist.
  """
  folder = pathlib.Path(folder)
  for path, round_number in reversed(
    _find(folder).items() if folder.is_dir() else ()
  ):
    with contextlib.suppress(UnsoundCheckpointError, OSError):
      _read_manifest(path, round_number)
      return round_number
  return 0


def load_file(folder: str | os.PathLike, name: str) -> tuple[int, bytes]:
  """Loads a file that was saved beside the state, of the newest sound one.

  Needs no template of the state, and leaves the folder as it is.

  Args:
    folder: Folder of the checkpoints.
    name: Of the file.

  Returns:
    The checkpoint's round, and the content of the file.

  Raises:
    ValueError: If there is no checkpoint at all.
    CheckpointError: If there are some, and in none is the file sound.
  """
  folder = pathlib.Path(folder)
  faults = []
  for path, round_number in reversed(
    _find(folder).items() if folder.is_dir() else ()
  ):
    try:
      manifest = _read_manifest(path, round_number)
      if name not in manifest['files']:
        raise UnsoundCheckpointError(
          f'it has no {name}, as those of older versions of tff_ssl'
        )
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
) -> tuple[dict[str, Any], list[np.ndarray]]:
  """Returns the verified manifest and arrays of the checkpoint at `path`."""
  manifest = _read_manifest(path, round_number)
  content = _read_file(path, _STATE, manifest)
  try:
    return manifest, list(stored_arrays.read(content).values())
  except ValueError as error:
    raise UnsoundCheckpointError(f'its {_STATE} cannot be read') from error


def _read_file(
  path: pathlib.Path, name: str, manifest: Mapping[str, Any]
) -> bytes:
  """Returns the verified content of a file of the checkpoint at `path`."""
  content = (path / name).read_bytes()
  if _digest(content) != manifest['files'].get(name):
    raise UnsoundCheckpointError(f'its {name} does not match its SHA-256')
  return content


def _read_manifest(path: pathlib.Path, round_number: int) -> dict[str, Any]:
  """Returns the verified manifest of the checkpoint at `path`."""
  try:
    manifest = json.loads((path / _MANIFEST).read_bytes())
    stored = manifest.pop('sha256')
    sealed = _canonical(manifest)
  except (
    *(ValueError, KeyError, TypeError, AttributeError),
    RecursionError,  # Lists in lists, a thousand deep.
  ) as error:
    raise UnsoundCheckpointError('its manifest cannot be read') from error
  if _digest(sealed) != stored:
    raise UnsoundCheckpointError('its manifest does not match its SHA-256')
  for name, kind in _FIELDS.items():
    if not isinstance(manifest.get(name), kind):
      raise UnsoundCheckpointError(f'its manifest has no {name!r}')
  if not isinstance(manifest.get('client_states', {}), dict):
    raise UnsoundCheckpointError("its manifest has no table 'client_states'")
  if not all(
    isinstance(leaf, dict) and leaf.keys() == _LEAF_FIELDS
    for leaf in manifest['leaves']
  ):
    raise UnsoundCheckpointError("its manifest has odd 'leaves'")
  if manifest['format'] != _FORMAT or manifest['round'] != round_number:
    raise UnsoundCheckpointError('its manifest is of another round or format')
  return manifest
