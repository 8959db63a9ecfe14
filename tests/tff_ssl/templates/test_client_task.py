"""A client's delta."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import client_task

ModelWeights = tff.learning.models.ModelWeights


def test_subtract_is_new_minus_start():
  new = ModelWeights([tf.constant([3.0, 5.0])], [tf.constant(2.0)])
  start = ModelWeights([tf.constant([1.0, 10.0])], [tf.constant(0.5)])
  delta = client_task.subtract(new, start)
  np.testing.assert_array_equal(delta.trainable[0], [2, -5])
  assert float(delta.non_trainable[0]) == 1.5
