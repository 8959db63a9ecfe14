"""Classifiers that `experiments.export` wrote, read without their runs."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from experiments.artifacts import durable_files, run_folder

# Beside the SavedModel: the names of its classes, and how files become
# examples.
_CLASSES = 'classes.json'
_PREPROCESSING = 'preprocessing.json'
_CLASS_NAMES = 'class_names'
_SHAPE = 'input_shape'
_MODEL = 'saved_model.pb'
_REMEDY = 'export the classifier again, with experiments.export'
# Bounds the memory of one forward pass.
_BATCH = 512


@dataclasses.dataclass(frozen=True)
class ExportedModel:
  """A classifier, from `tf.saved_model.load`, and what is known of it.

  Its input shape is empty for texts; `preprocessing` is that of a `Source`,
  empty where files hold the examples themselves.
  """

  model: Any
  input_shape: tuple[int, ...]
  class_names: tuple[str, ...]
  preprocessing: Mapping[str, Any]

  def probabilities(self, examples: np.ndarray) -> np.ndarray:
    """Returns the probability of each class, `float32 [N, d]`.

    Examples are images `[N, H, W, C]`, `uint8` or floats from 0 to 1; features
    `float32 [N, F]`; or texts, strings `[N]`.
    """
    batches = (
      tf.constant(examples[start : start + _BATCH])
      for start in range(0, len(examples), _BATCH)
    )
    return np.concatenate(
      [
        self.model.with_probabilities(batch)['probabilities'].numpy()
        for batch in batches
      ]
    )


def write_facts(
  folder: pathlib.Path,
  class_names: Sequence[str],
  preprocessing: Mapping[str, Any] | None,
  input_shape: Sequence[int],
) -> None:
  """Writes, beside a SavedModel, what else a reader of it must know."""
  text = json.dumps({_CLASS_NAMES: list(class_names)}, indent=2)
  (folder / _CLASSES).write_text(f'{text}\n')
  if preprocessing is not None:
    values = {**preprocessing, _SHAPE: list(input_shape)}
    text = json.dumps(durable_files.seal(values), indent=1)
    (folder / _PREPROCESSING).write_text(f'{text}\n')


def load(path: pathlib.Path) -> ExportedModel:
  """Loads a classifier from its folder, or from that of its run.

  The text of a `ValueError` says what the path holds, and a remedy.
  """
  folders = (path, path / run_folder.CLASSIFIER)
  folder = next((f for f in folders if (f / _MODEL).is_file()), None)
  if folder is None:
    is_run = (path / run_folder.FLAGS).is_file()
    raise ValueError(
      'holds no exported classifier: '
      + (
        f'write it with python -m experiments.export {path}.'
        if is_run
        else 'name a folder that experiments.export wrote.'
      )
    )
  try:
    model = tf.saved_model.load(str(folder))
  # TensorFlow raises a dozen types, some of them private, where a graph makes
  # no sense to it.
  except Exception as error:
    reason = str(error).partition('\n')[0]
    raise ValueError(
      f'holds a damaged SavedModel ({reason}): {_REMEDY}.'
    ) from error
  try:
    serve = model.signatures['serving_default']
    ((_, examples),) = serve.structured_input_signature[1].items()
    shape = tuple(examples.shape[1:])
    num_classes = serve.structured_outputs['probabilities'].shape[-1]
    _ = model.with_probabilities
  except (AttributeError, LookupError, TypeError) as error:
    raise ValueError(
      'holds a SavedModel of another program: name a folder that '
      'experiments.export wrote.'
    ) from error
  names = _read(folder / _CLASSES, _names)
  preprocessing = {}
  if os.path.lexists(folder / _PREPROCESSING):
    preprocessing = _read(folder / _PREPROCESSING, _unsealed)
  if len(names) != num_classes:
    raise ValueError(
      f'holds a model of {num_classes} classes and {len(names)} names '
      f'in {_CLASSES}: {_REMEDY}.'
    )
  if preprocessing and preprocessing.get(_SHAPE) != [*shape]:
    raise ValueError(f'holds a {_PREPROCESSING} of another model: {_REMEDY}.')
  return ExportedModel(model, shape, names, preprocessing)


def _read(file: pathlib.Path, parse: Callable[[bytes], Any]) -> Any:
  try:
    if not file.is_file():
      raise OSError('no file')  # Who opens a pipe waits for ever.
    return parse(file.read_bytes())
  except (
    *(OSError, ValueError, LookupError, TypeError),
    RecursionError,  # Lists in lists, a thousand deep.
  ) as error:
    raise ValueError(f'holds a damaged {file.name}: {_REMEDY}.') from error


def _names(content: bytes) -> tuple[str, ...]:
  """Reads the names of classes, which people may edit."""
  names = json.loads(content.decode())[_CLASS_NAMES]
  if not isinstance(names, list) or {*map(type, names)} - {str}:
    raise TypeError('no list of names')
  return tuple(names)


def _unsealed(content: bytes) -> dict[str, Any]:
  """Reads what `write_facts` sealed, since it decides what a model is given."""
  values = durable_files.unseal(content)
  if values is None:
    raise ValueError('it was changed')
  return values
