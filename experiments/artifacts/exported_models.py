"""Classifiers that `experiments.export` wrote, read without their runs."""

import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.sources.own import examples_to_classify
from experiments.artifacts import run_folder

# Beside the SavedModel: the names of its classes, and how files become
# examples.
_CLASSES = 'classes.json'
_PREPROCESSING = 'preprocessing.json'
_CLASS_NAMES = 'class_names'
_MODEL = 'saved_model.pb'
_REMEDY = 'export the classifier again, with experiments.export'
# Bounds the memory of one forward pass.
_BATCH = 512


class ExportedModel:
  """A classifier with its input shape and the names of its classes.

  Attributes:
    input_shape: Height, width and channels of images; the number of features;
      empty for texts.
    class_names: The names of its classes.
    preprocessing: How files become examples (`Source.preprocessing`); empty
      where they hold them.
  """

  def __init__(
    self,
    model,
    class_names: Sequence[str] | None,
    preprocessing: Mapping[str, Any],
  ):
    """Initializes the classifier.

    Args:
      model: What `tf.saved_model.load` returned.
      class_names: The names of its classes; their numbers by default.
      preprocessing: As above.

    Raises:
      ValueError: If `experiments.export` did not write the model, or it has
        another number of classes.
    """
    try:
      serve = model.signatures['serving_default']
      _, inputs = serve.structured_input_signature
      ((_, examples),) = inputs.items()
      shape = examples.shape[1:]
      num_classes = serve.structured_outputs['probabilities'].shape[-1]
      self._classify = model.with_probabilities
      # The function alone does not keep the variables alive.
      self._model = model
    except (AttributeError, LookupError, TypeError) as error:
      raise ValueError(
        'holds a SavedModel of another program: name a folder that '
        'experiments.export wrote.'
      ) from error
    if class_names is None:
      class_names = [str(index) for index in range(num_classes)]
    if len(class_names) != num_classes:
      raise ValueError(
        f'holds a model of {num_classes} classes and {len(class_names)} names '
        f'in {_CLASSES}: {_REMEDY}.'
      )
    if not _fits(preprocessing, tuple(shape)):
      raise ValueError(f'holds a {_PREPROCESSING} of another model: {_REMEDY}.')
    self.input_shape = tuple(shape)
    self.class_names = tuple(class_names)
    self.preprocessing = preprocessing

  def probabilities(self, examples: np.ndarray) -> np.ndarray:
    """Returns the probability of each class, `float32 [N, d]`.

    Args:
      examples: Images `[N, H, W, C]`, `uint8`, or floats from 0 to 1; features
        `float32 [N, F]`; or texts, strings `[N]`.
    """
    return np.concatenate(
      [
        self._classify(tf.constant(examples[start : start + _BATCH]))[
          'probabilities'
        ].numpy()
        for start in range(0, len(examples), _BATCH)
      ]
    )


def write_class_names(folder: pathlib.Path, class_names: Sequence[str]) -> None:
  """Writes the names of a model's classes into its folder.

  Args:
    folder: Of the SavedModel.
    class_names: The names, in the order of the classes.

  Raises:
    OSError: If they cannot be written.
  """
  text = json.dumps({_CLASS_NAMES: list(class_names)}, indent=2)
  (folder / _CLASSES).write_text(f'{text}\n')


def write_preprocessing(
  folder: pathlib.Path, preprocessing: Mapping[str, Any]
) -> None:
  """Writes how files become examples into a model's folder.

  Args:
    folder: Of the SavedModel.
    preprocessing: `Source.preprocessing`.

  Raises:
    OSError: If it cannot be written.
  """
  text = json.dumps(preprocessing, indent=1)
  (folder / _PREPROCESSING).write_text(f'{text}\n')


def load(path: pathlib.Path) -> ExportedModel:
  """Loads a classifier.

  Args:
    path: The folder that `experiments.export` wrote, or that of a run with such
      a folder in its `classifier`.

  Raises:
    ValueError: If there is none, or it cannot be read; the text says what the
      path holds, and a remedy.
  """
  places = (path, path / run_folder.CLASSIFIER)
  folder = next((p for p in places if (p / _MODEL).is_file()), None)
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
  # Older exports have no names.
  names = _read(folder / _CLASSES, lambda c: _texts(c[_CLASS_NAMES]))
  preprocessing = _read(folder / _PREPROCESSING, _checked_preprocessing)
  return ExportedModel(model, names, preprocessing or {})


def _read(file: pathlib.Path, parse: Callable[[Any], Any]) -> Any:
  """Returns what a file holds; `None` where there is no file."""
  if not os.path.lexists(file):
    return None
  try:
    if not file.is_file():
      raise OSError('no file')  # Who opens a pipe waits for ever.
    return parse(json.loads(file.read_text('utf-8')))
  except (
    *(OSError, ValueError, LookupError, TypeError, AttributeError),
    OverflowError,  # A whole number of hundreds of digits.
    RecursionError,  # Lists in lists, a thousand deep.
  ) as error:
    raise ValueError(f'holds a damaged {file.name}: {_REMEDY}.') from error


def _texts(values: Any) -> list[str]:
  if not isinstance(values, list) or {*map(type, values)} - {str}:
    raise TypeError('no list of names')
  return values


def _checked_preprocessing(content: Any) -> Mapping[str, Any]:
  """Returns what `Source.preprocessing` can be, where the content is that."""
  if content['kind'] not in examples_to_classify.KINDS:
    raise ValueError('an unknown kind')
  if content['kind'] == 'text':
    _texts(content['words'])
  if content['kind'] == 'table':
    ends = [end for ends in content['ranges'].values() for end in ends]
    if not all(map(math.isfinite, [*content['numbers'].values(), *ends])):
      raise ValueError('a mean or an end that is not finite')
    if content['ranges'].keys() != content['numbers'].keys() or len(
      ends
    ) != 2 * len(content['numbers']):
      raise ValueError('numbers without two ends')
    for words in content['words'].values():
      _texts(words)
  return content


def _fits(preprocessing: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
  """Returns whether files become examples of this shape."""
  kind = preprocessing.get('kind')
  if kind == 'table':
    words = preprocessing['words'].values()
    return shape == (len(preprocessing['numbers']) + sum(map(len, words)),)
  return kind != 'text' or shape == ()
