"""Which Keras models the door takes, and which it refuses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models import functional

layers = tf.keras.layers


def _build():
  return tf.keras.Sequential(
    [
      layers.Input((6, 6, 1)),
      layers.Conv2D(4, 3),
      layers.BatchNormalization(),
      layers.Flatten(),
      layers.Dropout(0.5),
      layers.Dense(3),
    ]
  )


class TestKindsOfModels:
  def test_ready_made_model(self):
    keras_model = _build()
    model = functional.from_keras(keras_model)
    weights = tff.learning.models.ModelWeights.from_model(keras_model)
    x = np.random.default_rng(0).normal(size=(8, 6, 6, 1)).astype(np.float32)
    outputs, _ = model.predict(*weights, x, training=False)
    expected = keras_model(x, training=False)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)

  def test_shared_layer_two_heads_and_frozen_layer(self):
    inputs = tf.keras.Input((4,))
    shared = layers.Dense(4)
    frozen = layers.Dense(4, trainable=False)
    hidden = frozen(shared(shared(inputs)))
    heads = {'a': layers.Dense(2)(hidden), 'b': layers.Dense(3)(hidden)}
    model = functional.from_keras(tf.keras.Model(inputs, heads))
    assert len(model.weights_spec.trainable) == 6
    assert len(model.weights_spec.non_trainable) == 2
    w = model.initial_weights(0)
    x = np.ones([2, 4], np.float32)
    outputs, _ = model.predict(*w, x, training=True)
    hidden = x @ w.trainable[0] @ w.trainable[0] @ w.non_trainable[0]
    np.testing.assert_allclose(outputs['a'], hidden @ w.trainable[2], atol=1e-5)
    np.testing.assert_allclose(outputs['b'], hidden @ w.trainable[4], atol=1e-5)

  def test_subclassed_model_from_a_function(self):
    class Doubling(tf.keras.Model):
      def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

      def call(self, inputs):
        return 2 * self.dense(inputs)

    with pytest.raises(ValueError, match='input_spec is None'):
      functional.from_keras(Doubling)
    model = functional.from_keras(Doubling, tf.TensorSpec([None, 3]))
    w = model.initial_weights(0)
    x = np.ones([1, 3], np.float32)
    outputs, _ = model.predict(*w, x, training=True)
    np.testing.assert_allclose(outputs, 2 * x @ w.trainable[0], rtol=1e-6)

  @pytest.mark.parts
  def test_embedding_and_recurrent_layers(self):
    def build():
      return tf.keras.Sequential(
        [layers.Input((5,), dtype='int32'), layers.Embedding(7, 4)]
        + [layers.LSTM(3, dropout=0.2), layers.Dense(2)]
      )

    model = functional.from_keras(build)
    w = model.initial_weights(0)
    x = np.arange(10, dtype=np.int32).reshape(2, 5) % 7
    outputs, _ = model.predict(*w, x, training=False)
    keras_model = build()
    w.assign_weights_to(keras_model)
    expected = keras_model(x, training=False)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)

  def test_mixed_precision(self):
    def build():
      return tf.keras.Sequential(
        [
          layers.Input((4,)),
          layers.Dense(3, dtype='mixed_bfloat16'),
          layers.Dense(2, dtype='float32'),
        ]
      )

    model = functional.from_keras(build)
    w = model.initial_weights(0)
    assert {a.dtype for a in w.trainable} == {np.dtype(np.float32)}
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    outputs, _ = model.predict(*w, x, training=True)
    np.testing.assert_allclose(
      outputs, x @ w.trainable[0] @ w.trainable[2], atol=0.05
    )


_SHIFT = np.linspace(-1, 1, 200, dtype=np.float32)


def _with(*own):
  return tf.keras.Sequential(
    [layers.Input((200,)), *own, layers.BatchNormalization(), layers.Dense(3)]
  )


def _subtracts_a_constant(size):
  inputs = layers.Input((200,))
  shifted = inputs - tf.constant(_SHIFT[:size])
  return tf.keras.Model(inputs, layers.Dense(3)(shifted))


def _closes_over_a_constant():
  shift = tf.constant(_SHIFT)
  return _with(layers.Lambda(lambda x: x - shift))


def _adapted():
  layer = layers.Normalization()
  layer.adapt(_SHIFT * np.arange(1, 9, dtype=np.float32)[:, np.newaxis] + 2)
  return layer


class TestConstants:
  @pytest.mark.parametrize(
    'build',
    [
      lambda: _subtracts_a_constant(1),
      lambda: _subtracts_a_constant(200),  # TF treats large ones otherwise.
      _closes_over_a_constant,
      lambda: _with(layers.Normalization(mean=_SHIFT, variance=[0.1] * 200)),
      lambda: _with(_adapted()),
    ],
    ids=['small', 'large', 'closure', 'normalization', 'adapted'],
  )
  def test_loss_and_gradient_are_those_of_keras(self, build):
    """In a graph of TF 1, as that of a TFF computation is."""
    keras_model = build()
    model = functional.from_keras(keras_model)
    w = model.initial_weights(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 200)).astype(np.float32)
    y = rng.integers(0, 3, 6)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      trainable, state = ([tf.constant(a) for a in each] for each in w)
      with tf.GradientTape() as tape:
        tape.watch(trainable)
        outputs, _ = model.predict(trainable, state, x, training=True)
        value = loss(y, outputs)
      ours = session.run([value, *tape.gradient(value, trainable)])
    for variable, array in zip(
      keras_model.trainable_weights, w.trainable, strict=True
    ):
      variable.assign(array)
    with tf.GradientTape() as tape:
      value = loss(y, keras_model(x, training=True))
    theirs = [value, *tape.gradient(value, keras_model.trainable_weights)]
    for own, expected in zip(ours, theirs, strict=True):
      np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-5)

  def test_ready_made_model_that_was_adapted(self):
    """Its present weights are taken, without those of the adapted layer."""
    keras_model = _with(_adapted())
    model, _ = functional.as_functional(keras_model)
    w = model.initial_weights(0)
    assert len(w.non_trainable) == 2  # Of batch normalisation.
    x = np.random.default_rng(0).normal(size=(6, 200)).astype(np.float32)
    outputs, _ = model.predict(*w, x, training=False)
    expected = keras_model(x, training=False)
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)

  def test_a_layer_that_is_adapted_later(self):
    with pytest.raises(ValueError, match='no mean and variance.*adapt a layer'):
      functional.from_keras(lambda: _with(layers.Normalization()))


class _DrawsByItself(layers.Layer):
  def call(self, inputs):
    return inputs + tf.random.normal(tf.shape(inputs))


class _ReadsUntrackedState(layers.Layer):
  def __init__(self):
    super().__init__()
    self._read = tf.Variable(1.0, name='hidden').read_value

  def call(self, inputs):
    return inputs + self._read()


class _ShrinksItsKernel(layers.Dense):
  def call(self, inputs):
    self.kernel.assign(0.9 * self.kernel)
    return super().call(inputs)


_OUTSIDE = tf.Variable(1.0)


class TestRefusals:
  @pytest.mark.parametrize(
    'layer, message',
    [
      (
        lambda: layers.Dense(2, kernel_regularizer='l2', name='penalised'),
        r"\['penalised'\].*weight decay",
      ),
      (
        lambda: layers.ActivityRegularization(l2=0.1, name='penalised'),
        r"\['penalised'\].*weight decay",
      ),
      (
        lambda: layers.Dense(2, kernel_constraint='non_neg', name='bounded'),
        'bounded/kernel.*constraint',
      ),
      (lambda: _DrawsByItself(name='noisy'), 'noisy.*random numbers'),
      (
        lambda: _ShrinksItsKernel(2, name='shrinking'),
        'assigns to its trainable weight .*shrinking/kernel',
      ),
      (_ReadsUntrackedState, "variable 'hidden'.*not among its weights"),
      (
        lambda: layers.Lambda(lambda x: x * _OUTSIDE.read_value()),
        'state outside its weights',
      ),
      (
        lambda: layers.Lambda(
          lambda x: tf.ensure_shape(
            tf.numpy_function(np.tanh, [x], tf.float32), x.shape
          )
        ),
        'PyFunc',
      ),
    ],
  )
  def test_impure_layers(self, layer, message):
    with pytest.raises(ValueError, match=message):
      functional.from_keras(
        lambda: tf.keras.Sequential([layers.Input((2,)), layer()])
      )

  def test_neither_model_nor_function(self):
    with pytest.raises(TypeError, match='model is a int'):
      functional.from_keras(3)
    with pytest.raises(TypeError, match=r'model\(\) returned a int'):
      functional.from_keras(lambda: 3)

  def test_inside_a_graph(self):
    with tf.Graph().as_default(), pytest.raises(ValueError, match='eager'):
      functional.from_keras(_build)

  def test_subclassed_model_that_cannot_be_cloned(self):
    class Subclassed(tf.keras.Model):
      def __init__(self, units):
        super().__init__()
        self.dense = layers.Dense(units)

      def call(self, inputs):
        return self.dense(inputs)

    keras_model = Subclassed(2)
    keras_model(np.zeros([1, 3], np.float32))
    with pytest.raises(ValueError, match='give a function that builds it'):
      functional.from_keras(keras_model, tf.TensorSpec([None, 3]))
