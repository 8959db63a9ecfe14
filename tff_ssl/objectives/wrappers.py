"""Objectives that add something to another objective, whatever it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

PROXIMAL_STRENGTH = Setting(
  'proximal_strength',
  float,
  'mu of FedProx, weight of the proximal term; also in FedNova.',
  at_least=0,
)
L1_WEIGHT = Setting(
  'l1_weight',
  float,
  "Weight of an L1 penalty on all weights; FedMatch's is on psi.",
  at_least=0,
)
SUPERVISED_WEIGHT = Setting(
  'supervised_weight',
  float,
  "lambda_s of FedMatch, weight of the labelled examples' loss.",
  at_least=0,
  needed_by='FedMatch',
)


def squared_distance(weights, anchors) -> tf.Tensor:
  """Returns the sum of squared differences of two lists of tensors."""
  pairs = zip(weights, anchors, strict=True)
  return tf.add_n([tf.reduce_sum(tf.square(a - b)) for a, b in pairs])


def l1_norm(weights, loss: tf.Tensor) -> tf.Tensor:
  """Returns the sum of the absolute values of a list, in the loss's type."""
  sums = (tf.reduce_sum(tf.abs(weight)) for weight in weights)
  return tf.add_n([tf.cast(each, loss.dtype) for each in sums])


@dataclasses.dataclass(frozen=True)
class Wrapper:
  """An objective around another one, whose metrics and examples it keeps.

  Attributes:
    objective: The other objective.
  """

  objective: protocols.Objective

  @property
  def metric_names(self) -> tuple[str, ...]:
    """Without what is added, so that runs with and without it compare."""
    return self.objective.metric_names

  @property
  def rows(self) -> str:
    """Which examples the inner objective takes."""
    return getattr(self.objective, 'rows', 'all')

  @property
  def teacher(self) -> str | None:
    """Which model makes the pseudo-labels of the inner objective, if any."""
    return getattr(self.objective, 'teacher', None)

  @property
  def survey(self) -> Callable[..., protocols.Structure] | None:
    """What the inner objective makes of all examples, if anything."""
    return getattr(self.objective, 'survey', None)

  @property
  def needs_labelled_batch(self) -> bool:
    """Whether the inner objective reads a second minibatch, `labelled`."""
    return getattr(self.objective, 'needs_labelled_batch', False)


@dataclasses.dataclass(frozen=True)
class Proximal(Wrapper):
  """`objective + mu/2 ||w - w_start||^2` over the trainable weights: FedProx.

  Source: Li et al., Federated Optimization in Heterogeneous Networks
  (arXiv 1812.06127), Eq. 2.

  Attributes:
    objective: The objective that the term is added to.
    strength: mu >= 0.
  """

  strength: float

  def __post_init__(self):
    PROXIMAL_STRENGTH.check(self.strength)

  def __call__(self, predict, batch, anchors, seed):
    loss, metrics = self.objective(predict, batch, anchors, seed)
    distance = squared_distance(predict.trainable, anchors.trainable)
    return loss + 0.5 * self.strength * distance, metrics


@dataclasses.dataclass(frozen=True)
class L1Penalty(Wrapper):
  """`objective + lambda ||w||_1` over all trainable weights.

  Source: Lu et al., Federated Learning from Only Unlabeled Data with
  Class-Conditional-Sharing Clients (arXiv 2204.03304), Table D.4; its authors'
  code takes all parameters, those of normalisation and the biases as well.

  Attributes:
    objective: The objective that the penalty is added to.
    l1_weight: lambda >= 0.
  """

  l1_weight: float

  def __post_init__(self):
    L1_WEIGHT.check(self.l1_weight)

  def __call__(self, predict, batch, anchors, seed):
    loss, metrics = self.objective(predict, batch, anchors, seed)
    return loss + self.l1_weight * l1_norm(predict.trainable, loss), metrics


@dataclasses.dataclass(frozen=True)
class WeightedLoss(Wrapper):
  """`weight * objective`.

  Attributes:
    objective: The objective.
    weight: A number >= 0; `supervised_weight` of FedMatch.
  """

  weight: float

  def __post_init__(self):
    SUPERVISED_WEIGHT.check(self.weight)

  def __call__(self, predict, batch, anchors, seed):
    loss, metrics = self.objective(predict, batch, anchors, seed)
    return self.weight * loss, metrics


class Correction(NamedTuple):
  """What `Corrected` takes for anchors.

  Attributes:
    start: The anchors of the objective itself.
    gradient: Tensors in the structure of the trainable weights.
  """

  start: tff.learning.models.ModelWeights
  gradient: protocols.Structure


@dataclasses.dataclass(frozen=True)
class Corrected(Wrapper):
  """`objective + <correction, w>` over the trainable weights.

  The gradient is that of the objective plus the correction, in every step and
  for any objective and optimizer: the control variates of SCAFFOLD (Karimireddy
  et al., arXiv 1910.06378, Algorithm 1), whose correction is c - c_i. Its
  anchors are a `Correction`.

  Attributes:
    objective: The objective that the term is added to.
  """

  def __call__(self, predict, batch, anchors, seed):
    loss, metrics = self.objective(predict, batch, anchors.start, seed)
    term = tf.add_n(
      [
        tf.reduce_sum(correction * weight)
        for correction, weight in zip(
          tf.nest.flatten(anchors.gradient),
          tf.nest.flatten(predict.trainable),
          strict=True,
        )
      ]
    )
    return loss + term, metrics
