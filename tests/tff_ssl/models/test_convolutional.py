import numpy as np
import pytest
import tensorflow as tf
from sklearn import datasets, model_selection

from tff_ssl import optimizers
from tff_ssl.models import MODELS, convolutional, functional, residual

# Weights and biases of emnist_cnn at 28x28x1 and 47 classes, by hand:
#   conv  3*3*1*32 + 32      =       320     28 -> 26
#   conv  3*3*32*64 + 64     =    18,496     26 -> 24, pooled to 12
#   dense 12*12*64*128 + 128 = 1,179,776     9216 inputs
#   dense 128*47 + 47        =     6,063
_EMNIST = 1_204_655
# small_cnn at 8x8x1 and 10 classes:
#   conv  3*3*1*16 + 16  =   160     8, pooled to 4
#   conv  3*3*16*32 + 32 = 4,640     4, pooled to 2
#   dense 2*2*32*64 + 64 = 8,256
#   dense 64*10 + 10     =   650
_SMALL = 13_706
# fedul_mnist at 28x28x1 and 10 classes:
#   conv  5*5*1*64 + 64    =      1,664     28, pooled to 14
#   conv  5*5*64*64 + 64   =    102,464     14, pooled to 7
#   conv  5*5*64*128 + 128 =    204,928
#   dense 6272*2048 + 2048 = 12,847,104     7*7*128 inputs
#   dense 2048*512 + 512   =  1,049,088
#   dense 512*10 + 10      =      5,130
_FEDUL = 14_210_378


@pytest.mark.parts
@pytest.mark.parametrize(
  'build, base, channels',
  [
    (convolutional.fedul_mnist, _FEDUL, 64 + 64 + 128 + 2048 + 512),
    (convolutional.fedul_mnist_dropout, _FEDUL, 64 + 64 + 128 + 2048 + 512),
    (convolutional.emnist_cnn, _EMNIST, 32 + 64),
    (convolutional.small_cnn, _SMALL, 16 + 32),
  ],
)
def test_parameter_counts(build, base, channels):
  assert build(norm='none').count_params() == base
  # A scale and an offset per channel; batch has two moving averages as well.
  assert build(norm='group').count_params() == base + 2 * channels
  assert build(norm='batch').count_params() == base + 4 * channels


def _names(model):
  return [type(layer).__name__ for layer in model.layers]


def test_order_of_layers():
  assert _names(convolutional.emnist_cnn(norm='group')) == [
    *('Conv2D', 'GroupNormalization', 'ReLU'),
    *('Conv2D', 'GroupNormalization', 'MaxPooling2D', 'SpatialDropout2D'),
    *('ReLU', 'Flatten', 'Dense', 'Dense'),
  ]
  model = convolutional.fedul_mnist()
  convolution = ('Conv2D', 'BatchNormalization', 'ReLU')
  dense = ('Dense', 'BatchNormalization', 'ReLU')
  assert _names(model) == [
    *(*convolution, 'MaxPooling2D', *convolution, 'MaxPooling2D'),
    *(*convolution, 'Flatten', *dense, *dense, 'Dense'),
  ]
  assert model.input_shape == (None, 28, 28, 1)


def test_dropout_ends_each_block_of_fedul_mnist():
  model = convolutional.fedul_mnist_dropout(norm='none')
  rates = [layer.rate for layer in model.layers if 'dropout' in layer.name]
  assert rates == [0.2] * 5
  names = _names(model)
  positions = [at for at, name in enumerate(names) if name == 'Dropout']
  assert [names[at - 1] for at in positions] == [
    *('MaxPooling2D', 'MaxPooling2D', 'ReLU', 'ReLU', 'ReLU'),
  ]


def test_emnist_cnn_equals_numpy():
  # One forward pass worked with sliding windows.
  model = convolutional.emnist_cnn((10, 10, 1), 3)
  x = np.random.default_rng(0).normal(size=(2, 10, 10, 1)).astype(np.float32)
  k1, b1, k2, b2, w1, c1, w2, c2 = model.get_weights()

  def conv(inputs, kernel, bias):
    windows = np.lib.stride_tricks.sliding_window_view(
      inputs, (3, 3), axis=(1, 2)
    )
    return np.einsum('bhwcij,ijco->bhwo', windows, kernel) + bias

  hidden = conv(np.maximum(conv(x, k1, b1), 0), k2, b2)
  hidden = hidden.reshape(2, 3, 2, 3, 2, 64).max((2, 4))
  hidden = np.maximum(hidden, 0).reshape(2, -1)
  logits = np.maximum(hidden @ w1 + c1, 0) @ w2 + c2
  np.testing.assert_allclose(model(x), logits, atol=1e-5)


def test_emnist_cnn_drops_whole_channels():
  (layer,) = [
    layer
    for layer in convolutional.emnist_cnn().layers
    if isinstance(layer, tf.keras.layers.SpatialDropout2D)
  ]
  outputs = layer(tf.ones([40, 12, 12, 64]), training=True).numpy()
  # A channel is dropped or scaled by 1 / .75 as a whole, a quarter dropped.
  assert (outputs == outputs[:, :1, :1, :]).all()
  assert np.isclose(outputs, 4 / 3).mean() == pytest.approx(0.75, abs=0.05)
  assert np.isin(outputs[:, 0, 0, :], [0, np.float32(4 / 3)]).all()


@pytest.mark.parts
def test_small_cnn_learns_digits():
  images, labels = datasets.load_digits(return_X_y=True)
  images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
  x, test_x, y, test_y = model_selection.train_test_split(
    images, labels, test_size=0.3, random_state=0
  )
  model = functional.from_keras(convolutional.small_cnn)
  optimizer = optimizers.build_nesterov_sgd(0.05, weight_decay=1e-4)
  rng = np.random.default_rng(0)

  @tf.function(autograph=False)
  def step(state, weights, x, y):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      logits, _ = model.predict(weights, [], x, training=True)
      loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
      )
    return optimizer.next(state, weights, tape.gradient(loss, weights))

  weights = [tf.constant(w) for w in model.initial_weights(0).trainable]
  state = tf.nest.map_structure(
    tf.convert_to_tensor, optimizer.initialize(model.weights_spec.trainable)
  )
  for _ in range(8):
    for batch in np.array_split(rng.permutation(len(x)), len(x) // 32):
      state, weights = step(
        state, weights, tf.constant(x[batch[:32]]), tf.constant(y[batch[:32]])
      )
  logits, _ = model.predict(weights, [], test_x, training=False)
  assert np.mean(np.argmax(logits, axis=1) == test_y) > 0.95


@pytest.mark.parts
@pytest.mark.parametrize('norm', ['none', 'batch', 'group'])
@pytest.mark.parametrize(
  'name', sorted(name for name in MODELS if 'images' in MODELS[name].forms)
)
def test_registry_builds_every_model(name, norm):
  shape = (12, 12, 3)
  model = MODELS[name].build(shape, 5, norm)
  assert model(tf.zeros([2, *shape])).shape == (2, 5)
  assert MODELS[name].description.endswith('.')


@pytest.mark.parametrize('name', sorted(MODELS))
def test_bad_arguments(name):
  with pytest.raises(ValueError, match='num_classes is 0'):
    MODELS[name].build((28, 28, 1), 0, 'none')
  with pytest.raises(ValueError, match="norm must be one of .*but is 'layer'"):
    MODELS[name].build((28, 28, 1), 10, 'layer')


@pytest.mark.parametrize(
  'build, shape, least',
  [
    (convolutional.emnist_cnn, (5, 8, 1), 6),
    (convolutional.small_cnn, (8, 8), 4),
    (convolutional.fedul_mnist, (3, 8, 1), 4),
    (convolutional.cnn_encoder, (3, 8, 1), 4),
    (residual.wide_resnet28_2, (7, 8, 3), 8),
  ],
)
def test_too_small_images(build, shape, least):
  with pytest.raises(ValueError, match=f'at least {least} by {least}'):
    build(shape)


def test_encoder_is_the_front_of_small_cnn():
  encoder = convolutional.cnn_encoder((8, 12, 3))
  # Two convolutions, see _SMALL, here of three channels.
  assert encoder.count_params() == 3 * 3 * 3 * 16 + 16 + 4_640
  whole = convolutional.small_cnn((8, 12, 3))
  encoder.set_weights(whole.get_weights()[:4])
  x = np.random.default_rng(0).normal(size=(2, 8, 12, 3)).astype(np.float32)
  features = encoder(x).numpy()
  assert features.shape == (2, (8 // 4) * (12 // 4) * 32)
  hidden, hidden_bias, last, last_bias = whole.get_weights()[4:]
  logits = np.maximum(features @ hidden + hidden_bias, 0) @ last + last_bias
  np.testing.assert_allclose(whole(x), logits, atol=1e-5)


@pytest.mark.parametrize('norm, more', [('group', 2 * 48), ('batch', 4 * 48)])
def test_encoder_normalises_each_channel(norm, more):
  plain = convolutional.cnn_encoder((8, 8, 1)).count_params()
  model = convolutional.cnn_encoder((8, 8, 1), norm)
  assert model.count_params() == plain + more


# Channels in and out of the eight convolutions of configuration A.
_VGG_CHANNELS = (3, 64, 128, 256, 256, 512, 512, 512, 512)
# 9 * (192 + 8,192 + 32,768 + 65,536 + 131,072 + 3 * 262,144) = 9,217,728
_VGG_KERNELS = 9 * sum(
  i * o for i, o in zip(_VGG_CHANNELS, _VGG_CHANNELS[1:], strict=False)
)
# 64 + 128 + 2 * 256 + 4 * 512 = 2,752
_VGG_OUTPUTS = sum(_VGG_CHANNELS[1:])
_VGG_HEAD = 512 * 10 + 10


def _count(weights):
  return sum(int(np.prod(weight.shape)) for weight in weights)


def _pools(model):
  pooling = tf.keras.layers.MaxPool2D
  return [layer for layer in model.layers if isinstance(layer, pooling)]


@pytest.mark.parts
def test_parameter_counts_of_vgg():
  assert (_VGG_KERNELS, _VGG_OUTPUTS) == (9_217_728, 2_752)
  none = convolutional.vgg11()
  assert (
    none.count_params() == _VGG_KERNELS + _VGG_OUTPUTS + _VGG_HEAD == 9_225_610
  )
  batch = convolutional.vgg11(norm='batch')
  trainable = _count(batch.trainable_weights)
  assert trainable == _VGG_KERNELS + 2 * _VGG_OUTPUTS + _VGG_HEAD
  assert _count(batch.non_trainable_weights) == 2 * _VGG_OUTPUTS
  # The usual VGG11 for CIFAR keeps biases below its normalisation, where they
  # have no effect: 9,231,114.
  assert trainable + _VGG_OUTPUTS == 9_231_114
  group = convolutional.vgg11(norm='group')
  assert group.count_params() == trainable


@pytest.mark.parametrize(
  'shape, sizes',
  [
    ((32, 32, 3), [16, 8, 4, 2, 1]),
    ((28, 28, 1), [14, 7, 4, 2, 1]),
    ((96, 96, 3), [48, 24, 12, 6, 3]),
  ],
)
def test_poolings_of_vgg(shape, sizes):
  model = convolutional.vgg11(shape, 7)
  assert [layer.output_shape[1] for layer in _pools(model)] == sizes
  assert model.output_shape == (None, 7)


def test_order_of_layers_of_vgg():
  names = [
    type(layer).__name__ for layer in convolutional.vgg11(norm='group').layers
  ]
  conv = ['Conv2D', 'GroupNormalization', 'ReLU']
  once, twice = [*conv, 'MaxPooling2D'], [*conv, *conv, 'MaxPooling2D']
  assert names == [
    *('InputLayer', *once, *once, *twice, *twice, *twice),
    *('GlobalAveragePooling2D', 'Dense'),
  ]


def test_pooling_of_odd_sizes_leaves_values_alone():
  # The row and column that the last windows lack must not count as 0.
  pool = _pools(convolutional.vgg11((28, 28, 1)))[2]
  x = -np.arange(1, 50, dtype=np.float32).reshape(1, 7, 7, 1)
  assert pool(x).numpy().max() == -1
  assert pool(x).numpy()[0, 3, 3, 0] == -49
