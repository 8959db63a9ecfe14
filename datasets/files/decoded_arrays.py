"""Keeps decoded arrays in a cache: npz files that hold their own digest."""

import hashlib
import os
import zipfile
from collections.abc import Mapping

import numpy as np
from absl import logging

from tff_ssl import whole_files

DIGEST = 'sha256'


def write(path: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Writes arrays by name atomically; returns them as `read` does.

  The folder is created when needed.
  """
  arrays = {**arrays, DIGEST: _digest(arrays)}
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with whole_files.replacing(path) as stream:
    np.savez(stream, **arrays)
  return arrays


def read(path: str) -> dict[str, np.ndarray] | None:
  """Returns the arrays of a file, or `None` if it is absent or damaged."""
  if not os.path.isfile(path):
    return None
  try:
    with np.load(path, allow_pickle=False) as archive:
      arrays = dict(archive)
    sound = np.array_equal(arrays[DIGEST], _digest(arrays))
  except (zipfile.BadZipFile, EOFError, KeyError, OSError, ValueError):
    sound = False
  if sound:
    return arrays
  logging.warning('%s is damaged; it is decoded anew.', path)
  return None


def _digest(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
  digest = hashlib.sha256()
  for key in sorted(arrays.keys() - {DIGEST}):
    digest.update(f'{key} {arrays[key].dtype} {arrays[key].shape}'.encode())
    digest.update(np.ascontiguousarray(arrays[key]).data)
  return np.frombuffer(digest.digest(), np.uint8)
