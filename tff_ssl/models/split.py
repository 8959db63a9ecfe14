"""Models made of an encoder and heads, joined and taken apart.

An encoder turns an example into features; each head turns features into
outputs of its own. Each is a Keras model of its own, so that either is easily
replaced:

```
encoder = dense.dense_encoder((28, 28, 1))
classifier = dense.linear_head(256, 10)
model = tff_ssl.join(encoder, classifier)      # a classifier like any other
```

The weights of a joint model are those of its parts one after the other, the
encoder's first. So the weights of a model with one head are the first of those
of the same model with a further one.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness
from tff_ssl.models import functional, structures

ModelWeights: TypeAlias = tff.learning.models.ModelWeights

ENCODER = 0


@dataclasses.dataclass(frozen=True)
class SplitModel(functional.FunctionalModel):
  """A `FunctionalModel` that knows its encoder and its heads.

  Its outputs are those of its only head, or a tuple with each head's.

  Attributes:
    parts: The encoder and the heads, each a `FunctionalModel`.
  """

  parts: tuple[functional.FunctionalModel, ...] = ()

  @property
  def encoder(self) -> functional.FunctionalModel:
    """The encoder."""
    return self.parts[ENCODER]

  @property
  def heads(self) -> tuple[functional.FunctionalModel, ...]:
    """The heads."""
    return self.parts[1:]

  def take(self, weights: ModelWeights, parts: Sequence[int]) -> ModelWeights:
    """Returns the weights of some parts.

    Args:
      weights: Of this model.
      parts: Positions in `parts`; the encoder's is 0.
    """
    separate = _separate(weights, self.parts)
    return _concatenate(separate[part] for part in parts)

  def put(
    self, weights: ModelWeights, parts: Sequence[int], new: ModelWeights
  ) -> ModelWeights:
    """Returns the weights with those of some parts replaced.

    Args:
      weights: Of this model.
      parts: Positions in `parts`; the encoder's is 0.
      new: As `take` returns them.

    Raises:
      ValueError: If their shapes or dtypes are not those of the parts.
    """
    functional.check_weights(new, self.take(self.weights_spec, parts))
    separate = _separate(weights, self.parts)
    chosen = _separate(new, [self.parts[part] for part in parts])
    for part, own in zip(parts, chosen, strict=True):
      separate[part] = own
    return _concatenate(separate)

  def encoder_weights(self, weights: ModelWeights) -> ModelWeights:
    """Returns the encoder's among the weights of this model."""
    return self.take(weights, [ENCODER])

  def with_encoder_weights(
    self, weights: ModelWeights, encoder_weights: ModelWeights
  ) -> ModelWeights:
    """Returns the weights of this model with a pretrained encoder's in place.

    With `get_model_weights` and `set_model_weights` this carries an encoder
    from one process to another.

    Args:
      weights: Of this model.
      encoder_weights: Of an encoder with the same architecture.

    Raises:
      ValueError: If their shapes or dtypes are others.
    """
    return self.put(weights, [ENCODER], encoder_weights)


def check(model) -> None:
  """Raises `TypeError` unless the model is a `SplitModel`."""
  if not isinstance(model, SplitModel):
    raise TypeError(
      f'model is a {type(model).__name__} without an encoder of its own: give '
      'tff_ssl.join(encoder, classifier).'
    )


def join(
  encoder: functional.FunctionalModel | tf.keras.Model,
  *heads: functional.FunctionalModel | tf.keras.Model,
) -> SplitModel:
  """Joins an encoder and one or more heads.

  Args:
    encoder: From examples to features: a `FunctionalModel`, or a Keras model,
      which goes through `from_keras` and may end in any activation.
    *heads: Likewise, from such features to outputs; a Keras model must give
      logits.

  Returns:
    A `SplitModel`. With one head it is a model like any other, whose outputs
    are that head's.

  Raises:
    TypeError: If a part is neither.
    ValueError: If there is no head, or one does not take the features, or
      `from_keras` refuses a part.
  """
  # Features are no logits: an encoder may end in a sigmoid.
  parts = tuple(
    functional.from_keras(part, from_logits=from_logits)
    if isinstance(part, tf.keras.Model)
    else part
    for part, from_logits in (
      (encoder, True),
      *((head, None) for head in heads),
    )
  )
  encoder, heads = parts[ENCODER], parts[1:]
  for part in parts:
    if not isinstance(part, functional.FunctionalModel):
      raise TypeError(
        f'A part is a {type(part).__name__}: give a FunctionalModel or a Keras '
        'model.'
      )
  if not heads:
    raise ValueError('heads is empty: give at least one head.')
  features = features_spec(encoder)
  for head in heads:
    structures.refuse_several(head.input_spec, 'A head takes')
    if not head.input_spec.shape.is_compatible_with(features.shape):
      raise ValueError(
        f'A head takes {structures.signature(head.input_spec)}, but the '
        f'encoder gives {structures.signature(features)}: build the head for '
        'these features.'
      )

  def initial_weights(seed):
    randomness.check_seed(seed)
    return _concatenate(
      part.initial_weights(_part_seed(seed, position))
      for position, part in enumerate(parts)
    )

  def predict(trainable, non_trainable, x, *, training, seed=None):
    weights = ModelWeights(trainable, non_trainable)
    outputs, states = _call(parts, weights, x, seed, training, training)
    if not training:
      return outputs, non_trainable
    return outputs, tf.nest.pack_sequence_as(
      non_trainable, tf.nest.flatten(states)
    )

  return SplitModel(
    initial_weights=initial_weights,
    predict=predict,
    input_spec=encoder.input_spec,
    weights_spec=_concatenate(part.weights_spec for part in parts),
    is_random=any(part.is_random for part in parts),
    parts=parts,
  )


def freeze_encoder(model: SplitModel) -> functional.FunctionalModel:
  """Returns the model with an encoder that training leaves alone.

  Only the heads' weights are trainable. The encoder's are non-trainable, in
  front of the others, and it runs as at inference: without dropout, and with
  moving statistics as they are. `freeze_weights` and `thaw_weights` convert.
  """
  encoder = model.encoder
  encoder_size = len(tf.nest.flatten(encoder.weights_spec))

  def predict(trainable, non_trainable, x, *, training, seed=None):
    weights = thaw_weights(model, ModelWeights(trainable, non_trainable))
    outputs, states = _call(model.parts, weights, x, seed, False, training)
    if not training:
      return outputs, non_trainable
    frozen = tf.nest.flatten(non_trainable)[:encoder_size]
    return outputs, tf.nest.pack_sequence_as(
      non_trainable, [*frozen, *tf.nest.flatten(states[1:])]
    )

  return functional.FunctionalModel(
    initial_weights=lambda seed: freeze_weights(
      model, model.initial_weights(seed)
    ),
    predict=predict,
    input_spec=model.input_spec,
    weights_spec=freeze_weights(model, model.weights_spec),
    is_random=any(head.is_random for head in model.heads),
  )


def freeze_weights(model: SplitModel, weights: ModelWeights) -> ModelWeights:
  """Returns a model's weights as `freeze_encoder(model)` has them."""
  encoder, *heads = _separate(weights, model.parts)
  rest = _concatenate(heads)
  return ModelWeights(
    rest.trainable,
    [*encoder.trainable, *encoder.non_trainable, *rest.non_trainable],
  )


def thaw_weights(model: SplitModel, weights: ModelWeights) -> ModelWeights:
  """Returns the weights of `freeze_encoder(model)` as the model has them."""
  trainable = len(model.encoder.weights_spec.trainable)
  flat = tf.nest.flatten(weights.non_trainable)
  return ModelWeights(
    [*flat[:trainable], *tf.nest.flatten(weights.trainable)], flat[trainable:]
  )


def features_spec(encoder: functional.FunctionalModel) -> tf.TensorSpec:
  """Returns the spec of a batch of features, of which there is one tensor."""

  @tf.function(autograph=False)
  def call(weights, x):
    features, _ = encoder.predict(
      weights.trainable, weights.non_trainable, x, training=False
    )
    return features

  features = call.get_concrete_function(
    encoder.weights_spec, encoder.input_spec
  ).structured_outputs
  if not tf.is_tensor(features):
    raise ValueError(
      f'The model gives a {type(features).__name__} of outputs, and one tensor '
      'is needed: let it end in a single layer.'
    )
  return tf.TensorSpec([None, *features.shape[1:]], features.dtype)


def _call(parts, weights, x, seed, encoder_trains: bool, heads_train: bool):
  """Returns the heads' outputs, and each part's new non-trainable weights."""
  separate = _separate(weights, parts)
  states = []

  def call(position, inputs, training):
    part, own = parts[position], separate[position]
    # Features of a mixed-precision encoder are of a lower one.
    inputs = tf.nest.map_structure(
      lambda value, spec: tf.cast(value, spec.dtype), inputs, part.input_spec
    )
    outputs, state = part.predict(
      own.trainable,
      own.non_trainable,
      inputs,
      training=training,
      seed=None if seed is None else randomness.fold_in(seed, position),
    )
    states.append(state)
    return outputs

  features = call(ENCODER, x, encoder_trains)
  first, *more = (call(i, features, heads_train) for i in range(1, len(parts)))
  return (first, *more) if more else first, states


def _part_seed(seed: int, position: int) -> int:
  sequence = np.random.SeedSequence([seed, position])
  return int(sequence.generate_state(1)[0]) >> 1


def _concatenate(weights) -> ModelWeights:
  weights = list(weights)
  return ModelWeights(
    *(
      [value for part in weights for value in tf.nest.flatten(getattr(part, k))]
      for k in ('trainable', 'non_trainable')
    )
  )


def _separate(weights: ModelWeights, parts) -> list[ModelWeights]:
  """Cuts weights of a joint model into those of its parts."""
  trainable = tf.nest.flatten(weights.trainable)
  non_trainable = tf.nest.flatten(weights.non_trainable)
  separate = []
  for part in parts:
    i, j = map(len, part.weights_spec)
    separate.append(ModelWeights(trainable[:i], non_trainable[:j]))
    trainable, non_trainable = trainable[i:], non_trainable[j:]
  return separate
