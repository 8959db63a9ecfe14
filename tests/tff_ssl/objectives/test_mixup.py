"""Mixing weights and losses of mixtures, of SemiFL and of FedPL, by numpy."""

import collections

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import objectives, randomness
from tff_ssl.augmentation import views
from tff_ssl.objectives import mixup
from tff_ssl.templates import local_training, prediction

_SEED = tf.constant([3, 4])


@pytest.mark.parametrize('concentration', [0.5, 0.75, 1.0, 5.0])
def test_weights_are_drawn_from_beta(concentration):
  size = 20_000
  draws = mixup.beta_weights(_SEED, [size], concentration).numpy()
  assert draws.dtype == np.float32 and 0 <= draws.min() <= draws.max() <= 1
  beta = scipy.stats.beta(concentration, concentration)
  mean, variance, skew, kurtosis = (float(m) for m in beta.stats('mvsk'))
  # Standard errors of the mean and, by the fourth moment, of the variance.
  spread = np.sqrt(variance / size)
  assert abs(draws.mean() - mean) < 4 * spread
  spread = variance * np.sqrt((kurtosis + 2) / size)
  assert abs(draws.var() - variance) < 4 * spread
  assert scipy.stats.kstest(draws, beta.cdf).pvalue > 1e-3


def test_weights_are_a_function_of_the_seed():
  draw = lambda seed: mixup.beta_weights(tf.constant(seed), [5], 0.75).numpy()
  np.testing.assert_array_equal(draw([3, 4]), draw([3, 4]))
  assert not np.any(draw([3, 4]) == draw([3, 5]))
  one = mixup.beta_weights(_SEED, [], 0.75)
  assert one.shape == ()


@pytest.mark.parametrize('weights', [0.25, [0.0, 0.25, 1.0]])
def test_mixtures_and_their_losses_equal_numpy(weights):
  rng = np.random.default_rng(0)
  first, second = rng.normal(size=(2, 3, 2, 2)).astype(np.float32)
  logits = rng.normal(size=(3, 4)).astype(np.float32)
  labels, others = np.array([0, 3, 2]), np.array([1, 3, 0])
  weights = np.array(weights, np.float32)
  each = np.broadcast_to(weights, [3])
  np.testing.assert_allclose(
    mixup.mix(tf.constant(first), tf.constant(second), tf.constant(weights)),
    each[:, None, None] * first + (1 - each[:, None, None]) * second,
    rtol=1e-6,
  )
  nats = -scipy.special.log_softmax(logits, axis=1)
  rows = np.arange(3)
  np.testing.assert_allclose(
    mixup.mixed_cross_entropy(labels, others, logits, tf.constant(weights)),
    each * nats[rows, labels] + (1 - each) * nats[rows, others],
    rtol=1e-5,
  )


_STEP_SEED = tf.constant([1, 2])


class _Tagged(views.PlainViews):
  """Views that can be told apart: what is weak is 1 up, what is strong 2."""

  def weak(self, examples, seed):
    return self.plain(examples) + 1

  def strong(self, examples, seed):
    return self.plain(examples) + 2


class _Linear:
  """A predictor whose logits are its inputs; keeps what it was given."""

  def __init__(self):
    self.seen = []

  def __call__(self, x, *, training=True, seed=None):
    self.seen.append(x.numpy())
    return x


def _problem():
  rng = np.random.default_rng(0)
  batch = collections.OrderedDict(
    x=tf.constant(rng.uniform(size=(4, 3)), tf.float32),
    y=tf.constant([0, 2, 1, 0]),
  )
  pool = objectives.MixPool(
    tf.constant(rng.uniform(size=(50, 3)), tf.float32),
    tf.constant(rng.integers(0, 3, 50), tf.int32),
  )
  return batch, pool


def _cross_entropy(logits, labels):
  nats = -scipy.special.log_softmax(logits, axis=1)
  return nats[np.arange(len(labels)), labels]


@pytest.mark.parametrize('weight', [1.0, 0.5])
def test_both_terms_equal_numpy(weight):
  batch, pool = _problem()
  predict = _Linear()
  loss, metrics = objectives.FixAndMix(_Tagged(), weight)(
    predict, batch, pool, _STEP_SEED
  )
  x, y = batch['x'].numpy(), batch['y'].numpy()
  strong, mixture = predict.seen
  np.testing.assert_allclose(strong, x + 2, rtol=1e-6)
  fix = _cross_entropy(x + 2, y)
  # The one mixing weight, and for each example the partner, that explain it.
  others = pool.x.numpy()
  best = None
  for share in np.linspace(0.05, 0.95, 2001):
    rest = (mixture - 1 - share * x) / (1 - share)
    distances = np.abs(rest[:, None] - others).max(axis=2)
    worst = distances.min(axis=1).max() * (1 - share)
    if best is None or worst < best[0]:
      best = (worst, share, distances.argmin(axis=1))
  error, share, partners = best
  assert error < 1e-3
  mixed = share * _cross_entropy(mixture, y)
  mixed += (1 - share) * _cross_entropy(mixture, pool.labels.numpy()[partners])
  assert float(loss) == pytest.approx(
    fix.mean() + weight * mixed.mean(), abs=2e-3
  )
  totals = {name: tuple(map(float, pair)) for name, pair in metrics.items()}
  assert totals['loss'] == pytest.approx((fix.sum(), 4))
  assert totals['mixup_loss'] == pytest.approx((mixed.sum(), 4), abs=5e-3)


def test_without_weight_it_is_the_fixed_loss_alone():
  batch, pool = _problem()
  predict = _Linear()
  loss, metrics = objectives.FixAndMix(_Tagged(), 0.0)(
    predict, batch, pool, _STEP_SEED
  )
  assert len(predict.seen) == 1
  fix = _cross_entropy(batch['x'].numpy() + 2, batch['y'].numpy())
  assert float(loss) == pytest.approx(fix.mean())
  assert float(metrics['mixup_loss'][0]) == 0


@pytest.mark.parts
def test_partners_are_drawn_from_all_evenly():
  batch, _ = _problem()
  x = tf.one_hot(tf.range(3), 3) * 100
  pool = objectives.MixPool(x, tf.range(3))
  counts = np.zeros(3)
  objective = objectives.FixAndMix(views.PlainViews())
  for number in range(200):
    predict = _Linear()
    objective(predict, batch, pool, tf.constant([0, number]))
    counts += (predict.seen[1] > 2).sum(axis=0)
  # 800 draws, less those whose own share is nearly 1; 4 standard deviations.
  assert counts.sum() > 700
  assert np.abs(counts / counts.sum() - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 700)


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
