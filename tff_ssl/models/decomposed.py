"""Weights that are the sum of two parts, which are trained apart.

FedMatch (Jeong et al., arXiv 2006.12097, "Parameter decomposition for disjoint
learning") has a model of weights theta = sigma + psi, each of them a full set
of trainable weights: sigma learns from labels, psi without. A decomposition
turns a functional model into three others with the same outputs:

```
joint          trainable sigma, psi     non-trainable as the model has them
part('sigma')  trainable sigma          non-trainable psi, and those
part('psi')    trainable psi            non-trainable sigma, and those
```

Non-trainable weights (moving statistics) belong to the sum and are not split.
"""

import dataclasses
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks
from tff_ssl.models import functional

ModelWeights: TypeAlias = tff.learning.models.ModelWeights


@dataclasses.dataclass(frozen=True)
class Decomposition:
  """A model whose weights are sigma + psi.

  Attributes:
    model: The `FunctionalModel` of which sigma + psi are the weights.
    psi_factor: psi = psi_factor * sigma at first, in [0, 1]; sigma is what the
      model is initialised with. 0.2 in the authors' code.
  """

  model: functional.FunctionalModel
  psi_factor: float = 0.2

  def __post_init__(self):
    checks.fractions(psi_factor=self.psi_factor)

  @property
  def joint(self) -> functional.FunctionalModel:
    """The model with sigma and psi for trainable weights."""
    spec = self.model.weights_spec

    def initial_weights(seed):
      start = self.model.initial_weights(seed)
      psi = [
        (self.psi_factor * sigma).astype(sigma.dtype)
        for sigma in start.trainable
      ]
      return ModelWeights([*start.trainable, *psi], [*start.non_trainable])

    def predict(trainable, non_trainable, x, *, training, seed=None):
      weights = self.total(ModelWeights(trainable, non_trainable))
      return self.model.predict(*weights, x, training=training, seed=seed)

    return functional.FunctionalModel(
      initial_weights=initial_weights,
      predict=predict,
      input_spec=self.model.input_spec,
      weights_spec=ModelWeights(
        [*spec.trainable, *spec.trainable], [*spec.non_trainable]
      ),
      is_random=self.model.is_random,
    )

  def part(self, name: str) -> functional.FunctionalModel:
    """Returns the model of which one part, 'sigma' or 'psi', is trainable."""
    joint = self.joint

    def predict(trainable, non_trainable, x, *, training, seed=None):
      part = ModelWeights(trainable, non_trainable)
      weights = self.total(self.put(part, name))
      outputs, state = self.model.predict(
        *weights, x, training=training, seed=seed
      )
      if not training:
        return outputs, non_trainable
      fixed = tf.nest.flatten(non_trainable)[: self._size]
      return outputs, tf.nest.pack_sequence_as(
        non_trainable, [*fixed, *tf.nest.flatten(state)]
      )

    return dataclasses.replace(
      joint,
      initial_weights=lambda seed: self.take(joint.initial_weights(seed), name),
      predict=predict,
      weights_spec=self.take(joint.weights_spec, name),
    )

  def take(self, weights: ModelWeights, name: str) -> ModelWeights:
    """Returns joint weights as `part(name)` has them."""
    sigma, psi = self.separate(weights)
    own, other = (sigma, psi) if name == 'sigma' else (psi, sigma)
    return ModelWeights(own, [*other, *tf.nest.flatten(weights.non_trainable)])

  def put(self, weights: ModelWeights, name: str) -> ModelWeights:
    """Returns weights of `part(name)` as the joint model has them."""
    flat = tf.nest.flatten(weights.non_trainable)
    own, other = tf.nest.flatten(weights.trainable), flat[: self._size]
    parts = [*own, *other] if name == 'sigma' else [*other, *own]
    return ModelWeights(parts, flat[self._size :])

  def separate(self, weights: ModelWeights) -> tuple[list, list]:
    """Returns sigma and psi of joint weights."""
    flat = tf.nest.flatten(weights.trainable)
    return flat[: self._size], flat[self._size :]

  def total(self, weights: ModelWeights) -> ModelWeights:
    """Returns sigma + psi, the model's weights, of joint weights."""
    sums = [a + b for a, b in zip(*self.separate(weights), strict=True)]
    return ModelWeights(sums, tf.nest.flatten(weights.non_trainable))

  def shares(self, weights: ModelWeights) -> ModelWeights:
    """Returns joint weights whose `total` is the given one, bit for bit.

    psi is to sigma as at first.
    """
    theta = tf.nest.flatten(weights.trainable)
    sigma = [value / (1 + self.psi_factor) for value in theta]
    # Exact, for sigma is at least half of theta (Sterbenz).
    psi = [value - share for value, share in zip(theta, sigma, strict=True)]
    return ModelWeights([*sigma, *psi], tf.nest.flatten(weights.non_trainable))

  def as_psi(self, weights: ModelWeights) -> ModelWeights:
    """Returns the model's weights as `part('psi')` has them, with sigma = 0."""
    theta = tf.nest.flatten(weights.trainable)
    zeros = [*map(tf.zeros_like, theta)]
    return self.take(
      ModelWeights([*zeros, *theta], weights.non_trainable), 'psi'
    )

  def without_sigma(self, weights: ModelWeights) -> ModelWeights:
    """Returns what is left of joint weights, or of a change, without sigma."""
    _, psi = self.separate(weights)
    return ModelWeights(psi, tf.nest.flatten(weights.non_trainable))

  def add_to_psi(
    self, weights: ModelWeights, change: ModelWeights
  ) -> ModelWeights:
    """Returns joint weights after a change that `without_sigma` gave."""
    own = self.without_sigma(weights)
    new = tf.nest.map_structure(tf.add, own, change)
    sigma, _ = self.separate(weights)
    return ModelWeights([*sigma, *new.trainable], new.non_trainable)

  @property
  def _size(self) -> int:
    """Number of tensors in each part."""
    return len(self.model.weights_spec.trainable)
