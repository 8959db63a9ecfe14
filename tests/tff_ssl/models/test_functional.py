import random

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same

from tff_ssl.models import functional

pytestmark = pytest.mark.usefixtures('tff_context')

layers = tf.keras.layers


def _build():
  return tf.keras.Sequential(
    [
      layers.Input((6, 6, 1)),
      layers.Conv2D(4, 3),
      layers.BatchNormalization(momentum=0.9),
      layers.ReLU(),
      layers.SpatialDropout2D(0.25),
      layers.MaxPool2D(),
      layers.GaussianNoise(0.1),
      layers.Flatten(),
      layers.Dropout(0.5),
      layers.Dense(3),
    ]
  )


@pytest.fixture(scope='module')
def model():
  return functional.from_keras(_build)


def _images(count=8, seed=0):
  rng = np.random.default_rng(seed)
  return rng.normal(1, 2, (count, 6, 6, 1)).astype(np.float32)


def _keras_with(weights, build=_build):
  keras_model = build()
  weights.assign_weights_to(keras_model)
  return keras_model


# TFF warns of batch normalisation, which is here for its type only.
@pytest.mark.filterwarnings('ignore:Batch Normalization')
def test_specs(model):
  assert model.input_spec == tf.TensorSpec([None, 6, 6, 1], tf.float32)
  assert model.is_random
  # Kernel, bias, gamma, beta; kernel, bias (2*2*4 inputs); mean, variance.
  assert [spec.shape.as_list() for spec in model.weights_spec.trainable] == [
    *([3, 3, 1, 4], [4], [4], [4]),
    *([16, 3], [3]),
  ]
  assert [s.shape.as_list() for s in model.weights_spec.non_trainable] == [
    [4],
    [4],
  ]
  tff_type = tff.learning.models.weights_type_from_model(
    lambda: tff.learning.models.from_keras_model(
      _build(),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(model.input_spec, tf.TensorSpec([None, 3])),
    )
  )
  assert model.weights_type == tff_type


class TestInitialWeights:
  def test_depends_on_the_seed_alone(self, model):
    first = model.initial_weights(3)
    tf.random.set_seed(1)
    np.random.seed(1)
    random.seed(1)
    again = functional.from_keras(_build).initial_weights(3)
    assert_same(first, again)
    other = model.initial_weights(4)
    assert not np.array_equal(first.trainable[0], other.trainable[0])
    assert all(isinstance(w, np.ndarray) for w in tf.nest.flatten(first))

  def test_equal_layers_start_differently(self):
    model = functional.from_keras(
      lambda: tf.keras.Sequential(
        [
          layers.Input((4,)),
          *(
            layers.Dense(
              4, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=7)
            )
            for _ in range(2)
          ),
        ]
      )
    )
    kernel, _, other, _ = model.initial_weights(0).trainable
    assert not np.array_equal(kernel, other)

  def test_follows_the_initialisers(self):
    def custom(shape, dtype):
      return tf.random.normal(shape, 5.0, 0.01, dtype)

    model = functional.from_keras(
      lambda: tf.keras.Sequential(
        [
          layers.Input((300,)),
          layers.Dense(200),
          layers.Dense(50, kernel_initializer=custom, bias_initializer='ones'),
          layers.BatchNormalization(),
        ]
      )
    )
    weights = model.initial_weights(0)
    glorot, zeros, around_5, ones, *_ = weights.trainable
    # Glorot: uniform within sqrt(6 / (300 + 200)) = 0.10954.
    assert 0.109 < np.abs(glorot).max() <= 0.10955
    assert np.std(glorot) == pytest.approx(0.10954 / np.sqrt(3), rel=0.02)
    assert around_5.mean() == pytest.approx(5, abs=0.01)
    assert_same([zeros, ones], [np.zeros(200), np.ones(50)])
    assert_same(weights.non_trainable, [np.zeros(50), np.ones(50)])
    assert_same(weights, model.initial_weights(0))

  def test_leaves_global_random_state_alone(self, model):
    def draw():
      tf.random.set_seed(5)
      np.random.seed(5)
      random.seed(5)

    def look():
      return tf.random.uniform([3]).numpy(), np.random.rand(3), random.random()

    draw()
    expected = look()
    draw()
    model.initial_weights(11)
    assert_same(look(), expected)

  def test_keeps_weights_set_by_the_builder(self):
    def build():
      keras_model = tf.keras.Sequential([layers.Input((2,)), layers.Dense(1)])
      keras_model.set_weights([np.array([[2.0], [3.0]]), np.array([4.0])])
      return keras_model

    weights = functional.from_keras(build).initial_weights(0)
    assert_same(weights.trainable, [np.array([[2.0], [3.0]]), np.array([4.0])])

  @pytest.mark.parametrize('seed', [-1, 0.5, None])
  def test_bad_seed(self, model, seed):
    with pytest.raises(ValueError, match='seed is'):
      model.initial_weights(seed)


class TestPredict:
  def test_equals_keras_in_evaluation(self, model):
    weights = model.initial_weights(0)
    weights.non_trainable[0] += 0.3
    weights.non_trainable[1] *= 2
    outputs, state = model.predict(*weights, _images(), training=False)
    expected = _keras_with(weights)(_images(), training=False)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert state is weights.non_trainable
    # Of any number of inputs.
    first, _ = model.predict(*weights, _images()[:1], training=False)
    np.testing.assert_allclose(outputs[:1], first, atol=1e-6)

  def test_batch_normalization_equals_keras_in_training(self):
    def build():
      return tf.keras.Sequential(
        [
          layers.Input((6, 6, 1)),
          layers.Conv2D(4, 3),
          layers.BatchNormalization(momentum=0.8),
          layers.Flatten(),
          layers.Dense(5),
          layers.BatchNormalization(),
        ]
      )

    model = functional.from_keras(build)
    assert not model.is_random
    weights = model.initial_weights(1)
    keras_model = _keras_with(weights, build)
    state = weights.non_trainable
    for step in range(3):
      x = _images(seed=step)
      outputs, state = model.predict(weights.trainable, state, x, training=True)
      expected = keras_model(x, training=True)
      np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert_close(state, keras_model.non_trainable_weights, rtol=1e-5)

  def test_randomness_is_a_function_of_the_seed(self, model):
    weights = model.initial_weights(0)

    def run(seed):
      return model.predict(
        *weights, _images(), training=True, seed=tf.constant(seed)
      )

    assert_same(run([1, 2]), run([1, 2]))
    for other in ([2, 2], [1, 3]):
      assert not np.array_equal(run([1, 2])[0], run(other)[0])

  def test_every_random_layer_and_call_draws_its_own(self):
    inputs = tf.keras.Input((1000,))
    shared = layers.Dropout(0.5)
    outputs = [shared(inputs), shared(inputs), layers.Dropout(0.5)(inputs)]
    model = functional.from_keras(tf.keras.Model(inputs, outputs))
    masks, _ = model.predict(
      [], [], tf.ones([1, 1000]), training=True, seed=tf.constant([0, 0])
    )
    masks = [mask.numpy() != 0 for mask in masks]
    for i, j in ((0, 1), (0, 2), (1, 2)):
      # Independent masks agree on half of the units, give or take 5 sigma.
      assert np.mean(masks[i] == masks[j]) == pytest.approx(0.5, abs=0.08)

  def test_augmentation_layers_take_the_seed(self):
    model = functional.from_keras(
      lambda: tf.keras.Sequential(
        [layers.Input((6, 6, 1)), layers.RandomFlip('horizontal')]
      )
    )
    x = _images(64)
    outputs, _ = model.predict(
      [], [], x, training=True, seed=tf.constant([0, 1])
    )
    flipped = (outputs.numpy() == x[:, :, ::-1]).all((1, 2, 3))
    assert 16 < flipped.sum() < 48
    np.testing.assert_array_equal(outputs[~flipped], x[~flipped])

  def test_training_needs_a_seed(self, model):
    with pytest.raises(ValueError, match='seed is None'):
      model.predict(*model.initial_weights(0), _images(), training=True)

  @pytest.mark.parametrize('mode', ['eager', 'function', 'computation'])
  def test_three_steps_in_a_loop_equal_eager_steps(self, model, mode):
    weights = model.initial_weights(0)
    x = _images()

    def step(index, trainable, state):
      # The gradient of a gradient's norm: two derivatives deep.
      with tf.GradientTape() as outer:
        outer.watch(trainable)
        with tf.GradientTape() as inner:
          inner.watch(trainable)
          outputs, state = model.predict(
            trainable, state, x, training=True, seed=tf.stack([index, 7])
          )
          loss = tf.reduce_mean(outputs**2)
        gradients = inner.gradient(loss, trainable)
        loss += tf.add_n([tf.reduce_sum(g**2) for g in gradients])
      gradients = outer.gradient(loss, trainable)
      moved = [w - 1e-3 * g for w, g in zip(trainable, gradients, strict=True)]
      return index + 1, moved, state

    def loop(weights):
      start = (0, list(weights.trainable), list(weights.non_trainable))
      return tf.while_loop(lambda i, *_: i < 3, step, start)[1:]

    tensors = tf.nest.map_structure(tf.constant, weights)
    expected = (0, tensors.trainable, tensors.non_trainable)
    for _ in range(3):
      expected = step(*expected)
    wrapped = {
      'eager': loop,
      'function': tf.function(loop),
      'computation': tff.tensorflow.computation(loop, model.weights_type),
    }[mode]
    # A worker may add in another order: it has oneDNN's kernels.
    assert_close(wrapped(tensors), expected[1:], rtol=1e-5, atol=1e-6)

  def test_creates_no_variables(self, model):
    weights = model.initial_weights(0)

    @tf.function
    def predict(trainable, state, x):
      seed = tf.constant([0, 0])
      return model.predict(trainable, state, x, training=True, seed=seed)

    graph = predict.get_concrete_function(*weights, _images()).graph
    assert not graph.variables
    assert not graph.captures
    assert not [op for op in graph.get_operations() if op.op_def.is_stateful]

  @pytest.mark.parametrize(
    'x', [np.zeros([2, 6, 6]), np.zeros([2, 6, 6, 1], np.uint8)]
  )
  def test_wrong_input(self, model, x):
    with pytest.raises(ValueError, match=r'takes float32\(None, 6, 6, 1\)'):
      model.predict(*model.initial_weights(0), x, training=False)

  def test_wrong_weights(self, model):
    trainable, state = model.initial_weights(0)
    with pytest.raises(
      ValueError, match=r"trainable weights are .*float32\(4,\)'\]"
    ):
      model.predict(state, state, _images(), training=False)
    with pytest.raises(ValueError, match='non_trainable weights are'):
      model.predict(trainable, state[:1], _images(), training=False)


def test_from_tff_functional_model():
  theirs = tff.learning.models.functional_model_from_keras(
    lambda: tf.keras.Sequential([layers.Input((4,)), layers.Dense(2)]),
    tf.keras.losses.MeanSquaredError(),
    (tf.TensorSpec([None, 4]), tf.TensorSpec([None, 2])),
  )
  model = functional.from_tff_functional_model(theirs)
  w = model.initial_weights(5)
  assert_same(w.trainable, theirs.initial_weights[0])
  x = np.ones([3, 4], np.float32)
  predict = tff.tensorflow.computation(
    lambda w: model.predict(w.trainable, [], x, training=True)[0],
    model.weights_type,
  )
  np.testing.assert_allclose(
    predict(w), x @ w.trainable[0] + w.trainable[1], rtol=1e-6
  )


def _classifier(*last, hidden=None):
  """Builds a network that ends in `last`."""
  return tf.keras.Sequential(
    [
      layers.Input((4,)),
      *([] if hidden is None else [layers.Dense(5, hidden)]),
      layers.Dense(3),
      *last,
    ]
  )


class _Widened(layers.Layer):
  """A softmax in half precision, whose probabilities are widened."""

  def call(self, x):
    return tf.cast(tf.nn.softmax(tf.cast(x, tf.bfloat16)), tf.float32)


class TestLastActivation:
  """Objectives take logits; probabilities would train badly, with no error."""

  @pytest.mark.parametrize(
    'build, message',
    [
      (layers.Softmax, 'ends in a softmax.*from_logits=False'),
      (
        lambda: layers.Dense(3, 'softmax'),
        'ends in a softmax.*from_logits=False',
      ),
      (
        lambda: tf.keras.Sequential([layers.Softmax(), layers.Reshape((3, 1))]),
        'ends in a softmax.*from_logits=False',
      ),
      (_Widened, 'ends in a softmax.*from_logits=False'),
      (
        lambda: layers.Dense(3, 'sigmoid'),
        'ends in a sigmoid.*from_logits=True',
      ),
      (lambda: layers.Dense(1, 'sigmoid'), 'one probability.*two outputs'),
    ],
    ids=['layer', 'activation', 'reshaped', 'cast', 'sigmoid', 'one'],
  )
  def test_probabilities_are_refused(self, build, message):
    # Made here: models of other tests' graphs spoil layers made before them.
    last = build()
    with pytest.raises(ValueError, match=message):
      functional.from_keras(_classifier(last))

  def test_hidden_activations_are_not(self):
    functional.from_keras(_classifier(hidden='softmax'))

  def test_the_softmax_is_left_out_on_demand(self):
    """Keras' probabilities are the softmax of the logits."""
    model = functional.from_keras(
      _classifier(layers.Softmax()), from_logits=False
    )
    w = model.initial_weights(3)
    x = np.random.default_rng(0).normal(size=[6, 4]).astype(np.float32)
    logits, _ = model.predict(*w, x, training=False)
    theirs = _classifier(layers.Softmax())
    theirs.set_weights(w.trainable)
    np.testing.assert_allclose(tf.nn.softmax(logits), theirs(x), rtol=1e-5)
    np.testing.assert_allclose(
      logits, x @ w.trainable[0] + w.trainable[1], rtol=1e-5, atol=1e-6
    )

  def test_its_input_has_the_type_of_the_outputs(self):
    model = functional.from_keras(
      lambda: _classifier(_Widened()), from_logits=False
    )
    logits, _ = model.predict(
      *model.initial_weights(0),
      np.ones([1, 4], np.float32),
      training=False,
    )
    assert logits.dtype == tf.float32

  def test_it_must_be_there_to_be_left_out(self):
    with pytest.raises(
      ValueError, match='from_logits=False.*not end in a soft'
    ):
      functional.from_keras(_classifier(), from_logits=False)

  def test_features_may_be_anything(self):
    model = functional.from_keras(
      _classifier(layers.Activation('sigmoid')), from_logits=True
    )
    outputs, _ = model.predict(
      *model.initial_weights(0),
      np.ones([1, 4], np.float32),
      training=False,
    )
    assert 0 < np.min(outputs) <= np.max(outputs) < 1

  def test_probabilities_of_a_tff_model_are_refused(self):
    theirs = tff.learning.models.functional_model_from_keras(
      lambda: _classifier(layers.Softmax()),
      tf.keras.losses.SparseCategoricalCrossentropy(),
      (tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)),
    )
    with pytest.raises(ValueError, match='are probabilities.*without its soft'):
      functional.from_tff_functional_model(theirs)

  def test_a_tensor_from_outside_is_told(self):
    scale = tf.constant(2.0)
    theirs = tff.learning.models.functional.FunctionalModel(
      initial_weights=((np.ones([4, 3], np.float32),), ()),
      predict_on_batch_fn=tf.function(
        lambda weights, x, training: scale * tf.matmul(x, weights[0][0])
      ),
      loss_fn=tf.function(lambda output, label, sample_weight=None: 0.0),
      input_spec=(tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int32)),
    )
    with pytest.raises(ValueError, match='made outside.*NumPy array'):
      functional.from_tff_functional_model(theirs)
