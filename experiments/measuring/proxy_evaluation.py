"""How well a model solves its proxy task on the test split.

Here, "weights" are all weights of a process, the head of the proxy task among
them. The process's `get_model_weights` leaves that head out.
"""

import pathlib

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib import figure

from experiments.measuring import evaluation
from experiments.measuring.finished_round import FinishedRound
from tff_ssl.common import whole_files
from tff_ssl.objectives import proxy_tasks

TEST_PROXY_LOSS = 'test_proxy_loss'
_PICTURE = 'reconstructions.png'
_PRETRAINING_PICTURE = 'reconstructions_pretraining.png'
_MOST_PICTURES = 10


class ProxyTest:
  """A proxy task on a test split, in this process, without augmentation."""

  def __init__(self, model, task, views, split):
    """Prepares the evaluation.

    Args:
      model: A `SplitModel`, without the task's head.
      task: The `ProxyTask`.
      views: Gives `plain`, examples as the model sees them.
      split: `datasets.sources.source.Split`.
    """
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

    Args:
      weights: `ModelWeights` of arrays, those of the task's head at their end.
    """
    weights = tf.nest.map_structure(tf.constant, weights)
    losses = [
      self._losses(weights, images, tf.constant([0, place]))
      for place, (images, _) in enumerate(self._batches)
    ]
    return float(np.concatenate(losses).mean(dtype=np.float64))

  def reconstruct(self, weights) -> tuple[np.ndarray, np.ndarray]:
    """Reconstructs the first example of each class, of ten classes at most.

    Args:
      weights: As for `loss`.

    Returns:
      Images and their reconstructions, each `float32 [n, height, width,
      channels]`, pixels in [0, 1].
    """
    _, first = np.unique(self._split.labels, return_index=True)
    images = self._split.examples[first[:_MOST_PICTURES]]
    weights = tf.nest.map_structure(tf.constant, weights)
    found = self._reconstruct(weights, images, tf.constant([0, 0]))
    return images.astype(np.float32) / 255, found.numpy()


class ProxyObserver:
  """Measures the proxy task, and draws images at the end of each stage."""

  def __init__(
    self,
    test: ProxyTest,
    folder: pathlib.Path,
    *,
    title: str,
    total_rounds: int,
    pretraining_rounds: int | None = None,
  ):
    """Prepares the observation.

    Args:
      test: The task on the test split.
      folder: Where pictures go.
      title: Name of the run, above the pictures.
      total_rounds: Rounds of the run.
      pretraining_rounds: Those of pre-training, if there are any.
    """
    self._test = test
    self._folder = folder
    self._title = title
    self._total_rounds = total_rounds
    self._pretraining_rounds = pretraining_rounds

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Returns `test_proxy_loss`, or nothing.

    It is measured in each round that is tested, and at the end of pre-training.

    Args:
      finished: The round.
    """
    weights = finished.state.global_model_weights
    ends_pretraining = finished.number == self._pretraining_rounds
    if self._test.can_reconstruct:
      if ends_pretraining:
        self._draw(weights, finished.number, _PRETRAINING_PICTURE)
      if finished.number == self._total_rounds:
        self._draw(weights, finished.number, _PICTURE)
    if finished.is_evaluated or ends_pretraining:
      return {TEST_PROXY_LOSS: self._test.loss(weights)}
    return {}

  def _draw(self, weights, round_num, name):
    plot(
      *self._test.reconstruct(weights),
      self._folder / name,
      f'{self._title}: images and reconstructions after round {round_num}',
    )


def plot(images, reconstructions, path, title: str) -> None:
  """Draws images in a row, each above its reconstruction.

  Args:
    images: `float32 [n, height, width, channels]`, 1 or 3 channels, pixels in
      [0, 1].
    reconstructions: Likewise.
    path: The PNG file to write.
    title: Title of the picture.
  """
  picture = figure.Figure(
    figsize=(max(4, 0.8 * len(images)), 2.2), layout='constrained'
  )
  grid = picture.subplots(2, len(images), squeeze=False)
  for row, pixels in zip(grid, (images, reconstructions), strict=True):
    for axes, image in zip(row, pixels, strict=True):
      axes.imshow(image, cmap='gray', vmin=0, vmax=1)
      axes.set_axis_off()
  picture.suptitle(title, fontsize='small')
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=120)


def loss_figures(
  table: pd.DataFrame, pretraining_rounds: int = 0
) -> dict[str, float]:
  """Returns what summary.json has of the proxy task; nothing without one.

  Args:
    table: metrics.csv.
    pretraining_rounds: Rounds of pre-training at the beginning.

  Returns:
    The last `test_proxy_loss` under its name, and after pre-training
    `pretraining_test_proxy_loss`, that at its end.
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
