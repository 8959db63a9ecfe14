"""From TensorFlow's specs to TFF's types."""

import tensorflow as tf
import tensorflow_federated as tff


def type_from_specs(specs) -> tff.Type:
  """Returns the unplaced `tff.Type` of a structure of `tf.TensorSpec`."""
  return tff.types.to_type(
    tf.nest.map_structure(
      lambda spec: (spec.dtype.as_numpy_dtype, spec.shape.as_list()), specs
    )
  )
