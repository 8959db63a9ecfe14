"""How well a model solves its proxy task on the test split.

Here, "weights" are all weights of a process, the head of the proxy task among
them. The process's `get_model_weights` leaves that head out.
"""

import numpy as np
import pandas as pd
import tensorflow as tf

from experiments.measuring import evaluation
from experiments.measuring.evaluation import FinishedRound
from tff_ssl.objectives import proxy_tasks

TEST_PROXY_LOSS = 'test_proxy_loss'


class ProxyTest:
  """A proxy task on a test split, in this process, without augmentation.

  Rounds are measured that are tested, and the end of pre-training.
  """

  def __init__(
    self, model, task, views, split, pretraining_rounds: int | None = None
  ):
    """Takes a `SplitModel` without the head of the `ProxyTask`."""
    joint = proxy_tasks.add_head(model, task, views)
    self._batches = evaluation.batches(split)
    self._pretraining_rounds = pretraining_rounds

    @tf.function(autograph=False)
    def losses(weights, images, seed):
      inputs, targets = task.make(views.plain(images), seed)
      outputs, _ = joint.predict(
        weights.trainable, weights.non_trainable, inputs, training=False
      )
      return task.losses(tf.cast(outputs[-1], tf.float32), targets)

    self._losses = losses

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

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Returns `test_proxy_loss`, or nothing."""
    ends_pretraining = finished.number == self._pretraining_rounds
    if not finished.is_evaluated and not ends_pretraining:
      return {}
    return {TEST_PROXY_LOSS: self.loss(finished.state.global_model_weights)}


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
