"""Networks of texts against numpy, and their gradients."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import augmentation, models, objectives
from tff_ssl.models import functional, text
from tff_ssl.templates import local_training

_TOKENS = np.array([[2, 3, 2, 0], [4, 0, 0, 0], [0, 0, 0, 0]], np.int32)


def build(**given):
  return models.build('word_average', (4,), 3, 'none', num_tokens=6, **given)


def test_it_averages_the_words():
  model = build()
  weights = model.initial_weights(3)
  embedding, hidden, bias, kernel, last_bias = weights.trainable
  assert embedding.shape == (6, 64)
  means = np.stack(
    [
      (2 * embedding[2] + embedding[3]) / 3,
      embedding[4],
      np.zeros(64, np.float32),
    ]
  )
  expected = np.maximum(means @ hidden + bias, 0) @ kernel + last_bias
  logits, _ = model.predict(weights.trainable, [], _TOKENS, training=True)
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_the_encoder_is_the_network_without_its_last_layer():
  encoder = functional.from_keras(text.word_average_encoder((4,), num_tokens=6))
  whole = build().initial_weights(0).trainable
  features, _ = encoder.predict(whole[:3], [], _TOKENS, training=False)
  logits, _ = build().predict(whole, [], _TOKENS, training=False)
  np.testing.assert_allclose(
    features @ whole[3] + whole[4], logits, rtol=1e-5, atol=1e-6
  )


def test_words_that_do_not_occur_have_a_gradient_of_zero():
  """TensorFlow gives the rows of words that occur; optimizers want all."""
  model = build()
  weights = model.initial_weights(1)
  weights = tf.nest.map_structure(tf.constant, weights)
  labels = tf.constant([0, 1, 2])
  result = local_training.objective_gradient(
    model,
    objectives.Supervised(augmentation.TokenViews(0.0, 0.0, 0)),
    weights,
    collections.OrderedDict(x=tf.constant(_TOKENS), y=labels),
    (),
    tf.constant([0, 0]),
  )
  gradient = result.gradient[0]
  assert not isinstance(gradient, tf.IndexedSlices)
  step = 1e-2
  for row, column in ((2, 0), (3, 5), (4, 7), (5, 1), (0, 0)):
    changed = []
    for sign in (1, -1):
      moved = [w.numpy() for w in weights.trainable]
      moved[0][row, column] += sign * step
      logits, _ = model.predict(moved, [], _TOKENS, training=False)
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      changed.append(float(tf.reduce_mean(losses)))
    slope = (changed[0] - changed[1]) / (2 * step)
    assert float(gradient[row, column]) == pytest.approx(slope, abs=2e-4)
  assert not np.any(gradient[5]) and not np.any(gradient[0])


def test_too_few_words_are_refused():
  with pytest.raises(ValueError, match='num_tokens'):
    text.word_average((4,), num_tokens=2)
