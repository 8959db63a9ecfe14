"""The entry point of models: one functional form, used inside the library.

Every process of this library computes with a `FunctionalModel`: weights go in
as tensors, outputs and the new non-trainable weights come out, and nothing
else is remembered. `from_keras` turns a Keras model into that form,
`from_tff_functional_model` a `tff.learning.models.FunctionalModel`, and
`as_functional` whatever TFF's own builders take.

Unlike `tff.learning.models.functional_model_from_keras`, `from_keras` works in
eager mode, in `tf.function` and in a TFF computation alike, takes a seed, and
accepts batch normalisation. `keras_template.py` tells how.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, protocols
from tff_ssl.models import keras_template, structures

ModelWeights: TypeAlias = tff.learning.models.ModelWeights

_KERAS_LOSS = tf.keras.losses.SparseCategoricalCrossentropy
# What every process here measures anyway.
_MEASURED = (tf.keras.metrics.SparseCategoricalAccuracy,)
_ROUNDING = 1e-2  # That of bfloat16.


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
  def weights_type(self) -> compat.Type:
    """The `tff.Type` of the weights, `ModelWeights` of two lists."""
    return structures.type_from_specs(self.weights_spec)


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
  specs = template.weights_spec

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

  draw: Callable[[int], ModelWeights] = template.initial_weights
  if initial_weights is not None:
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
  check_weights(arrays, specs)
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
  input_spec = _examples_spec(model)
  arrays = ModelWeights(*map(tf.nest.flatten, structure))
  specs = tf.nest.map_structure(
    lambda array: tf.TensorSpec(array.shape, array.dtype),
    tf.nest.map_structure(np.asarray, arrays),
  )

  def predict(trainable, non_trainable, x, *, training, seed=None):
    del seed  # Its form has no place for one.
    flat = [*tf.nest.flatten(trainable), *tf.nest.flatten(non_trainable)]
    weights = tf.nest.pack_sequence_as(structure, flat)
    x = _checked_input(x, input_spec)
    return model.predict_on_batch(weights, x, training), non_trainable

  converted = FunctionalModel(
    initial_weights=_same_weights(arrays, specs),
    predict=predict,
    input_spec=input_spec,
    weights_spec=specs,
    is_random=False,
  )
  if gives_probabilities(converted):
    raise ValueError(
      'The outputs of model are probabilities: they are not negative and sum '
      'to 1. The objectives take logits: build the model without its softmax.'
    )
  return converted


def _examples_spec(model) -> protocols.Structure:
  """Returns the spec of a batch of a model of TFF, without labels."""
  spec = model.input_spec
  return spec['x'] if hasattr(spec, 'keys') else spec[0]


def gives_probabilities(model: FunctionalModel) -> bool:
  """Returns whether some outputs are not negative and sum to 1.

  An activation at the end is seen without a number; here, one further up is.
  """
  specs = tf.nest.flatten(model.input_spec)
  if any(None in spec.shape[1:] for spec in specs):
    return False  # Not every size may be possible.
  rng = np.random.default_rng(0)
  trainable, others = model.initial_weights(0)
  # Logits sum to 1 by chance, but hardly with other weights again.
  for noise in (0, 0.3):
    moved = [
      (array + noise * rng.normal(size=array.shape)).astype(array.dtype)
      for array in trainable
    ]
    # TFF's models of Keras work in such a graph only.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      batch = tf.nest.map_structure(
        lambda spec: tf.ones([2, *spec.shape[1:]], spec.dtype), model.input_spec
      )
      try:
        outputs, _ = model.predict(moved, others, batch, training=False)
      except RuntimeError as error:
        if 'EagerTensor' not in str(error):
          raise
        raise ValueError(
          'The model holds a tensor that was made outside it, which no '
          'computation of TFF takes: make it within, or give a NumPy array.'
        ) from error
      found = session.run(tf.nest.flatten(outputs))
    if not any(map(_are_probabilities, found)):
      return False
  return True


def _are_probabilities(output: np.ndarray) -> bool:
  if output.ndim < 2 or output.shape[-1] < 2 or (output < 0).any():
    return False
  sums = output.astype(np.float32).sum(axis=-1)
  return np.allclose(sums, 1, atol=_ROUNDING)


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
      f'x is {structures.signature(x)}, but this model takes '
      f'{structures.signature(spec)}: cast and reshape the batch first.'
    )
  return x


def _checked_weights(kind: str, weights, specs) -> list[tf.Tensor]:
  tensors = [tf.convert_to_tensor(w) for w in tf.nest.flatten(weights)]
  _check_kind(kind, tensors, specs)
  return tensors


def check_weights(weights: ModelWeights, specs: ModelWeights) -> None:
  """Raises `ValueError` unless number, shapes and dtypes are as specified."""
  for kind in ('trainable', 'non_trainable'):
    values = tf.nest.flatten(getattr(weights, kind))
    _check_kind(kind, values, tf.nest.flatten(getattr(specs, kind)))


def _check_kind(kind: str, values, specs) -> None:
  values = [v if hasattr(v, 'dtype') else np.asarray(v) for v in values]
  if len(values) != len(specs) or not all(
    spec.is_compatible_with(tf.TensorSpec(value.shape, value.dtype))
    for spec, value in zip(specs, values, strict=True)
  ):
    given, wanted = ([*map(structures.signature, x)] for x in (values, specs))
    raise ValueError(
      f'The {kind} weights are {given}, but this model has {wanted} there: '
      'take them from a model of the same architecture.'
    )


def as_functional(model: Any) -> tuple[FunctionalModel, Any]:
  """Returns a model as this library computes with it, and its data.

  Args:
    model: One of
      - a `tff_ssl.FunctionalModel` or `SplitModel`;
      - a `tff.learning.models.FunctionalModel`. Its loss and metrics are left
        behind;
      - a `tf.keras.Model`. Training begins with its present weights, whatever
        the seed;
      - a function without arguments that returns a `tf.keras.Model`, or what
        `tff.learning.models.from_keras_model` returns, a `model_fn`. Weights
        are drawn by the seed. The loss must be `SparseCategoricalCrossentropy`
        and the metrics `SparseCategoricalAccuracy`: the processes of this
        library train classifiers, and measure that.

  Returns:
    The model, and the spec of a batch of examples and labels where the model
    says it, else `None`.

  Raises:
    TypeError: If it is none of these.
    ValueError: If it is one of these, and cannot be used.
  """
  if hasattr(model, 'weights_spec'):
    return model, None
  if isinstance(model, tff.learning.models.FunctionalModel):
    converted = from_tff_functional_model(model)
    return converted, model.input_spec
  if isinstance(model, tf.keras.Model):
    weights = None
    if model.built:
      kinds = keras_template.weights_of(model)
      weights = ModelWeights(*([w.numpy() for w in kind] for kind in kinds))
    return from_keras(model, initial_weights=weights), None
  if isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
      f'model is a {type(model).__name__}: give the function that makes it, '
      'as to build_weighted_fed_avg.'
    )
  if isinstance(model, type) and issubclass(
    model, tff.learning.models.VariableModel
  ):
    raise _cannot_be_given(model.__name__)
  if isinstance(model, type) or not callable(model):
    raise TypeError(
      f'model is a {type(model).__name__}: give a Keras model or a function '
      'that makes one, a model_fn, or a tff.learning.models.FunctionalModel.'
    )
  return _of_function(model)


def _of_function(build: Callable[[], Any]):
  made = build()
  if isinstance(made, tf.keras.Model):
    if build() is made:
      raise ValueError(
        'model is a function that returns the same Keras model each time: let '
        'it build a new one, or give the model itself.'
      )
    return from_keras(build), None
  if not isinstance(made, tff.learning.models.VariableModel):
    raise TypeError(
      f'model is a function that returns a {type(made).__name__}: let it '
      'return a Keras model, or what tff.learning.models.from_keras_model '
      'returns.'
    )
  # TFF gives no other way to what a model was made of.
  keras_model = getattr(made, '_keras_model', None)
  if keras_model is None:
    raise _cannot_be_given(type(made).__name__)
  _check_metrics(made)
  # True needs no more: from_keras looks for a softmax.
  from_logits = None if _takes_logits(made) else False
  converted = from_keras(
    keras_model, _examples_spec(made), from_logits=from_logits
  )
  return converted, made.input_spec


def _cannot_be_given(name: str) -> TypeError:
  return TypeError(
    f'model makes a {name}, a VariableModel without a Keras model, whose '
    'weights cannot be given from outside: write it as a '
    'tff.learning.models.FunctionalModel.'
  )


def _takes_logits(made) -> bool:
  """Returns whether the loss of a Keras model of TFF takes logits."""
  losses = made._loss_fns
  if len(losses) != 1 or not isinstance(losses[0], _KERAS_LOSS):
    names = ', '.join(type(loss).__name__ for loss in losses)
    raise ValueError(
      f'model_fn has the loss {names}, which no process here minimises: they '
      'train classifiers by cross-entropy; give SparseCategoricalCrossentropy.'
    )
  settings = losses[0].get_config()
  if settings.get('ignore_class') is not None:
    raise ValueError(
      f'model_fn has a loss with ignore_class={settings["ignore_class"]}: '
      'leave it out; here, -1 marks an example without a label.'
    )
  return settings['from_logits']


def _check_metrics(made) -> None:
  names = [
    type(metric).__name__
    for metric in made._metrics
    # TFF adds the loss and the counts of examples and batches.
    if not type(metric).__module__.startswith('tensorflow_federated')
    and not isinstance(metric, _MEASURED)
    and metric.name not in ('loss', 'num_examples', 'num_batches')
  ]
  if names:
    raise ValueError(
      f'model_fn has the metrics {", ".join(names)}, which no process here '
      'measures in training: leave them out, and evaluate with '
      'tff.learning.algorithms.build_fed_eval.'
    )
