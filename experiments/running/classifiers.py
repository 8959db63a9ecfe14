"""The classifier of a run: in its checkpoints, and as a SavedModel.

Each checkpoint holds the classifier that the run evaluates and a description
from which it can be rebuilt. So the classifier can be exported without the data
and without the process that trained it.
"""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from datasets.sources.own import text
from experiments.artifacts import checkpoints, exported_models, run_folder
from experiments.parts import views
from experiments.preparing import execution_context
from tff_ssl import augmentation, models

ModelWeights = tff.learning.models.ModelWeights

# Its name in a checkpoint.
FILE = 'classifier.npz'
_DESCRIPTION = 'description'
_WEIGHTS = ('trainable', 'non_trainable')
# What an exported classifier takes, by the form of its examples, where that is
# not floats of the form's name; a serving system gets the first type.
_FLOATS = (tf.float32, tf.float64)
_TAKES = {
  'images': ('images', (*_FLOATS, tf.uint8)),
  'vectors': ('features', _FLOATS),
  'tokens': ('texts', (tf.string,)),
}


@dataclasses.dataclass(frozen=True)
class Description:
  """All that is needed to rebuild a classifier; the fields are JSON types.

  Attributes:
    input_shape: Height, width and channels; the number of features; or that of
      a text's words.
    mean, stddev: Those of each channel, in [0, 1], or of each feature, by which
      examples are standardised; `None` where images are pixels in [0, 1].
    pretraining_rounds: Number of first rounds that train no classifier.
    num_tokens: How many numbers words have, where it classifies texts.
    form: What examples are, a key of `FORMS`.
  """

  model: str
  norm: str
  input_shape: list[int]
  num_classes: int
  mean: list[float] | None
  stddev: list[float] | None
  pretraining_rounds: int
  class_names: list[str]
  preprocessing: dict[str, Any] | None = None
  num_tokens: int | None = None
  form: str = 'images'

  @property
  def views(self):
    """Gives `plain`, the examples as the model takes them."""
    moments = (of and tuple(of) for of in (self.mean, self.stddev))
    return views.unchanged(self.form, *moments)


def describe(opened) -> Description:
  """Returns the description of the classifier of a `building.Run`."""
  settings, source = opened.settings, opened.data.source
  # Of each channel or feature.
  mean = getattr(opened.views, 'mean', None)
  is_standardised = np.ndim(mean) == 1
  return Description(
    settings.model,
    settings.norm,
    list(opened.data.store.input_shape),
    source.num_classes,
    list(mean) if is_standardised else None,
    list(opened.views.stddev) if is_standardised else None,
    settings.pretraining_rounds or 0,
    list(source.class_names),
    source.preprocessing,
    source.num_tokens,
    source.form,
  )


def pack(description: Description, weights: ModelWeights) -> bytes:
  """Returns the content of a classifier's file."""
  text = json.dumps(dataclasses.asdict(description))
  arrays = {_DESCRIPTION: np.frombuffer(text.encode(), np.uint8)}
  for name in _WEIGHTS:
    for i, value in enumerate(getattr(weights, name)):
      arrays[f'{name}_{i:05d}'] = np.asarray(value)
  return checkpoints.pack_arrays(arrays)


def unpack(content: bytes) -> tuple[Description, ModelWeights]:
  """Reads what `pack` made."""
  try:
    arrays = checkpoints.unpack_arrays(content)
    description = Description(**json.loads(arrays[_DESCRIPTION].tobytes()))
  except (ValueError, LookupError, TypeError, RecursionError) as error:
    raise ValueError(
      f'{FILE} is not as a run writes it ({error}): restore the checkpoint '
      'from a copy, or let the run go on for a round.'
    ) from error
  weights = ModelWeights(
    *([arrays[n] for n in arrays if n.startswith(name)] for name in _WEIGHTS)
  )
  return description, weights


def export(run_dir: pathlib.Path, output: pathlib.Path) -> int:
  """Writes the classifier of a run's newest checkpoint as a SavedModel.

  The names of the classes lie beside it, and how files become examples.
  Returns the rounds that made the weights.
  """
  execution_context.set_up_tensorflow()
  rounds, content = checkpoints.load_file(
    run_dir / run_folder.CHECKPOINTS, FILE
  )
  description, weights = unpack(content)
  if rounds <= description.pretraining_rounds:
    raise ValueError(
      f'{run_dir} has had {rounds} rounds, and the first '
      f'{description.pretraining_rounds} train no classifier '
      '(--pretraining_rounds): let the run go on.'
    )
  if description.form == 'tokens' and description.preprocessing is None:
    raise ValueError(
      'The data of this run are numbers of words, and their source does not '
      'say how texts become these (Source.preprocessing): let it say so.'
    )
  classifier = _Classifier(description, weights)
  try:
    tf.saved_model.save(
      classifier, str(output), signatures=classifier.signature
    )
  except tf.errors.OpError as error:
    reason = error.message.partition('\n')[0]
    raise RuntimeError(
      f'The classifier cannot be written to {output.parent}: {reason}; make '
      'room or name another folder.'
    ) from error
  exported_models.write_facts(
    output,
    description.class_names,
    description.preprocessing,
    classifier.example_shape,
  )
  return rounds


class _Classifier(tf.Module):
  """Standardisation and network of a run, with its weights."""

  def __init__(self, description: Description, weights: ModelWeights):
    super().__init__(name='classifier')
    self.trainable = [tf.Variable(value) for value in weights.trainable]
    self.non_trainable = [
      tf.Variable(value, trainable=False) for value in weights.non_trainable
    ]
    model = models.build(
      description.model,
      description.input_shape,
      description.num_classes,
      description.norm,
      description.num_tokens,
    )
    own_views, form = description.views, description.form
    takes, dtypes = _TAKES.get(form, (form, _FLOATS))
    self.example_shape = tuple(description.input_shape)
    if form == 'tokens':
      self.example_shape = ()
      # An attribute, so that the table of words is saved, too.
      self.numbers = text.layer_of_words(
        description.preprocessing['words'], description.input_shape[0]
      )

    def logits(examples):
      if form == 'tokens':
        examples = tf.cast(self.numbers(examples), tf.int32)
      elif examples.dtype != tf.uint8:
        # PlainViews take floats as they are, and NaN would become a pixel.
        examples = tf.debugging.check_numerics(
          tf.cast(examples, tf.float32), takes
        )
        if form == 'images':
          examples = augmentation.check_range(examples)
      output, _ = model.predict(
        [tf.convert_to_tensor(value) for value in self.trainable],
        [tf.convert_to_tensor(value) for value in self.non_trainable],
        own_views.plain(examples),
        training=False,
      )
      return tf.cast(output, tf.float32)

    def with_probabilities(examples):
      output = logits(examples)
      return {'logits': output, 'probabilities': tf.nn.softmax(output)}

    def spec(dtype):
      return tf.TensorSpec([None, *self.example_shape], dtype, takes)

    # One graph for each type: with a single one TensorFlow would cast floats to
    # whole numbers, which leaves nothing of pixels in [0, 1].
    self.__call__ = tf.function(logits, autograph=False)
    self.with_probabilities = tf.function(with_probabilities, autograph=False)
    for dtype in dtypes:
      self.__call__.get_concrete_function(spec(dtype))
      self.with_probabilities.get_concrete_function(spec(dtype))
    # A signature has one type, to which TensorFlow casts. Bytes that become
    # floats are outside of [0, 1], and refused.
    self.signature = self.with_probabilities.get_concrete_function(
      spec(dtypes[0])
    )
