"""Shapes and dtypes of weights, and whether they are a model's."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

ModelWeights = tff.learning.models.ModelWeights


def check_weights(weights: ModelWeights, specs: ModelWeights) -> None:
  """Makes sure that weights from elsewhere fit a model.

  Args:
    weights: Arrays, tensors or what numpy makes arrays of.
    specs: `tf.TensorSpec`s of the model's weights.

  Raises:
    ValueError: If number, shapes or dtypes differ.
  """
  for kind in ('trainable', 'non_trainable'):
    given, wanted = (
      [_signature(value) for value in tf.nest.flatten(getattr(each, kind))]
      for each in (weights, specs)
    )
    if given != wanted:
      raise ValueError(
        f'The new {kind} weights are {given}, but this model has {wanted} '
        'there: take them from a model of the same architecture.'
      )


def _signature(value) -> str:
  if isinstance(value, tf.TensorSpec):
    return f'{value.dtype.name}{value.shape.as_list()}'
  if not hasattr(value, 'dtype'):
    value = np.asarray(value)
  return f'{tf.as_dtype(value.dtype).name}{list(value.shape)}'
