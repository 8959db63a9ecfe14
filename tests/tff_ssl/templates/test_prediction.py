"""Probabilities in bounded batches, against the model called at once."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models import convolutional, dense, functional
from tff_ssl.templates import prediction

SHAPE = (8, 8, 1)
MODELS = {
  # Two convolutions in a row, with nothing but ReLU and pooling in between.
  'small_cnn': lambda: convolutional.small_cnn(SHAPE, 5),
  'batch': lambda: convolutional.small_cnn(SHAPE, 5, norm='batch'),
  'dense': lambda: dense.dense(SHAPE, 5),
}


@pytest.mark.parametrize('name', MODELS)
def test_probabilities_of_any_number_of_inputs(name):
  model = functional.from_keras(MODELS[name]())
  weights = tf.nest.map_structure(tf.constant, model.initial_weights(1))
  x = np.random.default_rng(2).normal(size=(7, *SHAPE)).astype(np.float32)
  logits, _ = model.predict(
    weights.trainable, weights.non_trainable, tf.constant(x), training=False
  )
  expected = tf.nn.softmax(logits).numpy()

  @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, *SHAPE])])
  def of(inputs):
    return prediction.probabilities(model, weights, inputs, batch_size=3)

  # No full batch, one, and some with a rest; and a client without any input.
  for count in (2, 3, 7, 0):
    found = of(x[:count]).numpy()
    assert found.shape == (count, 5)
    np.testing.assert_allclose(found, expected[:count], atol=1e-6)
