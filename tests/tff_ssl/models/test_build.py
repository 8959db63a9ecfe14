"""Classifiers by name."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import models
from tff_ssl.models import split


@pytest.mark.parametrize('norm', ['none', 'batch', 'group'])
@pytest.mark.parametrize(
  'name', ['dense_encoder', 'cnn_encoder', 'dense', 'small_cnn']
)
def test_every_kind(name, norm):
  model = models.build(name, (8, 8, 1), 5, norm)
  assert isinstance(model, split.SplitModel) == (name in models.ENCODERS)
  weights = model.initial_weights(0)
  outputs, _ = model.predict(*weights, tf.zeros([2, 8, 8, 1]), training=False)
  assert outputs.shape == (2, 5)
  assert bool(model.weights_spec.non_trainable) == (norm == 'batch')


def test_the_papers_network():
  model = models.build('dense_encoder', (28, 28, 1), 10, 'none')
  sizes = [spec.shape.num_elements() for spec in model.weights_spec.trainable]
  assert sizes == [784 * 256, 256, 256 * 10, 10]
  assert model.encoder.input_spec.shape.as_list() == [None, 28, 28, 1]


@pytest.mark.parts
@pytest.mark.parametrize(
  'name, norm',
  # Basic blocks and bottlenecks.
  [('resnet18', 'batch'), ('resnet50', 'none')],
)
def test_resnet_encoder_and_its_head_are_the_network(name, norm):
  whole = models.build(name, (8, 8, 3), 5, norm)
  joined = models.build(f'{name}_encoder', (8, 8, 3), 5, norm)
  assert joined.weights_spec == whole.weights_spec
  weights = whole.initial_weights(3)
  images = tf.random.stateless_normal([2, 8, 8, 3], [1, 2])
  expected, _ = whole.predict(*weights, images, training=False)
  outputs, _ = joined.predict(*weights, images, training=False)
  np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)
  # Unsure at the start, as the network is.
  *_, kernel, bias = joined.initial_weights(3).trainable
  assert np.std(kernel) == pytest.approx(0.01, rel=0.1)
  assert not np.any(bias)


@pytest.mark.parts
@pytest.mark.parametrize(
  'name', ['dense', 'small_cnn', 'resnet9', 'cnn_encoder']
)
def test_logits_are_float32_under_mixed_precision(name):
  tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
  try:
    model = models.build(name, (8, 8, 1), 5, 'none')
  finally:
    tf.keras.mixed_precision.set_global_policy('float32')
  weights = model.initial_weights(0)
  images = tf.random.stateless_uniform([4, 8, 8, 1], [1, 2])
  logits, _ = model.predict(*weights, images, training=False)
  assert logits.dtype == tf.float32
  # Not bfloat16 that was widened afterwards, which has 16 bits of zeros.
  bits = tf.bitcast(logits, tf.uint32).numpy()
  assert (bits & 0xFFFF).any()


@pytest.mark.parametrize('name', models.ENCODERS)
def test_registry(name):
  assert models.ENCODERS[name].description.endswith('.')
  assert name not in models.MODELS


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('mlp', (4, 4, 1), 3, 'none'), "name is 'mlp': give one of .*'dense'"),
    (('dense_encoder', (4, 4, 1), 0, 'none'), 'num_classes is 0'),
    (('cnn_encoder', (4, 4, 1), 3, 'layer'), "norm must be .* is 'layer'"),
    (('dense_encoder', (4, 4, 1), 3, 'layer'), "norm must be .* is 'layer'"),
    (('cnn_encoder', (2, 8, 1), 3, 'none'), 'at least 4 by 4'),
  ],
)
def test_bad_arguments(arguments, message):
  with pytest.raises(ValueError, match=message):
    models.build(*arguments)


def test_own_network_with_another_number_of_outputs():
  with pytest.raises(ValueError, match=r'own_network:of_two.*2\].*Dense\(5\)'):
    models.build('own_network:of_two', (4, 4, 1), 5, 'none')


def test_own_network_that_rescales_what_is_standardised(caplog):
  models.build('own_network:of_pixels', (4, 4, 1), 5, 'none')
  (record,) = caplog.records
  assert "'scale' of the network rescales" in record.getMessage()
  caplog.clear()
  models.build('own_network:build', (4, 4, 1), 5, 'none')
  assert not caplog.records


@pytest.mark.parametrize(
  'name, message',
  [
    ('softmax', r'ends in a softmax .*: leave it out, and .* Dense\(5\)'),
    ('sigmoid', r'ends in a .*sigmoid, .*: leave it out, and .* Dense\(5\)'),
    ('softmax_and_dropout', r'sum to 1.*: leave the softmax out, .*Dense\(5\)'),
    ('bytes', r'takes uint8 .*are float32 .*keras.Input\(shape=input_shape\)'),
    ('one_size', r'\(28, 28, 1\), but .*float32 \(4, 4, 1\): let it begin'),
    (
      'two_arguments',
      r'cannot be called .*def of_two_arguments\(input_shape, n',
    ),
    ('nothing', r'returned a NoneType: let it return a tf.keras.Model'),
    ('a_layer', r'returned a Dense: let it return a tf.keras.Model'),
    ('a_slip', r"own_network.py:\d+ with KeyError: 'x': repair that"),
    ('weight_decay', r'add losses .*use the weight decay of the optimizer'),
  ],
)
def test_own_network_that_cannot_be_trained(name, message):
  with pytest.raises(ValueError, match=message) as caught:
    models.build(f'own_network:of_{name}', (4, 4, 1), 5, 'none')
  text = str(caught.value)
  assert text.startswith(f"model='own_network:of_{name}'")
  assert 'from_logits' not in text and '\n' not in text


@pytest.mark.parametrize('name', ['no_input', 'a_subclass', 'a_built_subclass'])
def test_own_network_that_keras_cannot_clone(name):
  model = models.build(f'own_network:of_{name}', (4, 4, 1), 5, 'none')
  weights = model.initial_weights(0)
  outputs, _ = model.predict(*weights, tf.zeros([2, 4, 4, 1]), training=False)
  assert outputs.shape == (2, 5)
  assert not np.array_equal(weights.trainable[0], np.zeros([16, 5]))


def test_weights_that_an_own_network_sets_are_kept(caplog):
  model = models.build('own_network:of_given_weights', (4, 4, 1), 5, 'none')
  (record,) = caplog.records
  assert '6 of 8 weights begin as the function sets' in record.getMessage()
  first, second = (model.initial_weights(seed) for seed in (0, 1))
  assert [w.shape for w in first.trainable] == [(3, 5), (5,)]
  assert len(first.non_trainable) == 6
  assert all((weight == 7).all() for weight in first.non_trainable)
  assert (first.trainable[0] != second.trainable[0]).all()
  # Arrays are the caller's own.
  first.non_trainable[0][:] = 0
  assert model.initial_weights(0).non_trainable[0].all()
