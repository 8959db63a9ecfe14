"""FedPL's two objectives against numpy."""

import collections

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import objectives, randomness
from tff_ssl.augmentation import views
from tff_ssl.objectives.maths import mixup
from tff_ssl.templates import local_training, prediction

SEED = tf.constant([0, 7])
PLAIN = views.PlainViews()
WEIGHTS = np.random.default_rng(3).normal(0, 2, (5, 3)).astype(np.float32)


class _Network:
  """Logits tanh(x w); the moving state counts passes that it follows."""

  @staticmethod
  def predict(trainable, non_trainable, x, training, seed=None):
    del training, seed
    return forward(x, trainable[0], tf), [non_trainable[0] + 1]


def forward(x, weights=WEIGHTS, library=np):
  return 2 * library.tanh(x @ weights)


def batch_of(size=12, **more):
  rng = np.random.default_rng(size)
  return collections.OrderedDict(
    x=tf.constant(rng.uniform(-1, 1, (size, 5)), tf.float32),
    y=tf.constant(rng.integers(0, 2, size), tf.int32),
    true_y=tf.constant(rng.integers(-1, 3, size), tf.int32),
    class_priors=tf.constant([[0.3, 0.5, 0.2], [0.4, 0.2, 0.4], [0, 0, 0]]),
    **more,
  )


def evaluate(objective, batch, seed=SEED):
  weights = [tf.constant(WEIGHTS)]
  with tf.GradientTape() as tape:
    tape.watch(weights)
    predict = prediction.Predictor(_Network, weights, [tf.constant(0)])
    loss, metrics = objective(predict, batch, None, seed)
  assert tuple(metrics) == objective.metric_names
  assert int(predict.non_trainable[0]) == 1
  gradient = tape.gradient(
    loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
  )
  counts = {key: tuple(map(float, pair)) for key, pair in metrics.items()}
  return float(loss), gradient[0].numpy(), counts


def cross_entropies(labels, logits):
  return -scipy.special.log_softmax(logits, axis=1)[range(len(labels)), labels]


def test_prior_labels_are_the_largest_priors():
  batch = batch_of()
  loss, gradient, counts = evaluate(objectives.PriorLabels(PLAIN), batch)
  # Of two largest priors, the first.
  labels = np.array([1, 0])[batch['y'].numpy()]
  logits = forward(batch['x'].numpy())
  expected = cross_entropies(labels, logits).sum()
  assert loss == pytest.approx(expected / 12, rel=1e-5)
  assert counts['loss'] == pytest.approx((expected, 12), rel=1e-5)
  truth = batch['true_y'].numpy()
  known = (truth >= 0).sum()
  assert counts['mask_rate'] == (12, 12)
  assert counts['pseudo_label_accuracy'] == ((labels == truth).sum(), known)
  right = (logits.argmax(axis=1) == truth).sum()
  assert counts['accuracy'] == (right, known)
  supervised = objectives.Supervised(PLAIN)
  predict = prediction.Predictor(
    _Network, [tf.constant(WEIGHTS)], [tf.constant(0)]
  )
  batch['y'] = tf.constant(labels, tf.int32)
  assert float(supervised(predict, batch, None, SEED)[0]) == loss
  assert np.abs(gradient).max() > 1e-3


@pytest.mark.parametrize(
  'objective',
  [objectives.PriorLabels(PLAIN), objectives.ConfidenceMix(PLAIN, 0.75)],
)
def test_a_set_without_priors_is_not_finite(objective):
  batch = batch_of()
  batch['y'] = tf.constant([2] + [0] * 11)
  _, _, counts = evaluate(objective, batch)
  assert np.isnan(counts['loss'][0])


def expected_mix(batch, threshold, source, mix, weight, concentration):
  x = batch['x'].numpy()
  logits = forward(x)
  shares = scipy.special.softmax(logits, axis=1)
  labels, confidence = shares.argmax(axis=1), shares.max(axis=1)
  if source == 'sets':
    labels = np.array([1, 0])[batch['y'].numpy()]
  plus, minus = (
    np.flatnonzero(part)
    for part in (confidence >= threshold, confidence < threshold)
  )
  pairs = min(len(plus), len(minus))
  assert 0 < pairs < max(len(plus), len(minus))
  fix = cross_entropies(labels[plus], logits[plus]).mean()
  plus, minus = plus[:pairs], minus[:pairs]
  share = float(
    mixup.beta_weights(randomness.fold_in(SEED, 2), [], concentration)
  )
  mixed = share * logits[plus] + (1 - share) * logits[minus]
  if mix == 'inputs':
    mixed = forward(share * x[plus] + (1 - share) * x[minus])
  towards = [
    cross_entropies(labels[part], mixed).mean() for part in (plus, minus)
  ]
  return fix + weight * (share * towards[0] + (1 - share) * towards[1])


@pytest.mark.parametrize('mix', ['inputs', 'logits'])
@pytest.mark.parametrize('source', ['sets', 'model'])
@pytest.mark.parametrize('weight, concentration', [(0.3, 0.75), (2.0, 3.0)])
def test_mix_against_numpy(source, mix, weight, concentration):
  batch = batch_of()
  settings = (0.75, source, mix, weight, concentration)
  objective = objectives.ConfidenceMix(PLAIN, *settings)
  loss, gradient, counts = evaluate(objective, batch)
  expected = expected_mix(batch, *settings)
  assert loss == pytest.approx(expected, rel=1e-5)
  assert counts['loss'] == pytest.approx((12 * expected, 12), rel=1e-5)
  assert 0 < counts['mask_rate'][0] < 12
  assert np.abs(gradient).max() > 1e-3


def test_what_is_mixed_makes_a_difference():
  inputs, logits = (
    evaluate(objectives.ConfidenceMix(PLAIN, 0.75, mix=mix), batch_of())[0]
    for mix in ('inputs', 'logits')
  )
  assert abs(inputs - logits) > 1e-4


@pytest.mark.parametrize('mix', ['inputs', 'logits'])
@pytest.mark.parametrize('source', ['sets', 'model'])
def test_nobody_confident_gives_no_gradient(source, mix):
  loss, gradient, counts = evaluate(
    objectives.ConfidenceMix(PLAIN, 1.0, source, mix), batch_of()
  )
  assert loss == 0
  np.testing.assert_array_equal(gradient, np.zeros((5, 3)))
  assert counts['mask_rate'] == (0, 12)
  assert counts['pseudo_label_accuracy'] == (0, 0)


@pytest.mark.parametrize(
  'source, alone',
  [
    ('model', objectives.SelfTraining(PLAIN, 0.0)),
    ('sets', objectives.PriorLabels(PLAIN)),
  ],
)
def test_everybody_confident_is_training_on_the_labels(source, alone):
  batch = batch_of()
  mixing = evaluate(objectives.ConfidenceMix(PLAIN, 0.0, source), batch)
  expected = evaluate(alone, batch)
  assert mixing[0] == pytest.approx(expected[0], rel=1e-6)
  np.testing.assert_allclose(mixing[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize('threshold', [0.0, 0.75, 1.0])
def test_only_where_something_is_mixed(threshold):
  objective = objectives.L1Penalty(
    objectives.ConfidenceMix(PLAIN, threshold), 0.1
  )
  mixed = evaluate(objectives.OnlyMixed(objective), batch_of())
  expected = evaluate(objective, batch_of())
  assert mixed[2] == expected[2]
  if threshold == 0.75:
    assert mixed[0] == expected[0]
    np.testing.assert_array_equal(mixed[1], expected[1])
  else:
    assert mixed[0] == 0 < expected[0]
    np.testing.assert_array_equal(mixed[1], np.zeros((5, 3)))


@pytest.mark.parametrize('threshold', [0.0, 0.75, 1.0])
@pytest.mark.parametrize('mix', ['inputs', 'logits'])
@pytest.mark.parts
def test_compiled_it_counts_passes_of_mixed_images_too(mix, threshold):
  batch = batch_of()
  objective = objectives.ConfidenceMix(PLAIN, threshold, mix=mix)

  @tf.function(autograph=False)
  def evaluate_compiled():
    weights = tff.learning.models.ModelWeights(
      [tf.constant(WEIGHTS)], [tf.constant(0)]
    )
    result = local_training.objective_gradient(
      _Network, objective, weights, batch, None, SEED
    )
    return result.gradient[0], result.metrics, result.passes

  compiled, counts, passes = evaluate_compiled()
  _, gradient, expected = evaluate(objective, batch)
  np.testing.assert_allclose(compiled, gradient, rtol=1e-5, atol=1e-7)
  np.testing.assert_allclose(counts['loss'], expected['loss'], rtol=1e-5)
  confident = expected['mask_rate'][0]
  pairs = min(confident, 12 - confident) if mix == 'inputs' else 0
  assert (pairs > 0) == ((mix, threshold) == ('inputs', 0.75))
  # A gradient of zeros, where nobody is confident, goes back as any other.
  np.testing.assert_array_equal(passes, [12 + pairs, 12 + pairs])
