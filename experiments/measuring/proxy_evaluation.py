"""How well a model solves its proxy task on the test split.

Here, "weights" are all weights of a process, the head of the proxy task among
them. The process's `get_model_weights` leaves that head out.
"""

import dataclasses
import pathlib

import numpy as np
import pandas as pd
import tensorflow as tf

from experiments.artifacts import pictures
from experiments.measuring import evaluation
from experiments.measuring.evaluation import FinishedRound
from tff_ssl.objectives import proxy_tasks

TEST_PROXY_LOSS = 'test_proxy_loss'
_PICTURE = 'reconstructions.png'
_PRETRAINING_PICTURE = 'reconstructions_pretraining.png'
_MOST_PICTURES = 10


class ProxyTest:
  """A proxy task on a test split, in this process, without augmentation."""

  def __init__(self, model, task, views, split):
    """Takes a `SplitModel` without the head of the `ProxyTask`."""
    joint = proxy_tasks.add_head(model, task, views)
    self._split = split
    self._batches = evaluation.batches(split)
    # There is no picture of a vector.
    self.can_reconstruct = (
      hasattr(task, 'reconstruct') and split.examples.ndim == 4
    )

    def predict(weights, images, seed):
      inputs, targets = task.make(views.plain(images), seed)
      outputs, _ = joint.predict(
        weights.trainable, weights.non_trainable, inputs, training=False
      )
      return tf.cast(outputs[-1], tf.float32), targets

    @tf.function(autograph=False)
    def losses(weights, images, seed):
      return task.losses(*predict(weights, images, seed))

    @tf.function(autograph=False)
    def reconstruct(weights, images, seed):
      return task.reconstruct(predict(weights, images, seed)[0])

    self._losses = losses
    self._reconstruct = reconstruct

  def loss(self, weights) -> float:
    """Returns the mean of the task's loss over all predictions.

    The task's random draws depend only on an example's place in the split, so
    that the losses of different rounds and runs can be compared.
    """
    weights = tf.nest.map_structure(tf.constant, weights)
    losses = [
      self._losses(weights, images, tf.constant([0, batch]))
      for batch, (images, _) in enumerate(self._batches)
    ]
    return float(np.concatenate(losses).mean(dtype=np.float64))

  def reconstruct(self, weights) -> tuple[np.ndarray, np.ndarray]:
    """Reconstructs the first example of each class, of ten classes at most.

    Returns the images and their reconstructions, each `float32 [n, height,
    width, channels]`, pixels in [0, 1].
    """
    _, first = np.unique(self._split.labels, return_index=True)
    images = self._split.examples[first[:_MOST_PICTURES]]
    weights = tf.nest.map_structure(tf.constant, weights)
    found = self._reconstruct(weights, images, tf.constant([0, 0]))
    return images.astype(np.float32) / 255, found.numpy()


@dataclasses.dataclass(frozen=True)
class ProxyObserver:
  """Measures the proxy task, and draws images at the end of each stage.

  The pictures go to the `folder`, with the `title` above them.
  """

  test: ProxyTest
  folder: pathlib.Path
  title: str
  total_rounds: int
  pretraining_rounds: int | None = None

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Returns `test_proxy_loss`, or nothing.

    It is measured in each round that is tested, and at the end of pre-training.
    """
    weights = finished.state.global_model_weights
    ends_pretraining = finished.number == self.pretraining_rounds
    if self.test.can_reconstruct:
      if ends_pretraining:
        self._draw(weights, finished.number, _PRETRAINING_PICTURE)
      if finished.number == self.total_rounds:
        self._draw(weights, finished.number, _PICTURE)
    if finished.is_evaluated or ends_pretraining:
      return {TEST_PROXY_LOSS: self.test.loss(weights)}
    return {}

  def _draw(self, weights, round_num, name):
    pictures.draw_reconstructions(
      *self.test.reconstruct(weights),
      self.folder / name,
      f'{self.title}: images and reconstructions after round {round_num}',
    )


def loss_figures(
  table: pd.DataFrame, pretraining_rounds: int = 0
) -> dict[str, float]:
  """Returns what summary.json has of the proxy task; nothing without one.

  It is the last loss in metrics.csv and, after pre-training, that at its end.
  """
  if TEST_PROXY_LOSS not in table:
    return {}
  losses = table.set_index('round')[TEST_PROXY_LOSS].dropna()
  figures = {TEST_PROXY_LOSS: float(losses.iloc[-1])}
  if pretraining_rounds in losses.index:
    figures[f'pretraining_{TEST_PROXY_LOSS}'] = float(
      losses.loc[pretraining_rounds]
    )
  return figures
