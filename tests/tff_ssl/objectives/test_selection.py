"""Which pseudo-labels count, and passes of those alone, against numpy."""

import collections

import costs
import federations
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
from comparing import assert_close

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.objectives import consistency, losses, selection
from tff_ssl.templates import prediction

_RULES = selection.PSEUDO_LABEL_RULE.choices
_LOGITS = np.random.default_rng(0).normal(0, 2, size=(64, 5))


def _by_hand():
  probabilities = scipy.special.softmax(_LOGITS, axis=1)
  return probabilities, probabilities.max(axis=1), probabilities.argmax(axis=1)


def _select(logits, rule):
  labels, weights = selection.pseudo_labels(
    tf.constant(logits, tf.float32), 0.6, rule
  )
  return labels.numpy(), weights.numpy()


def test_labels_are_the_same_by_every_rule():
  _, _, expected = _by_hand()
  for rule in _RULES:
    labels, weights = _select(_LOGITS, rule)
    np.testing.assert_array_equal(labels, expected)
    assert (weights.dtype, labels.dtype) == (np.float32, np.int32)


def test_fixed_is_the_threshold():
  _, confidence, _ = _by_hand()
  _, weights = _select(_LOGITS, 'fixed')
  np.testing.assert_array_equal(weights, confidence >= 0.6)
  _, alike = consistency.passing(0.6)(tf.constant(_LOGITS, tf.float32))
  np.testing.assert_array_equal(weights, alike)


def test_self_adaptive_is_that_of_freematch():
  """tau = mean confidence; tau(c) = p(c) / max p * tau (Eqs. 5 to 8)."""
  probabilities, confidence, labels = _by_hand()
  of_class = probabilities.mean(axis=0)
  thresholds = of_class / of_class.max() * confidence.mean()
  expected = confidence >= thresholds[labels]
  _, weights = _select(_LOGITS, 'self_adaptive')
  np.testing.assert_array_equal(weights, expected)
  assert 0 < sum(expected) < len(expected)
  # A rare class needs less.
  assert thresholds.min() < thresholds.max() == confidence.mean()


def test_gaussian_is_that_of_softmatch():
  """A normal density around the mean, cut at 1 above it (Eqs. 5 to 7)."""
  _, confidence, _ = _by_hand()
  density = scipy.stats.norm(confidence.mean(), confidence.std(ddof=1)).pdf
  expected = density(np.minimum(confidence, confidence.mean())) / density(
    confidence.mean()
  )
  _, weights = _select(_LOGITS, 'gaussian')
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  assert weights.max() == 1 and weights.min() > 0


def test_client_adaptive_takes_the_thresholds_of_all_examples():
  probabilities, confidence, labels = _by_hand()
  of_class = probabilities.mean(axis=0)
  thresholds = of_class / of_class.max() * confidence.mean()
  found = selection.class_thresholds(tf.constant(probabilities, tf.float32))
  np.testing.assert_allclose(found, thresholds, rtol=1e-5)
  for part in np.split(np.arange(64), 8):
    _, weights = selection.pseudo_labels(
      tf.constant(_LOGITS[part], tf.float32),
      2.0,
      'client_adaptive',
      thresholds=found,
    )
    expected = confidence[part] >= thresholds[labels[part]]
    np.testing.assert_array_equal(weights, expected)
  # Alone, examples are all there are.
  np.testing.assert_array_equal(
    _select(_LOGITS, 'client_adaptive')[1], _select(_LOGITS, 'self_adaptive')[1]
  )


def test_energy_is_that_of_liu_et_al():
  """E(x) = -log sum exp f(x); a high one is rejected (arXiv 2010.03759)."""
  energy = -scipy.special.logsumexp(_LOGITS, axis=1)
  _, confidence, _ = _by_hand()
  logits = tf.constant(_LOGITS, tf.float32)
  for floor in (0.0, 0.8):
    _, weights = selection.pseudo_labels(
      logits, 2.0, 'energy', floor, max_energy=-3.0
    )
    expected = (energy <= -3) & (confidence >= floor)
    np.testing.assert_array_equal(weights, expected)
    assert 0 < sum(expected) < len(expected)
  # Probabilities do not tell it: more on all logits is another energy.
  _, more = selection.pseudo_labels(
    logits + 9.0, 2.0, 'energy', max_energy=-3.0
  )
  np.testing.assert_array_equal(more, 1)


@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
@pytest.mark.parametrize('size', [1, 3, 7, 10, 64])
def test_examples_that_are_alike_all_count(rule, size):
  for row in _LOGITS[:20]:
    _, weights = _select(np.tile(row, (size, 1)), rule)
    np.testing.assert_array_equal(weights, 1)


@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
def test_below_the_floor_nothing_counts(rule):
  _, confidence, _ = _by_hand()
  logits = tf.constant(_LOGITS, tf.float32)
  _, free = selection.pseudo_labels(logits, 2.0, rule)
  _, weights = selection.pseudo_labels(logits, 2.0, rule, min_confidence=0.7)
  np.testing.assert_array_equal(weights, free.numpy() * (confidence >= 0.7))
  assert np.sum(free.numpy() > 0) > np.sum(weights.numpy() > 0) > 0


@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
def test_a_model_that_knows_nothing_labels_nothing_above_the_floor(rule):
  logits = tf.constant(0.01 * _LOGITS, tf.float32)
  _, free = selection.pseudo_labels(logits, 2.0, rule)
  _, weights = selection.pseudo_labels(logits, 2.0, rule, min_confidence=0.5)
  assert np.sum(free.numpy() > 0) > 0
  np.testing.assert_array_equal(weights, 0)


@pytest.mark.parametrize('rule', _RULES)
def test_no_gradient_flows(rule):
  logits = tf.constant(_LOGITS, tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(logits)
    labels, weights = selection.pseudo_labels(logits, 0.6, rule)
    loss = tf.reduce_sum(
      losses.masked_cross_entropy(labels, tf.stop_gradient(logits), weights)
    )
  assert tape.gradient(loss, logits) is None


def test_an_unknown_rule_is_refused():
  with pytest.raises(ValueError, match="pseudo_label_rule must be.*'variance'"):
    _select(_LOGITS, 'variance')


_SEED = tf.constant([1, 2])
_SIZE = 40


class ReversedViews(views.PlainViews):
  """The strong view is the reverse of the weak one, so that the two differ."""

  def strong(self, examples, seed):
    return self.plain(examples)[:, ::-1]


class Everything(prediction.Predictor):
  """Lets all examples through, as where batch normalisation needs them."""

  has_moving_state = True


def build(norm='none'):
  return federations.model(4, 3, norm, hidden=(6,))


@pytest.fixture(scope='module')
def model():
  return build()


def weights(model, seed):
  """Weights large enough for confident predictions on some examples."""
  return tf.nest.map_structure(
    lambda value: tf.constant(3 * value), model.initial_weights(seed)
  )


def examples(size, seed=0):
  rng = np.random.default_rng(seed)
  return collections.OrderedDict(
    x=tf.constant(rng.normal(size=(size, 4)), tf.float32),
    y=tf.constant(rng.integers(0, 3, size), tf.int32),
  )


def differentiate(kind, model, objective):
  """Returns loss, gradients, metrics and the sizes of all forward passes."""
  student = weights(model, 1)
  batch = examples(_SIZE)
  batch['labelled'] = examples(5, seed=1)
  anchors = objectives.Experts(weights(model, 2), weights(model, 3))
  with tf.GradientTape() as tape:
    tape.watch(student.trainable)
    predict = kind(model, student.trainable, [])
    loss, metrics = objective(predict, batch, anchors, _SEED)
  gradients = tape.gradient(loss, student.trainable)
  sizes = [int(tf.shape(outputs)[0]) for outputs in predict.outputs]
  return loss, gradients, metrics, sizes


@pytest.mark.parametrize(
  'objective, takes',
  [
    (objectives.ConsistencyRegularization(ReversedViews(), 0.9), ['mask_rate']),
    (objectives.SemiSupervised(ReversedViews(), 0.9), ['mask_rate']),
    (
      objectives.SemiSupervised(ReversedViews(), 0.9, unlabelled_loss='uda'),
      ['mask_rate'],
    ),
    (
      objectives.TwoExperts(ReversedViews(), 0.9),
      ['mask_rate', 'agreement_rate'],
    ),
    (
      objectives.TwoExperts(ReversedViews(), 0.9, consistency_view='strong'),
      ['mask_rate'],
    ),
  ],
)
@pytest.mark.parametrize('norm', costs.rest_in('parts', ['none', 'group']))
def test_loss_and_gradient_are_those_of_all_examples(norm, objective, takes):
  model = build(norm)
  loss, gradients, metrics, sizes = differentiate(
    prediction.Predictor, model, objective
  )
  whole, expected, whole_metrics, _ = differentiate(
    Everything, model, objective
  )
  np.testing.assert_allclose(loss, whole, rtol=1e-5)
  assert float(loss) > 0
  assert_close(gradients, expected, atol=1e-6)
  for name, pair in whole_metrics.items():
    np.testing.assert_allclose(metrics[name], pair, rtol=1e-5, err_msg=name)
  taken = [int(metrics[name][0]) for name in takes]
  assert all(0 < number < _SIZE for number in taken)
  assert len(set(taken)) == len(taken)
  assert sizes[-len(taken) :] == taken


def test_nothing_selected_has_no_gradient(model):
  student, x = weights(model, 1), examples(_SIZE)['x']

  # As in training: without a graph, a branch not taken has no gradient at all.
  @tf.function(autograph=False)
  def differentiate_none():
    with tf.GradientTape() as tape:
      tape.watch(student.trainable)
      predict = prediction.Predictor(model, student.trainable, [])
      logits = selection.predict_selected(
        predict, x, tf.zeros([_SIZE]), _SEED, like=tf.zeros([_SIZE, 3])
      )
    return logits, tape.gradient(logits, student.trainable)

  logits, gradients = differentiate_none()
  np.testing.assert_array_equal(logits, np.zeros([_SIZE, 3]))
  for gradient, value in zip(gradients, student.trainable, strict=True):
    np.testing.assert_array_equal(gradient, np.zeros(value.shape))


def test_predictions_that_are_no_numbers_show_in_the_loss(model):
  """Nothing is sure of them, and yet their client must be left out."""
  student = tf.nest.map_structure(
    lambda value: value * np.float32(1e30), weights(model, 1)
  )
  predict = prediction.Predictor(model, student.trainable, [])
  objective = objectives.ConsistencyRegularization(ReversedViews(), 0.9)
  loss, _ = objective(predict, examples(_SIZE), None, _SEED)
  assert not np.isfinite(float(loss))
