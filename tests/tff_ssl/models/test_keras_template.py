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
