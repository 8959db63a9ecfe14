"""Joint models against numpy and against their own parts."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import are_equal, assert_close, assert_same

from tff_ssl.models import blocks, dense, functional, split
from tff_ssl.templates import local_training

layers = tf.keras.layers

_SHAPE = (4, 4, 1)
_SEED = tf.constant([3, 4])


def _head(outputs, features=6):
  return functional.from_keras(dense.linear_head(features, outputs))


@pytest.fixture(scope='module')
def encoder():
  return functional.from_keras(dense.dense_encoder(_SHAPE, features=6))


@pytest.fixture(scope='module')
def one_head(encoder):
  return split.join(encoder, _head(3))


@pytest.fixture(scope='module')
def two_heads(encoder):
  decoder = functional.from_keras(dense.dense_decoder(6, _SHAPE))
  return split.join(encoder, _head(3), decoder)


@pytest.fixture(scope='module')
def normalised():
  """Batch normalisation in the encoder and in the head."""
  head = tf.keras.Sequential(
    [layers.Input((6,)), layers.Dense(3), blocks.make_norm('batch')]
  )
  return split.join(
    functional.from_keras(dense.dense_encoder(_SHAPE, 'batch', 6)),
    functional.from_keras(head),
  )


def _x(size=5, seed=0):
  rng = np.random.default_rng(seed)
  return rng.normal(1, 2, (size, *_SHAPE)).astype(np.float32)


def _predict(model, weights, x, **more):
  return model.predict(weights.trainable, weights.non_trainable, x, **more)


def _shapes(specs):
  return [tuple(spec.shape) for spec in specs]


def _random_weights(model, seed=1):
  """Weights of which no two are alike."""
  rng = np.random.default_rng(seed)
  return tf.nest.map_structure(
    lambda spec: rng.normal(size=spec.shape).astype(np.float32),
    model.weights_spec,
  )


class TestJoin:
  def test_weights_are_those_of_the_parts_in_order(self, two_heads):
    assert _shapes(two_heads.weights_spec.trainable) == [
      *[(16, 6), (6,)],
      *[(6, 3), (3,)],
      *[(6, 16), (16,)],
    ]
    assert two_heads.weights_spec.non_trainable == []
    assert two_heads.input_spec == tf.TensorSpec([None, *_SHAPE], tf.float32)
    assert not two_heads.is_random
    assert _shapes(two_heads.encoder.weights_spec.trainable)[0] == (16, 6)
    assert [len(h.weights_spec.trainable) for h in two_heads.heads] == [2, 2]

  def test_outputs_equal_numpy(self, one_head, two_heads):
    weights = _random_weights(two_heads)
    x = _x()
    w, b, v, c, u, d = weights.trainable
    features = np.maximum(x.reshape(5, 16) @ w + b, 0)
    logits, images = features @ v + c, features @ u + d
    outputs, _ = _predict(two_heads, weights, x, training=True)
    np.testing.assert_allclose(outputs[0], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
      outputs[1], images.reshape(5, *_SHAPE), rtol=1e-4, atol=1e-5
    )
    # One head gives its outputs as they are, like any classifier.
    alone, _ = _predict(
      one_head, two_heads.take(weights, [0, 1]), x, training=False
    )
    np.testing.assert_allclose(alone, logits, rtol=1e-4, atol=1e-5)

  def test_one_heads_weights_begin_those_of_two(self, one_head, two_heads):
    one, two = one_head.initial_weights(7), two_heads.initial_weights(7)
    assert_same(one.trainable, two.trainable[:4])
    assert_same(two, two_heads.initial_weights(7))
    other = two_heads.initial_weights(8)
    assert not np.array_equal(other.trainable[0], two.trainable[0])

  def test_equal_heads_start_differently(self, encoder):
    model = split.join(encoder, _head(3), _head(3))
    _, _, kernel, _, other, _ = model.initial_weights(0).trainable
    assert not np.array_equal(kernel, other)

  def test_without_training_the_state_is_handed_back(self, normalised):
    weights = normalised.initial_weights(0)
    _, state = _predict(normalised, weights, _x(), training=False)
    assert state is weights.non_trainable

  def test_moving_statistics_of_each_part(self, normalised):
    weights = _random_weights(normalised)
    weights.non_trainable[1] **= 2
    weights.non_trainable[3] **= 2
    x = _x()
    kernel, bias, gamma, beta, head_kernel, head_bias, _, _ = weights.trainable
    mean, variance, head_mean, head_variance = weights.non_trainable
    hidden = x.reshape(5, 16) @ kernel + bias
    scaled = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)
    features = np.maximum(scaled * gamma + beta, 0)
    logits = features @ head_kernel + head_bias
    _, state = _predict(normalised, weights, x, training=True)
    expected = [
      0.9 * old + 0.1 * new
      for old, new in (
        *((mean, hidden.mean(0)), (variance, hidden.var(0))),
        *((head_mean, logits.mean(0)), (head_variance, logits.var(0))),
      )
    ]
    assert_close(state, expected, rtol=1e-4, atol=1e-5)

  def test_refusals(self, encoder, two_heads):
    with pytest.raises(ValueError, match='heads is empty'):
      split.join(encoder)
    with pytest.raises(
      ValueError,
      match=r'A head takes float32\(None, 7\), but the encoder gives '
      r'float32\(None, 6\)',
    ):
      split.join(encoder, _head(3), _head(3, features=7))
    for parts in ((encoder, lambda x: x), ('encoder', _head(3))):
      with pytest.raises(TypeError, match='A part is a .* or a Keras model'):
        split.join(*parts)
    with pytest.raises(ValueError, match='model gives a tuple of outputs'):
      split.join(two_heads, _head(3))
    for seed in (-1, 0.5, None):
      with pytest.raises(ValueError, match='seed must be an integer'):
        two_heads.initial_weights(seed)

  def test_keras_parts_are_converted(self, encoder):
    by_keras = split.join(
      dense.dense_encoder(_SHAPE, features=6), dense.linear_head(6, 3)
    )
    converted = split.join(encoder, _head(3))
    assert_same(by_keras.initial_weights(4), converted.initial_weights(4))
    outputs, expected = (
      model.predict(*model.initial_weights(4), _x(), training=False)[0]
      for model in (by_keras, converted)
    )
    np.testing.assert_array_equal(outputs, expected)

  @pytest.mark.dear
  @pytest.mark.parametrize('mode', ['function', 'computation'])
  def test_graphs_equal_eager_calls(self, tff_context, normalised, mode):
    x = _x()

    def step(weights):
      with tf.GradientTape() as tape:
        tape.watch(weights.trainable)
        outputs, state = _predict(normalised, weights, x, training=True)
        loss = tf.reduce_sum(outputs**2)
      return outputs, state, tape.gradient(loss, weights.trainable)

    weights = tf.nest.map_structure(tf.constant, normalised.initial_weights(0))
    wrapped = {
      'function': tf.function(step),
      'computation': tff.tensorflow.computation(step, normalised.weights_type),
    }[mode]
    # The containers are others.
    results = [tf.nest.flatten(each(weights)) for each in (wrapped, step)]
    assert_close(*results, rtol=1e-4, atol=1e-5)


class TestParts:
  @pytest.mark.parametrize('parts', [[0], [1], [0, 1], [1, 0]])
  def test_take_and_put_are_inverse(self, normalised, parts):
    weights = _random_weights(normalised)
    taken = normalised.take(weights, parts)
    assert_same(normalised.put(weights, parts, taken), weights)
    other = _random_weights(normalised, seed=2)
    replaced = normalised.put(weights, parts, normalised.take(other, parts))
    assert_same(normalised.take(replaced, parts), normalised.take(other, parts))
    for part in {0, 1} - set(parts):
      assert_same(
        normalised.take(replaced, [part]), normalised.take(weights, [part])
      )

  def test_positions(self, normalised):
    weights = _random_weights(normalised)
    head = normalised.take(weights, [1])
    assert_same(head.trainable, weights.trainable[4:])
    assert_same(head.non_trainable, weights.non_trainable[2:])

  def test_encoder_moves_between_models(self, one_head, two_heads):
    pretrained = _random_weights(two_heads)
    start = one_head.initial_weights(0)
    weights = one_head.with_encoder_weights(
      start, two_heads.encoder_weights(pretrained)
    )
    assert_same(weights.trainable[:2], pretrained.trainable[:2])
    assert_same(weights.trainable[2:], start.trainable[2:])

  def test_put_refuses_other_shapes_and_dtypes(self, one_head, normalised):
    weights = one_head.initial_weights(0)
    wider = dense.dense_encoder(_SHAPE, features=7)
    new = functional.from_keras(wider).initial_weights(0)
    with pytest.raises(ValueError) as refusal:
      one_head.with_encoder_weights(weights, new)
    assert "['float32(16, 7)', 'float32(7,)']" in str(refusal.value)
    assert "['float32(16, 6)', 'float32(6,)']" in str(refusal.value)
    doubled = one_head.encoder_weights(weights)
    doubled.trainable[0] = doubled.trainable[0].astype(np.float64)
    with pytest.raises(ValueError, match=r'trainable .*float64\(16, 6\)'):
      one_head.with_encoder_weights(weights, doubled)
    # Trainable weights alike, but moving statistics are missing.
    full = normalised.initial_weights(0)
    without = normalised.encoder_weights(full)
    without.non_trainable.clear()
    with pytest.raises(ValueError, match=r'The non_trainable weights are \[\]'):
      normalised.with_encoder_weights(full, without)


class TestFreezeEncoder:
  def test_freeze_and_thaw_are_inverse(self, normalised):
    weights = _random_weights(normalised)
    frozen = split.freeze_weights(normalised, weights)
    assert_same(frozen.trainable, weights.trainable[4:])
    assert_same(
      frozen.non_trainable, [*weights.trainable[:4], *weights.non_trainable]
    )
    assert_same(split.thaw_weights(normalised, frozen), weights)
    model = split.freeze_encoder(normalised)
    assert _shapes(model.weights_spec.trainable) == _shapes(frozen.trainable)
    assert _shapes(model.weights_spec.non_trainable) == _shapes(
      frozen.non_trainable
    )
    assert_same(
      split.thaw_weights(normalised, model.initial_weights(3)),
      normalised.initial_weights(3),
    )

  def test_training_leaves_the_encoder_alone(self, normalised):
    weights = tf.nest.map_structure(tf.constant, normalised.initial_weights(0))
    thawed, frozen = weights, split.freeze_weights(normalised, weights)
    model = split.freeze_encoder(normalised)
    for step in range(3):
      thawed = _sgd_step(normalised, thawed, _x(seed=step))
      frozen = _sgd_step(model, frozen, _x(seed=step))
    frozen = split.thaw_weights(normalised, frozen)
    # Bit for bit, moving statistics included.
    assert_same(normalised.take(frozen, [0]), normalised.take(weights, [0]))
    heads_of = (normalised.take(each, [1]) for each in (weights, frozen))
    assert not any(are_equal(*heads_of))
    # The control: without the freeze all but a bias ahead of its own
    # normalisation moves.
    first, _, *others = are_equal(
      normalised.take(weights, [0]), normalised.take(thawed, [0])
    )
    assert not first and not any(others)

  def test_encoder_runs_as_at_inference(self, normalised):
    weights = _random_weights(normalised)
    weights.non_trainable[1] **= 2
    frozen = split.freeze_weights(normalised, weights)
    outputs, state = _predict(
      split.freeze_encoder(normalised), frozen, _x(), training=True
    )
    features, _ = _predict(
      normalised.encoder, normalised.take(weights, [0]), _x(), training=False
    )
    expected, head_state = _predict(
      normalised.heads[0],
      normalised.take(weights, [1]),
      features,
      training=True,
    )
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    assert_close(state[-2:], head_state, rtol=1e-5)

  def test_two_heads(self, two_heads):
    weights = _random_weights(two_heads)
    outputs, _ = _predict(
      split.freeze_encoder(two_heads),
      split.freeze_weights(two_heads, weights),
      _x(),
      training=False,
    )
    expected, _ = _predict(two_heads, weights, _x(), training=False)
    assert_same(outputs, expected)


class TestDropout:
  def _dropout(self):
    return functional.from_keras(
      tf.keras.Sequential([layers.Input((1000,)), layers.Dropout(0.5)])
    )

  def _masks(self, model, seed):
    outputs, _ = model.predict(
      [], [], tf.ones([1, 1000]), training=True, seed=tf.constant(seed)
    )
    return [output.numpy() != 0 for output in outputs]

  def test_each_part_draws_its_own(self):
    plain = functional.from_keras(
      tf.keras.Sequential([layers.Input((1000,)), layers.ReLU()])
    )
    model = split.join(plain, self._dropout(), self._dropout())
    assert model.is_random
    first, second = self._masks(model, [1, 2])
    # Independent masks agree on half of the units, give or take 5 sigma.
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.08)
    assert_same(self._masks(model, [1, 2]), [first, second])
    other, _ = self._masks(model, [1, 3])
    assert np.mean(first == other) == pytest.approx(0.5, abs=0.08)

  def test_encoder_and_head_draw_differently(self):
    model = split.join(self._dropout(), self._dropout())
    (kept,) = self._masks(model, [1, 2])
    # Equal masks would keep half of the units, independent ones a quarter.
    assert np.mean(kept) == pytest.approx(0.25, abs=0.07)

  def test_a_frozen_encoder_drops_nothing(self):
    encoder = self._dropout()
    model = split.freeze_encoder(split.join(encoder, _head(2, features=1000)))
    assert not model.is_random
    weights = model.initial_weights(0)
    x = tf.ones([1, 1000])
    outputs, _ = _predict(model, weights, x, training=True)
    expected = np.sum(weights.trainable[0], axis=0, keepdims=True)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def _sgd_step(model, weights, x):
  """One step of plain SGD towards outputs 1, 2 and 3."""

  def objective(predict, batch, anchors, seed):
    outputs = predict(batch, seed=seed)
    return tf.reduce_sum((outputs - tf.constant([1.0, 2.0, 3.0])) ** 2), {}

  gradient, _, state, _ = local_training.objective_gradient(
    model, objective, weights, x, None, _SEED
  )
  moved = [
    w - 0.1 * g for w, g in zip(weights.trainable, gradient, strict=True)
  ]
  return tff.learning.models.ModelWeights(moved, state)
