"""Eqs. 4 and 5 of Zhang et al. on hand-made logits, against numpy."""

import collections

import federations
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from comparing import assert_close

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.models import dense
from tff_ssl.objectives.maths import selection
from tff_ssl.templates import prediction

_SEED = tf.constant([3, 4])

# Softmax maxima .8, .5, .97 and .4 on three classes: the weak view's logits.
_WEAK = np.log(
  [[0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.97, 0.02, 0.01], [0.3, 0.3, 0.4]]
).astype(np.float32)
_STRONG = np.array(
  [[0.2, -1.0, 0.3], [1.0, 2.0, 3.0], [0.0, 0.5, -0.5], [-2.0, 0.0, 1.0]],
  np.float32,
)
_LABELS = np.array([1, 0, 0, 2])
_SIZE = 4


class _RowViews:
  """The weak view of example i is i, its strong view is i + 4."""

  def weak(self, x, seed):
    del seed
    return x

  def strong(self, x, seed):
    del seed
    return x + _SIZE


class _TablePredictor:
  """Looks the logits of a view up in a table, its only weights."""

  def __init__(self, table, has_moving_state=False):
    self.table = table
    self.has_moving_state = has_moving_state
    self.seeds = []

  def __call__(self, x, *, training=True, seed=None):
    assert training
    self.seeds.append(tuple(seed.numpy()))
    return tf.gather(self.table, x)

  def at(self, weights, x):
    return tf.gather(weights, x)

  def probe(self, x, seed, if_empty):
    del if_empty
    self.probed = x.numpy().tolist()
    return self(x, seed=seed)


def _batch(true_y=None):
  batch = collections.OrderedDict(
    x=tf.range(_SIZE), y=tf.constant([-1] * _SIZE)
  )
  if true_y is not None:
    batch['true_y'] = tf.constant(true_y)
  return batch


def _evaluate(
  objective, batch, has_moving_state=False, weak=_WEAK, received=None
):
  """Returns loss, gradients by the weak and strong logits, metrics, seeds."""
  table = tf.constant(np.concatenate([weak, _STRONG]))
  with tf.GradientTape() as tape:
    tape.watch(table)
    predict = _TablePredictor(table, has_moving_state)
    loss, metrics = objective(predict, batch, received, _SEED)
  gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
  return loss.numpy(), gradient[:_SIZE], gradient[_SIZE:], metrics, predict


def _numpy_loss(logits, threshold):
  """Sum over the examples that pass, divided by all: loss and gradient."""
  mask = np.array([0.8, 0.5, 0.97, 0.4]) >= threshold
  log_probabilities = scipy.special.log_softmax(logits.astype(float), axis=1)
  loss = -(mask * log_probabilities[np.arange(_SIZE), _LABELS]).sum() / _SIZE
  error = (np.exp(log_probabilities) - np.eye(3)[_LABELS]) * mask[:, None]
  return loss, error / _SIZE, mask


@pytest.mark.parametrize('threshold', [0.0, 0.45, 0.75, 0.95, 1.0])
@pytest.mark.parametrize(
  'views_forward, has_moving_state, num_passes, teacher',
  [
    ('auto', False, 2, 'trained'),
    ('auto', True, 1, 'trained'),
    ('joint', False, 1, 'trained'),
    ('joint', True, 1, 'trained'),
    ('separate', False, 2, 'trained'),
    # One pass of the model in training, not two.
    ('auto', False, 1, 'received'),
    ('auto', True, 1, 'received'),
  ],
)
def test_eq_4(threshold, views_forward, has_moving_state, num_passes, teacher):
  objective = objectives.ConsistencyRegularization(
    _RowViews(), threshold, views_forward, teacher=teacher
  )
  # The model in training says something else of the weak view than the one
  # that was received.
  models = {'trained': (_WEAK, None), 'received': (_WEAK[::-1] * 3, _WEAK)}
  own, received = models[teacher]
  loss, weak, strong, metrics, predict = _evaluate(
    objective, _batch(), has_moving_state, own, received
  )
  expected, gradient, mask = _numpy_loss(_STRONG, threshold)
  assert loss == pytest.approx(expected, abs=1e-6)
  np.testing.assert_allclose(strong, gradient, atol=1e-6)
  np.testing.assert_array_equal(weak, 0)  # no gradient through the weak view
  assert tuple(metrics) == objective.metric_names
  assert [float(v) for v in metrics['mask_rate']] == [mask.sum(), _SIZE]
  assert float(metrics['loss'][0]) == pytest.approx(expected * _SIZE, abs=1e-5)
  assert float(metrics['loss'][1]) == _SIZE
  assert len(predict.seeds) == len(set(predict.seeds)) == num_passes


def test_eq_4_by_hand():
  """tau = .95 lets example 2 pass, whose pseudo-label is class 0.

  Its strong logits 0, .5 and -.5 give l = log(1 + e^.5 + e^-.5) = 1.180270, and
  the mean over the whole batch of four is 0.295067.
  """
  objective = objectives.ConsistencyRegularization(_RowViews())
  loss, *_ = _evaluate(objective, _batch())
  assert loss == pytest.approx(0.295067, abs=1e-6)


@pytest.mark.parametrize('threshold', [0.0, 0.45, 0.75, 0.95, 1.0])
def test_eq_5(threshold):
  objective = objectives.SelfTraining(_RowViews(), threshold)
  loss, weak, strong, metrics, predict = _evaluate(objective, _batch())
  expected, gradient, mask = _numpy_loss(_WEAK, threshold)
  assert loss == pytest.approx(expected, abs=1e-6)
  # The gradient comes through the student's logits only: were it to flow
  # through the pseudo-label as well, it would not be this one.
  np.testing.assert_allclose(weak, gradient, atol=1e-6)
  np.testing.assert_array_equal(strong, 0)
  assert tuple(metrics) == objective.metric_names
  assert [float(v) for v in metrics['mask_rate']] == [mask.sum(), _SIZE]
  assert len(predict.seeds) == 1


@pytest.mark.parametrize('threshold', [0.45, 1.0])
def test_only_confident_examples_go_through_the_model_twice(threshold):
  objective = objectives.ConsistencyRegularization(_RowViews(), threshold)
  *_, predict = _evaluate(objective, _batch())
  confident = np.flatnonzero(_numpy_loss(_STRONG, threshold)[2])
  assert predict.probed == (confident + _SIZE).tolist()


@pytest.mark.parametrize(
  'kind', [objectives.ConsistencyRegularization, objectives.SelfTraining]
)
class TestLabels:
  def test_no_label_influences_loss_or_gradient(self, kind):
    objective = kind(_RowViews(), 0.45)
    reference = _evaluate(objective, _batch())
    for true_y in ([1, 0, 0, 2], [2, 2, 2, 2], [-1, -1, 0, 1]):
      batch = _batch(true_y)
      batch['y'] = tf.constant(true_y[::-1])
      result = _evaluate(objective, batch)
      np.testing.assert_equal(result[:3], reference[:3])

  def test_accuracy_counts_known_labels_that_pass(self, kind):
    unlabelled = _batch()
    unlabelled['y'] = tf.constant([1, 0, -1, 2])
    for batch, expected in (
      # tau = .45 lets examples 0, 1 and 2 pass; 0 is right, 1 unknown, 2 wrong.
      (_batch([1, -1, 2, 2]), [1.0, 2.0]),
      # Where there is no true_y, it takes y.
      (unlabelled, [2.0, 2.0]),
    ):
      _, _, _, metrics, _ = _evaluate(kind(_RowViews(), 0.45), batch)
      pair = [float(v) for v in metrics['pseudo_label_accuracy']]
      assert pair == expected

  def test_an_empty_batch_has_loss_zero(self, kind):
    empty = tf.zeros([0], tf.int32)
    batch = collections.OrderedDict(x=empty, y=empty)
    loss, weak, strong, _, _ = _evaluate(kind(_RowViews(), 0.0), batch)
    assert loss == 0
    np.testing.assert_array_equal(np.concatenate([weak, strong]), 0)


class _ScaledViews:
  """Deterministic views which differ: x and 1 - x / 2."""

  def weak(self, x, seed):
    del seed
    return x

  def strong(self, x, seed):
    del seed
    return 1 - x / 2


def _run(model, weights, x):
  batch = collections.OrderedDict(x=x, y=tf.fill([len(x)], -1))
  objective = objectives.ConsistencyRegularization(_ScaledViews(), 0.0)
  trainable = [tf.constant(w) for w in weights.trainable]
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    predict = prediction.Predictor(
      model, trainable, [tf.constant(w) for w in weights.non_trainable]
    )
    loss, _ = objective(predict, batch, None, _SEED)
  return loss, tape.gradient(loss, trainable), predict


def _keras_loss(keras_model, x, joint):
  """Eq. 4 with threshold 0 on a Keras model, the views in one batch or two."""
  weak, strong = x, 1 - x / 2
  if joint:
    weak, strong = tf.split(
      keras_model(tf.concat([weak, strong], 0), training=True), 2
    )
  else:
    weak = keras_model(weak, training=True)
    strong = keras_model(strong, training=True)
  return tf.reduce_mean(
    tf.keras.losses.sparse_categorical_crossentropy(
      tf.argmax(weak, 1), strong, from_logits=True
    )
  )


def _models(norm):
  keras_model = dense.dense((5,), 3, norm=norm, hidden=(6,))
  model = federations.model(5, 3, norm, hidden=(6,))
  weights = model.initial_weights(1)
  for variable, value in zip(
    keras_model.trainable_variables, weights.trainable, strict=True
  ):
    variable.assign(value)
  x = tf.random.stateless_uniform([8, 5], [1, 2])
  return keras_model, model, weights, x


def _assert_like_keras(keras_model, model, weights, x, joint):
  loss, gradients, predict = _run(model, weights, x)
  with tf.GradientTape() as tape:
    expected = _keras_loss(keras_model, x, joint)
  expected_gradients = tape.gradient(expected, keras_model.trainable_variables)
  assert float(loss) == pytest.approx(float(expected), abs=1e-5)
  assert_close(gradients, expected_gradients, atol=1e-5)
  return predict


def test_batch_normalisation_sees_both_views_as_one_batch():
  keras_model, model, weights, x = _models('batch')
  apart = float(_keras_loss(keras_model, x, joint=False))
  for variable, value in zip(
    keras_model.non_trainable_variables, weights.non_trainable, strict=True
  ):
    variable.assign(value)
  predict = _assert_like_keras(keras_model, model, weights, x, joint=True)
  loss, _, _ = _run(model, weights, x)
  assert abs(float(loss) - apart) > 1e-3  # which two forwards would give
  # Moving statistics move once, by the statistics of the joint batch.
  assert_close(
    predict.non_trainable, keras_model.non_trainable_variables, atol=1e-6
  )


@pytest.mark.parametrize('norm', ['none', 'group'])
def test_two_forwards_equal_a_joint_one_without_moving_state(norm):
  keras_model, model, weights, x = _models(norm)
  _assert_like_keras(keras_model, model, weights, x, joint=True)


def test_plain_views_make_both_objectives_equal():
  _, model, weights, x = _models('none')
  plain = views.PlainViews()
  batch = collections.OrderedDict(x=x, y=tf.fill([8], -1))
  results = []
  for kind in (objectives.ConsistencyRegularization, objectives.SelfTraining):
    predict = prediction.Predictor(model, weights.trainable, [])
    results.append(float(kind(plain, 0.4)(predict, batch, None, _SEED)[0]))
  assert results[0] == pytest.approx(results[1], abs=1e-7)


def test_the_views_draw_different_random_numbers():
  """The seeds of the views differ from each other and from the model's."""
  seen = []

  class Recorder:
    def weak(self, x, seed):
      seen.append(tuple(seed.numpy()))
      return x

    def strong(self, x, seed):
      seen.append(tuple(seed.numpy()))
      return x + _SIZE

  objective = objectives.ConsistencyRegularization(Recorder())
  *_, predict = _evaluate(objective, _batch())
  assert len(set(seen + predict.seeds)) == 4


@pytest.mark.parametrize('floor', [0.0, 0.8])
@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
@pytest.mark.parametrize('teacher', ['trained', 'received'])
def test_adaptive_rules_weigh_the_examples(rule, teacher, floor):
  objective = objectives.ConsistencyRegularization(
    _RowViews(), teacher=teacher, pseudo_label_rule=rule, min_confidence=floor
  )
  loss, weak, _, metrics, _ = _evaluate(
    objective, _batch(), received=tf.constant(_WEAK)
  )
  _, weights = selection.pseudo_labels(tf.constant(_WEAK), 0.0, rule, floor)
  log_probabilities = scipy.special.log_softmax(_STRONG.astype(float), axis=1)
  each = -log_probabilities[np.arange(_SIZE), _LABELS]
  assert loss == pytest.approx((weights.numpy() * each).sum() / _SIZE)
  np.testing.assert_array_equal(weak, 0)
  assert float(metrics['mask_rate'][0]) == pytest.approx(
    weights.numpy().sum(), rel=1e-6
  )
