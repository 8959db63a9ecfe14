"""The entry point of models: one functional form, used inside the library.

Every process of this library computes with a `FunctionalModel`: weights go in
as tensors, outputs and the new non-trainable weights come out, and nothing
else is remembered. `from_keras` turns a Keras model into that form,
`from_tff_functional_model` a `tff.learning.models.FunctionalModel`.

Unlike `tff.learning.models.functional_model_from_keras`, `from_keras` works in
eager mode, in `tf.function` and in a TFF computation alike, takes a seed, and
accepts batch normalisation. `keras_template.py` tells how.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols
from tff_ssl.models import keras_template, signatures, structures

ModelWeights = tff.learning.models.ModelWeights


@dataclasses.dataclass(frozen=True)
class FunctionalModel:
  """A model as pure functions of its weights.

  Attributes:
    initial_weights: `initial_weights(seed: int)` returns
      `tff.learning.models.ModelWeights` of two lists of numpy arrays,
      `trainable` and `non_trainable`.
    predict: `predict(trainable, non_trainable, x, *, training, seed=None)`
      returns `(outputs, new_non_trainable)`, a pure function of its arguments.
      `x` matches `input_spec`; `training` is a Python bool; `seed` is an
      integer tensor of shape [2], required where `training` and `is_random`
      are true. `new_non_trainable` has the structure of `non_trainable`;
      without training it is `non_trainable` itself.
    input_spec: The `tf.TensorSpec` of a batch of inputs, first dimension None;
      of a model of several inputs, a dict or a tuple of them.
    weights_spec: `ModelWeights` of two lists of `tf.TensorSpec`.
    is_random: Whether `predict` draws random numbers in training.
  """

  initial_weights: Callable[[int], ModelWeights]
  predict: Callable[..., tuple[Any, Any]]
  input_spec: protocols.Structure
  weights_spec: ModelWeights
  is_random: bool

  @property
  def weights_type(self) -> tff.Type:
    """The `tff.Type` of the weights, `ModelWeights` of two lists."""
    return tff.types.to_type(
      tf.nest.map_structure(
        lambda spec: (spec.dtype.as_numpy_dtype, spec.shape.as_list()),
        self.weights_spec,
      )
    )


def from_keras(
  model: tf.keras.Model | Callable[[], tf.keras.Model],
  input_spec: tf.TensorSpec | None = None,
  *,
  from_logits: bool | None = None,
  initial_weights: ModelWeights | None = None,
) -> FunctionalModel:
  """Converts a Keras model, or a function that builds one.

  The objectives of this library take logits. A classifier that ends in a
  softmax gives probabilities, with which they would train without an error and
  badly. So `from_keras` looks at the model's last operation. It does not see a
  softmax inside of a `tf.function` of the model's own.

  Weights come from `initial_weights(seed)`, which runs the model's own
  initialisers with seeds derived from `seed` and the weight's position: seeds
  given to initialisers are replaced, and so are the present values of a
  ready-made model. Initialisers of your own must draw with TensorFlow's random
  ops. Weights which a builder function loads or sets are kept, whatever the
  seed. Both lists follow the order of
  `tff.learning.models.ModelWeights.from_model(model)`, whose
  `assign_weights_to` writes trained weights back to a Keras model.

  Dropout, noise and the other random layers become stateless: what they draw
  is a function of the `seed` given to `predict`, of the layer's position in
  the model and of how often the layer was called in this `predict`.

  Constants, such as a `tf.constant`, are taken as they are. So are mean and
  variance of a `Normalization` layer that was adapted to data: they are no
  weights here, as no client adapts them.

  Args:
    model: A `tf.keras.Model` made of layers (Sequential or functional), or a
      function without arguments that returns any `tf.keras.Model`; any
      structure of outputs. Of several inputs, `x` is a dict by their names, or
      a tuple. A function is called once.
    input_spec: The `tf.TensorSpec` of a batch, for example
      `tf.TensorSpec([None, 28, 28, 1], tf.float32)`. May be left out where the
      Keras model knows its input.
    from_logits: What the outputs are, as in `tf.keras.losses`. `True`: they are
      taken as they are, such as the features of an encoder that ends in a
      sigmoid. `False`: the model ends in a softmax, and the outputs here are
      the softmax's input. `None`: as `True`, but a model that ends in a softmax
      or a sigmoid is refused.
    initial_weights: Where training begins, whatever the seed: arrays in the
      order of `tff.learning.models.ModelWeights.from_model(model)`, which
      gives the present weights of a Keras model. By default as above.

  Returns:
    A `FunctionalModel`.

  Raises:
    TypeError: If `model` is neither a Keras model nor builds one.
    ValueError: If the model cannot be a pure function of its weights: layers
      with losses or constraints of their own, random draws or state outside
      the weights, or more than one input. If `from_logits` does not fit the
      model's last operation.
  """
  template = keras_template.KerasTemplate(model, input_spec, from_logits)
  specs = ModelWeights(template.trainable_specs, template.non_trainable_specs)

  # A graph whatever the caller's mode: Keras' eager fast paths want real
  # variables.
  call_in_graph = tf.function(template.call, autograph=False)

  def predict(trainable, non_trainable, x, *, training, seed=None):
    call = call_in_graph if tf.executing_eagerly() else template.call
    outputs, state = call(
      _checked_weights('trainable', trainable, specs.trainable),
      _checked_weights('non_trainable', non_trainable, specs.non_trainable),
      _checked_input(x, template.input_spec),
      training=bool(training),
      seed=seed,
    )
    if not training:
      return outputs, non_trainable
    return outputs, tf.nest.pack_sequence_as(non_trainable, state)

  if initial_weights is None:

    def draw(seed):
      return ModelWeights(*template.initial_weights(seed))
  else:
    draw = _same_weights(initial_weights, specs)

  return FunctionalModel(
    initial_weights=draw,
    predict=predict,
    input_spec=template.input_spec,
    weights_spec=specs,
    is_random=template.is_random,
  )


def _same_weights(weights, specs) -> Callable[[int], ModelWeights]:
  """Returns a function that gives copies of the same weights."""
  arrays = ModelWeights(
    *(
      [np.asarray(value) for value in values]
      for values in (weights.trainable, weights.non_trainable)
    )
  )
  signatures.check_weights(arrays, specs)
  return lambda seed: ModelWeights(
    *([array.copy() for array in values] for values in arrays)
  )


def from_tff_functional_model(
  model: tff.learning.models.FunctionalModel,
) -> FunctionalModel:
  """Converts a `tff.learning.models.FunctionalModel`.

  Its loss and metrics are left behind. It holds fixed initial weights, which
  `initial_weights` returns for every seed, and it has no means to change its
  non-trainable weights or to take a seed.

  Args:
    model: A `tff.learning.models.FunctionalModel`.

  Returns:
    A `FunctionalModel`; its weights are the flattened weights of `model`.

  Raises:
    ValueError: If the outputs of `model` are probabilities and no logits.
  """
  structure = model.initial_weights
  input_spec = examples_spec(model)
  arrays = ModelWeights(
    *([np.asarray(leaf) for leaf in tf.nest.flatten(w)] for w in structure)
  )
  _refuse_probabilities(model, input_spec)

  def predict(trainable, non_trainable, x, *, training, seed=None):
    del seed  # Its form has no place for one.
    flat = [*tf.nest.flatten(trainable), *tf.nest.flatten(non_trainable)]
    weights = tf.nest.pack_sequence_as(structure, flat)
    x = _checked_input(x, input_spec)
    return model.predict_on_batch(weights, x, training), non_trainable

  return FunctionalModel(
    initial_weights=lambda seed: ModelWeights(
      [array.copy() for array in arrays.trainable],
      [array.copy() for array in arrays.non_trainable],
    ),
    predict=predict,
    input_spec=input_spec,
    weights_spec=tf.nest.map_structure(
      lambda array: tf.TensorSpec(array.shape, array.dtype), arrays
    ),
    is_random=False,
  )


def examples_spec(model: Any) -> protocols.Structure:
  """Returns the spec of a batch of examples, without labels.

  Args:
    model: A `FunctionalModel` or `VariableModel` of `tff.learning.models`,
      whose `input_spec` is a pair or has the key `x`.
  """
  spec = model.input_spec
  return spec['x'] if hasattr(spec, 'keys') else spec[0]


def _refuse_probabilities(
  model: tff.learning.models.FunctionalModel, input_spec: protocols.Structure
) -> None:
  """Raises `ValueError` if the outputs for some batch are probabilities."""
  shapes = [spec.shape[1:] for spec in tf.nest.flatten(input_spec)]
  if any(None in shape for shape in shapes):
    return  # Not every size may be possible.
  # TFF's models of Keras work in such a graph only.
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    outputs = session.run(
      model.predict_on_batch(
        model.initial_weights,
        tf.nest.map_structure(
          lambda spec: tf.ones([2, *spec.shape[1:]], spec.dtype), input_spec
        ),
        False,
      )
    )
  for output in tf.nest.flatten(outputs):
    if output.ndim < 2 or output.shape[-1] < 2:
      continue
    if (output >= 0).all() and np.allclose(output.sum(axis=-1), 1, atol=1e-3):
      raise ValueError(
        'The outputs of model are probabilities: they are not negative and sum '
        'to 1. The objectives take logits: build the model without its softmax.'
      )


def _checked_input(x, input_spec: protocols.Structure) -> protocols.Structure:
  if not structures.are_several(input_spec):
    return _checked_tensor(x, input_spec)
  try:
    tf.nest.assert_same_structure(input_spec, x, check_types=False)
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'x is not as this model takes it, {structures.describe(input_spec)}: '
      f'{error}'
    ) from error
  return tf.nest.map_structure(
    lambda spec, part: _checked_tensor(part, spec), input_spec, x
  )


def _checked_tensor(x, spec: tf.TensorSpec) -> tf.Tensor:
  x = tf.convert_to_tensor(x)
  if not spec.is_compatible_with(x):
    raise ValueError(
      f'x is {x.dtype.name}{x.shape}, but this model takes '
      f'{spec.dtype.name}{spec.shape}: cast and reshape the batch '
      'first.'
    )
  return x


def _checked_weights(name: str, weights, specs) -> list[tf.Tensor]:
  tensors = [tf.convert_to_tensor(w) for w in tf.nest.flatten(weights)]
  if len(tensors) != len(specs) or not all(
    spec.is_compatible_with(tensor)
    for spec, tensor in zip(specs, tensors, strict=True)
  ):
    raise ValueError(
      f'{name} holds {_describe(tensors)}, but this model has '
      f'{_describe(specs)}: give weights like those of initial_weights(seed).'
    )
  return tensors


def _describe(tensors) -> str:
  return str([f'{t.dtype.name}{t.shape}' for t in tensors])
