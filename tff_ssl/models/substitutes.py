"""Substitutes for what a Keras model keeps outside its arguments.

`BoundVariable` takes the place of a `tf.Variable`, `SeededGenerator` that of
Keras' generator of random numbers. Both pass on what is bound to them for the
length of one call.
"""

import functools

import numpy as np
import tensorflow as tf
from keras.src import backend as keras_backend


class BoundVariable(tf.Variable):
  """A variable without memory: reads and assigns the tensor bound to it.

  Attributes:
    tensor: The tensor bound to it, or None.
    building: Whether the model is still being built: its layers may then read a
      weight, for shapes only, and the builder may set its initial value.
  """

  def __init__(self, initial_value, name, shape, dtype, trainable):
    self._initial_value = initial_value
    self.tensor = None
    self.building = True
    self._name = name
    self._slot_shape = tf.TensorShape(shape)
    self._slot_dtype = tf.as_dtype(dtype)
    self._slot_trainable = trainable

  name = property(lambda self: self._name)
  shape = property(lambda self: self._slot_shape)
  dtype = property(lambda self: self._slot_dtype)
  trainable = property(lambda self: self._slot_trainable)
  synchronization = tf.VariableSynchronization.NONE
  aggregation = tf.VariableAggregation.NONE
  constraint = None
  device = ''

  @property
  def spec(self) -> tf.TensorSpec:
    return tf.TensorSpec(self.shape, self.dtype)

  def __repr__(self):
    return f'<weight {self.name!r} {self.dtype.name}{self.shape}>'

  def value(self):
    if self.tensor is not None:
      return self.tensor
    if self.building:
      return tf.zeros(self.shape, self.dtype)
    raise ValueError(
      f'The model uses the variable {self.name!r}, which is not among its '
      'weights: create it with add_weight of a layer of the model.'
    )

  def read_value(self):
    return self.value()

  def numpy(self):
    raise ValueError(
      f'The function that builds the model reads the value of {self.name!r}, '
      'which has none yet: give the model itself in the place of the function, '
      'with its weights as initial_weights.'
    )

  def assign(self, value, use_locking=False, name=None, read_value=True):
    value = tf.convert_to_tensor(value, self.dtype)
    value = tf.ensure_shape(value, self.shape)
    if not self.building:
      self.value()  # Refuses a variable that is not among the weights.
      self.tensor = value
    elif tf.executing_eagerly():  # By the builder, not by a layer's call.
      self._initial_value = functools.partial(np.asarray, value.numpy())
    return value

  def assign_add(self, delta, use_locking=False, name=None, read_value=True):
    return self.assign(self.value() + delta)

  def assign_sub(self, delta, use_locking=False, name=None, read_value=True):
    return self.assign(self.value() - delta)

  def initial_value_from(self, seed: int) -> tf.Tensor:
    """Runs the initialiser, in a graph of its own, from `seed` alone."""
    tf.random.set_seed(seed)  # Of the current graph.
    initial_value = self._initial_value
    if isinstance(initial_value, functools.partial):
      initial_value = functools.partial(
        _reseeded(initial_value.func, seed),
        *initial_value.args,
        **initial_value.keywords,
      )
    return tf.convert_to_tensor(initial_value(), self.dtype)

  def sparse_read(self, indices, name=None):
    return tf.gather(self.value(), indices, name=name)

  def gather_nd(self, indices, name=None):
    return tf.gather_nd(self.value(), indices, name=name)


def _bound_to_tensor(slot, dtype=None, name=None, as_ref=False):
  del name, as_ref
  if dtype is not None and not dtype.is_compatible_with(slot.dtype):
    return NotImplemented
  return slot.value()


tf.register_tensor_conversion_function(BoundVariable, _bound_to_tensor)


class SeededGenerator(keras_backend.RandomGenerator):
  """Keras' source of random numbers, made a function of `predict`'s seed."""

  def __init__(self, position: int):
    super().__init__(seed=0, rng_type='stateless')
    self._position = position
    self._call_seed = None
    self._draws = 0

  def start(self, seed) -> None:
    self._call_seed = seed
    self._draws = 0

  def make_seed_for_stateless_op(self):
    if self._call_seed is None:
      raise ValueError(
        'seed is None, but this model draws random numbers: give an integer '
        'tensor of shape [2].'
      )
    seed = tf.random.experimental.stateless_fold_in(
      self._call_seed, self._position
    )
    self._draws += 1
    return tf.random.experimental.stateless_fold_in(seed, self._draws)


def make_bound_variable(
  initial_value,
  name=None,
  shape=None,
  dtype=None,
  trainable=None,
  constraint=None,
  **unused_placement,
) -> BoundVariable:
  """Answers a request for a `tf.Variable`, with its arguments."""
  name = '/'.join(filter(None, [tf.get_current_name_scope(), name]))
  if constraint is not None:
    raise ValueError(
      f'The weight {name!r} has a constraint, which no optimizer of a '
      'federated process would apply: build its layer without one.'
    )
  if not callable(initial_value):
    initial_value = functools.partial(
      np.asarray, tf.convert_to_tensor(initial_value, dtype).numpy()
    )
  if shape is None or dtype is None:
    with tf.Graph().as_default():
      example = tf.convert_to_tensor(initial_value(), dtype)
    shape, dtype = example.shape, example.dtype
  return BoundVariable(
    initial_value, name, shape, dtype, trainable is not False
  )


def _reseeded(initializer, seed: int):
  if isinstance(initializer, tf.keras.initializers.Initializer):
    config = initializer.get_config()
    if 'seed' in config:
      return type(initializer).from_config({**config, 'seed': seed})
  return initializer
