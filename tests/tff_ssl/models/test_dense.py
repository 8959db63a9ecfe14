import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import augmentation, models, objectives
from tff_ssl.models import dense, functional
from tff_ssl.templates import local_training


def test_parameter_counts():
  # 784*200 + 200 + 200*10 + 10 = 159,010
  assert dense.dense().count_params() == 159_010
  # 64*32 + 32 + 32*16 + 16 + 16*3 + 3 = 2,659
  model = dense.dense((8, 8, 1), 3, hidden=(32, 16))
  assert model.count_params() == 2_659
  # Logistic regression: 784*10 + 10.
  assert dense.dense(hidden=()).count_params() == 7_850
  # A scale and an offset for each of 200 units.
  assert dense.dense(norm='group').count_params() == 159_410


_X = np.random.default_rng(0).normal(size=(3, 4, 4, 2)).astype(np.float32)


def test_equals_numpy():
  model = dense.dense((4, 4, 2), 5, hidden=(7, 6))
  w1, b1, w2, b2, w3, b3 = model.get_weights()
  hidden = np.maximum(_X.reshape(3, -1) @ w1 + b1, 0)
  hidden = np.maximum(hidden @ w2 + b2, 0)
  np.testing.assert_allclose(model(_X), hidden @ w3 + b3, atol=1e-5)
  encoder = dense.dense_encoder((4, 4, 2), features=7)
  kernel, bias = encoder.get_weights()
  expected = np.maximum(_X.reshape(3, -1) @ kernel + bias, 0)
  assert 0 < (expected == 0).mean() < 1
  np.testing.assert_allclose(encoder(_X), expected, atol=1e-5)


def test_bad_sizes():
  with pytest.raises(ValueError, match=r'hidden is \(10, 0\)'):
    dense.dense(hidden=(10, 0))
  with pytest.raises(ValueError, match='features must be .* but is 0'):
    dense.dense_encoder(features=0)


def test_encoder_parameter_counts():
  # The label-hungry paper's encoder.
  assert dense.dense_encoder().count_params() == 784 * 256 + 256
  # A scale and an offset for each unit; batch has two moving averages as well.
  small = dense.dense_encoder((8, 8, 3), 'none', 5).count_params()
  assert small == 192 * 5 + 5
  for norm, more in (('group', 2 * 5), ('batch', 4 * 5)):
    model = dense.dense_encoder((8, 8, 3), norm, 5)
    assert model.count_params() == small + more


_TOKENS = np.array([[2, 3, 2, 0], [4, 0, 0, 0], [0, 0, 0, 0]], np.int32)


def _build_for_texts(**given):
  return models.build('word_average', (4,), 3, 'none', num_tokens=6, **given)


def test_it_averages_the_words():
  model = _build_for_texts()
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
  encoder = functional.from_keras(
    dense.word_average_encoder((4,), num_tokens=6)
  )
  whole = _build_for_texts().initial_weights(0).trainable
  features, _ = encoder.predict(whole[:3], [], _TOKENS, training=False)
  logits, _ = _build_for_texts().predict(whole, [], _TOKENS, training=False)
  np.testing.assert_allclose(
    features @ whole[3] + whole[4], logits, rtol=1e-5, atol=1e-6
  )


def test_words_that_do_not_occur_have_a_gradient_of_zero():
  """TensorFlow gives the rows of words that occur; optimizers want all."""
  model = _build_for_texts()
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
    dense.word_average((4,), num_tokens=2)


_FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)


def test_parameter_counts_of_heads():
  # The label-hungry paper's classifier and decoder.
  assert dense.linear_head(256, 10).count_params() == 256 * 10 + 10
  decoder = dense.dense_decoder(256, (28, 28, 1))
  assert decoder.count_params() == 256 * 784 + 784


def test_linear_head_equals_numpy():
  model = dense.linear_head(6, 4)
  kernel, bias = model.get_weights()
  bias += np.arange(4)
  model.set_weights([kernel, bias])
  np.testing.assert_allclose(
    model(_FEATURES), _FEATURES @ kernel + bias, atol=1e-6
  )


def test_decoder_gives_images_without_a_sigmoid():
  model = dense.dense_decoder(6, (2, 3, 2))
  kernel, _ = model.get_weights()
  # Far outside [0, 1], in the order height, width, channels.
  bias = np.arange(12) * 10
  model.set_weights([kernel, bias])
  pixels = _FEATURES @ kernel + bias
  np.testing.assert_allclose(
    model(_FEATURES), pixels.reshape(3, 2, 3, 2), rtol=1e-5
  )


@pytest.mark.parametrize(
  'build, message',
  [
    (lambda: dense.linear_head(0, 3), 'num_features must be .* >= 1, but is 0'),
    (lambda: dense.linear_head(3, 0), 'num_outputs must be .* >= 1, but is 0'),
    (lambda: dense.dense_decoder(0, (4,)), 'num_features must be .* but is 0'),
    (lambda: dense.dense_decoder(3, (4, 0)), r'output_shape is \(4, 0\)'),
    (lambda: dense.dense_decoder(3, ()), r'output_shape is \(\)'),
  ],
)
def test_bad_arguments_of_heads(build, message):
  with pytest.raises(ValueError, match=message):
    build()
