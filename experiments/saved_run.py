"""A run as it lies in its folder, and its classifier as a SavedModel."""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from experiments import building, checkpoints, flags, run_folder, worker_context
from experiments import (
  data as data_lib,
)
from experiments import (
  settings as settings_lib,
)
from tff_ssl import algorithms

# Flags of a run that say nothing of what it trained: where its settings came
# from, and who computed it.
_FORGOTTEN = (
  *('recipe', 'recipe_scale', 'workers', 'worker_addresses'),
  *('worker_timeout', 'insecure_workers'),
)


@dataclasses.dataclass(frozen=True, eq=False)
class SavedRun:
  """The newest checkpoint of a run.

  Attributes:
    model: The `FunctionalModel`.
    views: Gives `plain`, the standardised images.
    weights: `tff.learning.models.ModelWeights` of arrays.
    images: `tf.TensorSpec` of a batch of images as the data set holds them.
    rounds: The rounds that made the weights.
  """

  model: Any
  views: Any
  weights: tff.learning.models.ModelWeights
  images: tf.TensorSpec
  rounds: int


def open_checkpoints(
  settings, folder: run_folder.RunFolder, data, initial_state
) -> checkpoints.CheckpointManager:
  """Returns the checkpoints of a run with these settings and these data.

  Args:
    settings: From `experiments.settings.make`.
    folder: Of the run.
    data: `RunData`.
    initial_state: Of the run's process.
  """
  fixed = {
    name: value
    for name, value in settings.used.items()
    if name not in settings_lib.FREE
  }
  return checkpoints.CheckpointManager(
    folder.checkpoints,
    initial_state,
    fingerprint={**fixed, 'partition_digest': data.partition.digest()},
  )


def load(
  folder: run_folder.RunFolder, moved: Mapping[str, str] | None = None
) -> SavedRun:
  """Loads the newest checkpoint, with the process that it is of.

  Args:
    folder: Of the run.
    moved: Flags that are other than the run's, such as `data_dir`.

  Returns:
    The run, as of that checkpoint.

  Raises:
    ValueError: If the folder holds no checkpoint of a trained classifier, or
      the data are not the run's.
    checkpoints.CheckpointError: If there are checkpoints, and none is sound.
  """
  logging.getLogger().setLevel(logging.WARNING)
  tf.config.set_visible_devices([], 'GPU')
  given = flags.parse(['export', f'--flagfile={folder.flags}'])
  for name in _FORGOTTEN:
    given.pop(name, None)
  own = {'run_dir': str(folder.path), **(moved or {})}
  settings = settings_lib.make({**given, **own})
  spec = algorithms.find(settings.process, settings.base_process)
  data = data_lib.prepare(settings, spec)
  model = building.build_model(settings, data)
  process = building.read_from_store(
    building.build_process(settings, spec, model, data), data
  )
  worker_context.install(settings, spec, data.store)
  manager = open_checkpoints(settings, folder, data, process.initialize())
  latest = manager.load_latest()
  if latest is None:
    raise ValueError(
      f'{folder.path} holds no checkpoint: let the run finish a round.'
    )
  rounds, state = latest
  if rounds <= (settings.pretraining_rounds or 0):
    raise ValueError(
      f'{folder.path} has had {rounds} rounds, and the first '
      f'{settings.pretraining_rounds} train no classifier '
      '(--pretraining_rounds): let the run go on.'
    )
  return SavedRun(
    model=model,
    views=building.build_views(settings, data.source),
    weights=process.get_model_weights(state),
    images=tf.TensorSpec(
      [None, *data.store.input_shape], data.source.train.images.dtype, 'images'
    ),
    rounds=rounds,
  )


def write_model(run: SavedRun, path: pathlib.Path) -> None:
  """Writes a SavedModel from images to logits, and to probabilities.

  Args:
    run: The run.
    path: The folder to write.

  Raises:
    RuntimeError: If it cannot be written.
  """
  classifier = _Classifier(run)
  try:
    tf.saved_model.save(
      classifier, str(path), signatures=classifier.with_probabilities
    )
  except tf.errors.OpError as error:
    reason = error.message.partition('\n')[0]
    raise RuntimeError(
      f'The classifier cannot be written to {path.parent}: {reason}; make room '
      'or name another folder.'
    ) from error


class _Classifier(tf.Module):
  """Standardisation and network of a run, with its weights."""

  def __init__(self, run: SavedRun):
    super().__init__(name='classifier')
    self.trainable = [tf.Variable(value) for value in run.weights.trainable]
    self.non_trainable = [
      tf.Variable(value, trainable=False) for value in run.weights.non_trainable
    ]

    def logits(images):
      output, _ = run.model.predict(
        [tf.convert_to_tensor(value) for value in self.trainable],
        [tf.convert_to_tensor(value) for value in self.non_trainable],
        run.views.plain(images),
        training=False,
      )
      return tf.cast(output, tf.float32)

    def with_probabilities(images):
      output = logits(images)
      return {'logits': output, 'probabilities': tf.nn.softmax(output)}

    signature = [run.images]
    self.__call__ = tf.function(logits, signature)
    self.with_probabilities = tf.function(with_probabilities, signature)
