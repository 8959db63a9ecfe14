"""Keras models built without variables: the mechanism behind `from_keras`.

A Keras model is built once while every request for a `tf.Variable` is answered
with a `BoundVariable`. It owns no memory and passes on whichever tensor is
bound to it for the length of one call. Layers cannot tell the difference, so
that batch normalisation may even assign to its moving averages: the assigned
tensor is then read back. In the same way every random layer is given a
`SeededGenerator`, which derives what it draws from the seed of the call.
"""

import collections
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from keras.src.engine import base_layer, base_layer_v1, training, training_v1
from keras.src.utils import version_utils

from tff_ssl import protocols
from tff_ssl.models import structures, substitutes

# The name that tf.random.Generator gives to the variable of its state.
_GENERATOR_STATE = 'StateVar'
# Stateful operations that hold no state of the model.
_HARMLESS_OPS = frozenset({'Assert', 'PrintV2'})
# Operations that may follow the last activation and change no value, and those
# that leave the shape as well.
_SHAPE_KEEPING_OPS = frozenset({'Identity', 'Cast'})
_PASSING_OPS = _SHAPE_KEEPING_OPS | {'Reshape', 'Squeeze', 'Transpose'}
# One for all templates: the bases of Keras' classes belong to the process.
_LOCK = threading.RLock()


class NoLogitsError(ValueError):
  """A classifier ends in an activation that gives probabilities."""


class KerasTemplate:
  """A Keras model built on slots, and its calls with tensors bound to them.

  Attributes:
    input_spec: The `tf.TensorSpec` of a batch of inputs, or a structure of
      them.
    weights_spec: `ModelWeights` of lists of `tf.TensorSpec`, in the order of
      the Keras model's `trainable_weights` and `non_trainable_weights`.
    is_random: Whether the model draws random numbers in training.
  """

  def __init__(
    self,
    model: tf.keras.Model | Callable[[], tf.keras.Model],
    input_spec: protocols.Structure | None,
    from_logits: bool | None = None,
  ):
    """Builds the model and refuses what cannot be pure; see `from_keras`."""
    if not tf.executing_eagerly():
      raise ValueError(
        'A Keras model is converted inside a graph: convert it in eager mode, '
        'outside tf.function and tff.tensorflow.computation.'
      )
    self._from_logits = from_logits
    slots = []

    def new_slot(next_creator, **kwargs):
      if kwargs.get('name') == _GENERATOR_STATE:
        return next_creator(**kwargs)
      slots.append(substitutes.make_bound_variable(**kwargs))
      return slots[-1]

    with tf.variable_creator_scope(new_slot):
      self._model = _new_model(model)
      self.input_spec = _find_input_spec(self._model, input_spec)
      if not self._model.built:
        self._model(
          tf.nest.map_structure(
            lambda spec: tf.keras.Input(spec.shape[1:], dtype=spec.dtype),
            self.input_spec,
          )
        )
    for layer in _adaptable_layers(self._model):
      raise ValueError(
        f'The layer {layer.name!r} of the Keras model has no mean and variance '
        'when it is built: adapt a layer to your data outside of the model, '
        'and build this one with mean=layer.mean, variance=layer.variance.'
      )
    for slot in slots:
      slot.building = False
    # Under mixed precision Keras wraps a variable in one that casts.
    self._trainable, self._non_trainable = (
      [getattr(variable, '_variable', variable) for variable in variables]
      for variables in (
        self._model.trainable_weights,
        self._model.non_trainable_weights,
      )
    )
    self.weights_spec = tff.learning.models.ModelWeights(
      [slot.spec for slot in self._trainable],
      [slot.spec for slot in self._non_trainable],
    )
    self._generators = _replace_generators(self._model)
    self.is_random = bool(self._generators)
    self._classes = {
      type(module)
      for module in [self._model, *self._model.submodules]
      if isinstance(module, tf.keras.layers.Layer)
    }
    self._has_constants = self._check_purity()

  def call(self, trainable, non_trainable, x, *, training, seed):
    """Returns the outputs and the new non-trainable weights, in a graph.

    The seed, `[2]`, may be None where nothing is drawn.
    """
    arguments = (trainable, non_trainable, x, seed)
    if not self._has_constants:
      return self._call(*arguments, training)
    # A graph of TF 1, such as that of a TFF computation, takes no eager tensor,
    # but a function does, and says which.
    function = tf.function(
      lambda *tensors: self._call(*tensors, training), autograph=False
    ).get_concrete_function(*arguments)
    function.set_external_captures(
      [tf.constant(tensor.numpy()) for tensor in function.captured_inputs]
    )
    return function(*arguments)

  def _call(self, trainable, non_trainable, x, seed, training):
    with self._bound(trainable, non_trainable, seed):
      outputs = self._model(x, training=training)
      if self._from_logits is False:
        outputs = tf.nest.map_structure(_softmax_input, outputs)
      return outputs, [slot.tensor for slot in self._non_trainable]

  def initial_weights(self, seed: int) -> tff.learning.models.ModelWeights:
    """Runs the initialisers, weight i with a seed derived from (seed, i)."""
    if not isinstance(seed, (int, np.integer)) or seed < 0:
      raise ValueError(f'seed is {seed!r}: give a nonnegative integer.')
    slots = [*self._trainable, *self._non_trainable]
    arrays = []
    for index, slot in enumerate(slots):
      sequence = np.random.SeedSequence([int(seed), index])
      # A graph of its own keeps the caller's random state untouched.
      with tf.Graph().as_default(), tf.device('/cpu:0'):
        value = slot.initial_value_from(int(sequence.generate_state(1)[0]) >> 1)
        with tf.compat.v1.Session() as session:
          arrays.append(session.run(value))
    count = len(self._trainable)
    return tff.learning.models.ModelWeights(arrays[:count], arrays[count:])

  @contextlib.contextmanager
  def _bound(self, trainable, non_trainable, seed) -> Iterator[None]:
    slots = [*self._trainable, *self._non_trainable]
    # Slots hold one call's tensors at a time.
    with _LOCK, _keras_2_classes(self._classes):
      for slot, value in zip(slots, [*trainable, *non_trainable], strict=True):
        slot.tensor = value
      for generator in self._generators:
        generator.start(seed)
      try:
        yield
      finally:
        for slot in slots:
          slot.tensor = None
        for generator in self._generators:
          generator.start(None)

  def _check_purity(self) -> bool:
    """Refuses what reaches beyond the arguments of a training call.

    Returns whether the model computes with eager tensors, such as constants.
    """

    def probe(trainable, non_trainable, x, seed):
      with self._bound(trainable, non_trainable, seed):
        outputs = self._model(x, training=True)
        _refuse_losses(self._model)
        for slot, value in zip(self._trainable, trainable, strict=True):
          if slot.tensor is not value:
            raise ValueError(
              f'The model assigns to its trainable weight {slot.name!r}, which '
              'only the optimizer may change: leave that layer out.'
            )
      self._check_activation(outputs)
      return outputs

    graph = (
      tf.function(probe, autograph=False)
      .get_concrete_function(
        *self.weights_spec,
        self.input_spec,
        tf.TensorSpec([2], tf.int32),
      )
      .graph
    )
    for operation in graph.get_operations():
      if (
        operation.op_def.is_stateful and operation.type not in _HARMLESS_OPS
      ) or any(tensor.dtype == tf.resource for tensor in operation.inputs):
        raise ValueError(
          f'The operation {operation.name!r} ({operation.type}) of the model '
          'draws random numbers or keeps state outside its weights: use a '
          'layer of tf.keras for it, or leave it out.'
        )
    return bool(graph.captures)

  def _check_activation(self, outputs) -> None:
    """Refuses outputs that are not what `from_logits` says."""
    passing = _PASSING_OPS
    if self._from_logits is False:
      passing = _SHAPE_KEEPING_OPS
    last = {
      _last_op(output, passing).type for output in tf.nest.flatten(outputs)
    }
    name = f'The Keras model {self._model.name!r}'
    as_they_are = (
      'give from_logits=True to take the outputs as they are, such as the '
      'features of an encoder'
    )
    if self._from_logits is False and last != {'Softmax'}:
      raise ValueError(
        f'from_logits=False, but {name[0].lower()}{name[1:]} does not end in a '
        f'softmax (its last operation is {"/".join(sorted(last))}): leave '
        f'from_logits out if the outputs are logits, or {as_they_are}.'
      )
    if self._from_logits is not None or not last & {'Softmax', 'Sigmoid'}:
      return
    if any(each.shape[1:] == (1,) for each in tf.nest.flatten(outputs)):
      why = (
        'ends in one probability, but the objectives take a logit of each '
        'class: give two outputs, Dense(2) without an activation'
      )
    elif 'Softmax' in last:
      why = (
        'ends in a softmax, so that its outputs are probabilities, but the '
        'objectives take logits: remove the softmax, or give '
        "from_logits=False to take the softmax's input"
      )
    else:
      why = (
        'ends in a sigmoid, but the objectives take logits: remove the sigmoid'
      )
    raise NoLogitsError(f'{name} {why}, or {as_they_are}.')


def _last_op(output: tf.Tensor, passing: frozenset[str]) -> tf.Operation:
  """Returns the last operation on the way to an output that matters."""
  op = output.op
  while op.type in passing:
    op = op.inputs[0].op
  return op


def _softmax_input(output: tf.Tensor) -> tf.Tensor:
  (logits,) = _last_op(output, _SHAPE_KEEPING_OPS).inputs
  # Under mixed precision the last layer may have been widened.
  return tf.cast(logits, output.dtype)


def _new_model(model) -> tf.keras.Model:
  if isinstance(model, tf.keras.Model):
    try:
      clone = tf.keras.models.clone_model(model)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
      raise ValueError(
        f'The Keras model {model.name!r} cannot be cloned ({error}): give a '
        'function that builds it instead.'
      ) from error
    if len(clone.weights) != len(model.weights):
      raise ValueError(
        f'The Keras model {model.name!r} has {len(model.weights)} weights and '
        f'its clone {len(clone.weights)}, as happens when layers share '
        'weights or are not built: give a function that builds it instead.'
      )
    for old, new in zip(
      _adaptable_layers(model), _adaptable_layers(clone), strict=True
    ):
      if old.built:
        _fix_statistics(new, old.mean, old.variance)
    return clone
  if not callable(model):
    raise TypeError(
      f'model is a {type(model).__name__}: give a tf.keras.Model or a function '
      'that builds one.'
    )
  built = model()
  if not isinstance(built, tf.keras.Model):
    raise TypeError(
      f'model() returned a {type(built).__name__}: it must return a '
      'tf.keras.Model.'
    )
  return built


def weights_of(
  model: tf.keras.Model,
) -> tuple[list[tf.Variable], list[tf.Variable]]:
  """Returns trainable and other weights; what layers are adapted to is none."""
  constants = {
    id(weight) for layer in _adaptable_layers(model) for weight in layer.weights
  }
  others = [w for w in model.non_trainable_weights if id(w) not in constants]
  return model.trainable_weights, others


def _adaptable_layers(model) -> list[tf.keras.layers.Normalization]:
  """Returns the layers that hold what they were adapted to as weights."""
  return [
    module
    for module in model.submodules
    if isinstance(module, tf.keras.layers.Normalization)
    and module.input_mean is None
  ]


def warn_of_rescaling(model: tf.keras.Model) -> None:
  """Logs a warning where a model scales inputs that are standardised."""
  for module in getattr(model, 'submodules', ()):
    if isinstance(module, tf.keras.layers.Rescaling):
      logging.getLogger(__name__).warning(
        'The layer %r of the network rescales its inputs, which are no pixels '
        'but standardised already, by mean and standard deviation of the data: '
        'leave it out.',
        module.name,
      )


def _fix_statistics(layer, mean, variance) -> None:
  """Makes constants of the weights, which no training changes."""
  layer.input_mean = layer.mean = mean
  layer.input_variance = layer.variance = variance
  # They count examples in whole numbers, of which no aggregator takes a mean.
  del layer.adapt_mean, layer.adapt_variance, layer.count


@contextlib.contextmanager
def _keras_2_classes(classes: Iterable[type]) -> Iterator[None]:
  """Lets layers made in eager mode be called whatever was made since.

  A layer made in a graph of TF 1, such as that of a TFF computation, changes
  the bases of its class, and so those of every layer made before. The bases
  return at the end, to the models of that graph.
  """
  found = {
    base: base.__bases__
    for layer_class in classes
    for base in layer_class.__mro__
  }
  try:
    for layer_class in classes:
      for new, old in [
        (training.Model, training_v1.Model),
        (base_layer.Layer, base_layer_v1.Layer),
      ]:
        version_utils.swap_class(layer_class, new, old, use_v2=True)
    yield
  finally:
    for base, bases in found.items():
      if base.__bases__ != bases:
        base.__bases__ = bases


def _find_input_spec(model, input_spec) -> protocols.Structure:
  known = getattr(model, 'inputs', None) or []
  if input_spec is not None:
    _check_inputs(model, known, input_spec)
  elif not known:
    raise ValueError(
      f'input_spec is None, but the Keras model {model.name!r} does not know '
      'its input: give the tf.TensorSpec of a batch.'
    )
  elif len(known) == 1:
    (input_spec,) = known
  else:
    names = model.input_names
    input_spec = collections.OrderedDict(zip(names, known, strict=True))
  return tf.nest.map_structure(
    lambda each: tf.TensorSpec([None, *each.shape[1:]], each.dtype), input_spec
  )


def _check_inputs(model, known, input_spec) -> None:
  """Refuses inputs that are not those of the model, where it knows its own."""
  if len(known) < 2 and not structures.are_several(input_spec):
    return
  given = len(tf.nest.flatten(input_spec))
  is_named = isinstance(input_spec, Mapping)
  if known and given != len(known):
    raise ValueError(
      f'The Keras model {model.name!r} has {len(known)} inputs '
      f'({", ".join(model.input_names)}), but examples have {given}: give each '
      'input a part of x, in a dict by its name.'
    )
  if known and is_named and set(input_spec) != set(model.input_names):
    raise ValueError(
      f'The Keras model {model.name!r} has the inputs '
      f'{", ".join(model.input_names)}, but examples have '
      f'{", ".join(input_spec)}: name them alike.'
    )


def _replace_generators(model) -> list[substitutes.SeededGenerator]:
  layers = [
    module
    for module in model.submodules
    if isinstance(module, tf.keras.__internal__.layers.BaseRandomLayer)
  ]
  for position, layer in enumerate(layers):
    layer._random_generator = substitutes.SeededGenerator(position)
  return [layer._random_generator for layer in layers]


def _refuse_losses(model) -> None:
  names = [
    module.name
    for module in model.submodules
    if isinstance(module, tf.keras.layers.Layer)
    and not isinstance(module, tf.keras.Model)
    and module.losses
  ]
  if names or model.losses:
    raise ValueError(
      f'The layers {names} of the Keras model {model.name!r} add losses of '
      'their own, which the objectives of a process would not see: remove '
      'regularizers and add_loss, and use the weight decay of the optimizer.'
    )
