"""The layer Q_c by brute force, class priors of sets, and FedUL's objective."""

import collections

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import tensorflow as tf

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.objectives import surrogate_sets


def _distributions(rng, rows, columns):
  return rng.dirichlet(np.ones(columns), size=rows)


def _case(seed, num_sets, num_classes):
  """Returns random class priors, set shares and a test prior."""
  rng = np.random.default_rng(seed)
  return (
    _distributions(rng, num_sets, num_classes),
    rng.dirichlet(np.full(num_sets, 2.0)),
    rng.dirichlet(np.full(num_classes, 2.0)),
  )


def _layer(priors, shares, test_prior=None, dtype=tf.float64):
  return surrogate_sets.build_transition(
    tf.constant(priors, dtype), tf.constant(shares, dtype), test_prior
  )


def _q(logits, priors, shares, test_prior=None):
  """Q_c from logits in float64, as numpy, by either of its two forms."""
  layer = _layer(priors, shares, test_prior)
  logits = tf.constant(logits, tf.float64)
  q = layer.probabilities(logits).numpy()
  for m in range(len(shares)):
    losses = layer.log_loss(logits, tf.fill([len(q)], m))
    np.testing.assert_allclose(np.exp(-losses), q[:, m], rtol=1e-10)
  return q


@pytest.mark.parametrize('seed', range(3))
def test_theorem_1_is_bayes_rule_on_a_discrete_space(seed):
  priors, shares, test_prior = _case(seed, num_sets=6, num_classes=4)
  # p(x | k) of 8 values of x.
  likelihood = _distributions(np.random.default_rng(100 + seed), 4, 8)
  eta = test_prior * likelihood.T
  eta /= eta.sum(axis=1, keepdims=True)
  joint = shares * (priors @ likelihood).T
  expected = joint / joint.sum(axis=1, keepdims=True)
  np.testing.assert_allclose(
    _q(np.log(eta), priors, shares, test_prior), expected, rtol=1e-12
  )
  # The test prior matters: for a uniform one this would be another classifier.
  assert np.abs(_q(np.log(eta), priors, shares) - expected).max() > 0.01


@pytest.mark.parametrize(('num_sets', 'num_classes'), [(3, 3), (9, 5)])
@pytest.mark.parametrize('seed', range(3))
def test_lemma_2_class_posteriors_come_back(seed, num_sets, num_classes):
  priors, shares, test_prior = _case(seed, num_sets, num_classes)
  assert np.linalg.matrix_rank(priors) == num_classes
  eta = _distributions(np.random.default_rng(seed), 20, num_classes)
  q = _q(np.log(eta), priors, shares, test_prior)
  matrix = shares[:, np.newaxis] * priors / test_prior
  recovered = np.linalg.lstsq(matrix, q.T, rcond=None)[0].T
  recovered /= recovered.sum(axis=1, keepdims=True)
  np.testing.assert_allclose(recovered, eta, atol=1e-9)


def test_pure_sets_of_one_size_are_classes():
  logits = np.random.default_rng(0).normal(scale=4, size=(10, 5))
  np.testing.assert_allclose(
    _q(logits, np.eye(5), np.full(5, 0.2)),
    scipy.special.softmax(logits, axis=1),
    rtol=1e-12,
  )


def test_pure_sets_of_other_sizes_weigh_classes_by_share_over_prior():
  shares = np.array([0.5, 0.3, 0.2])
  eta = np.array([[0.2, 0.3, 0.5]])
  # .5 * .2, .3 * .3 and .2 * .5 are .10, .09 and .10.
  np.testing.assert_allclose(
    _q(np.log(eta), np.eye(3), shares), [[10 / 29, 9 / 29, 10 / 29]], rtol=1e-12
  )
  np.testing.assert_allclose(
    _q(np.log(eta), np.eye(3), shares, shares), eta, rtol=1e-12
  )


@pytest.mark.parametrize('loss_name', ['log_loss', 'published_code_loss'])
def test_gradient_equals_finite_differences(loss_name):
  priors, shares, test_prior = _case(5, num_sets=6, num_classes=4)
  # A class that is missing from a set, and a set that is missing.
  priors[1] = [0.5, 0, 0.5, 0]
  priors[5], shares[5] = 0, 0
  rng = np.random.default_rng(5)
  sets = rng.integers(5, size=7, dtype=np.int32)
  layer = _layer(priors, shares, test_prior)

  def loss(logits):
    losses = getattr(layer, loss_name)(tf.reshape(logits, [7, 4]), sets)
    return tf.reduce_sum(losses)

  logits = tf.constant(rng.normal(scale=2, size=28))
  with tf.GradientTape() as tape:
    tape.watch(logits)
    value = loss(logits)
  expected = scipy.optimize.approx_fprime(
    logits.numpy(), lambda x: loss(tf.constant(x)).numpy(), 1e-7
  )
  np.testing.assert_allclose(
    tape.gradient(value, logits), expected, rtol=1e-5, atol=1e-5
  )


_EXTREME = [
  [0.0, 0.0, 0.0],
  [1e4, -1e4, 0.0],
  [-1e4, 1e4, 1e4],
  [1e30, -1e30, 0.0],
  [-90.0, -90.0, 90.0],
]


@pytest.mark.parametrize(
  ('priors', 'shares', 'usable'),
  [
    # A set without one class, one with a tiny share of it, a missing set.
    (
      [[1, 0, 0], [1e-40, 0.5, 0.5], [0, 0, 1], [0, 0, 0]],
      [0.5, 0.3, 0.2, 0],
      3,
    ),
    # A set without examples, though its priors are known.
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.2, 0.2, 0.6]], [0.3, 0.3, 0.4, 0], 3),
    # A set with a tiny share.
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.2, 0.2, 0.6]], [1, 1e-40, 0, 0], 1),
    # A client without sets.
    (np.zeros((4, 3)), np.zeros(4), 0),
  ],
)
@pytest.mark.parametrize('loss_name', ['log_loss', 'published_code_loss'])
@pytest.mark.parametrize('test_prior', [None, (0.98, 0.01, 0.01)])
def test_nothing_is_nan_at_the_extremes(
  priors, shares, usable, loss_name, test_prior
):
  logits = tf.constant(_EXTREME, tf.float32)
  layer = _layer(priors, shares, test_prior, tf.float32)
  for m in range(usable):
    with tf.GradientTape() as tape:
      tape.watch(logits)
      losses = getattr(layer, loss_name)(logits, tf.fill([5], m))
    assert np.isfinite(losses).all()
    assert np.isfinite(tape.gradient(losses, logits)).all()
  q = layer.probabilities(logits).numpy()
  assert np.isfinite(q).all()
  if usable:
    np.testing.assert_allclose(q.sum(axis=1), 1, rtol=1e-5)
  # What a client does not have never gets probability.
  assert (q[:, usable:] == 0).all()


def test_a_probability_that_underflows_keeps_its_logarithm():
  layer = surrogate_sets.build_transition(tf.eye(2), tf.constant([0.5, 0.5]))
  logits = tf.constant([[500.0, 0.0]])
  assert layer.probabilities(logits).numpy()[0, 1] == 0
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = layer.log_loss(logits, tf.constant([1]))
  assert float(loss[0]) == 500
  np.testing.assert_array_equal(tape.gradient(loss, logits), [[1, -1]])


@pytest.mark.parametrize('loss_name', ['log_loss', 'published_code_loss'])
def test_a_set_that_the_client_does_not_have_gives_nan(loss_name):
  layer = _layer([[0.3, 0.7], [1, 0], [0, 0]], [0.5, 0.5, 0.0], None, 'float')
  losses = getattr(layer, loss_name)(
    tf.zeros([4, 2]), tf.constant([0, 2, 3, -1])
  )
  np.testing.assert_array_equal(np.isnan(losses), [False, True, True, True])


def test_published_code_loss_is_the_softmax_of_probabilities():
  priors, shares, _ = _case(2, num_sets=5, num_classes=3)
  logits = np.random.default_rng(2).normal(scale=3, size=(8, 3))
  sets = np.arange(8, dtype=np.int32) % 5
  unnormalized = scipy.special.softmax(logits, axis=1) @ priors.T * shares
  q = unnormalized / unnormalized.sum(axis=1, keepdims=True)
  expected = -scipy.special.log_softmax(q, axis=1)[np.arange(8), sets]
  # Two more sets that do not exist change nothing.
  layer = _layer(np.pad(priors, ((0, 2), (0, 0))), np.pad(shares, (0, 2)))
  np.testing.assert_allclose(
    layer.published_code_loss(tf.constant(logits), sets), expected, rtol=1e-12
  )


def _distance_to_bayes(per_set, test_prior):
  """Trains on sets of a Gaussian mixture; returns the mean total variation.

  Classes have unit variance, so that the posterior is a linear softmax. The
  minimum of the loss is found by L-BFGS.
  """
  rng = np.random.default_rng(per_set)
  means = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]])
  true_prior = np.array([0.6, 0.3, 0.1])
  priors = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.2, 0.2, 0.6]])
  counts = np.rint(priors * per_set).astype(int)
  classes = np.concatenate([np.repeat(np.arange(3), row) for row in counts])
  x = rng.normal(size=(len(classes), 2)) + means[classes]
  sets = np.repeat(np.arange(3, dtype=np.int32), counts.sum(axis=1))
  shares = counts.sum(axis=1) / counts.sum()

  def logits_of(weights, inputs):
    weights = tf.reshape(weights, [3, 3])
    return inputs @ weights[:2] + weights[2]

  layer = _layer(priors, shares, test_prior)

  @tf.function(autograph=False)
  def loss_and_gradient(weights):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      losses = layer.log_loss(logits_of(weights, x), sets)
      loss = tf.reduce_mean(losses)
    return loss, tape.gradient(loss, weights)

  learnt = scipy.optimize.minimize(
    lambda weights: [
      value.numpy() for value in loss_and_gradient(tf.constant(weights))
    ],
    np.zeros(9),
    jac=True,
    method='L-BFGS-B',
  ).x
  test = rng.normal(size=(2000, 2)) + means[rng.choice(3, 2000, p=true_prior)]
  likelihood = [
    scipy.stats.multivariate_normal(mean).pdf(test) for mean in means
  ]
  posterior = true_prior * np.transpose(likelihood)
  posterior /= posterior.sum(axis=1, keepdims=True)
  predicted = scipy.special.softmax(logits_of(learnt, test), axis=1)
  return np.abs(predicted - posterior).sum(axis=1).mean() / 2


@pytest.mark.parts
def test_learnt_posterior_approaches_bayes_as_data_grow():
  prior = (0.6, 0.3, 0.1)
  few, many = (_distance_to_bayes(n, prior) for n in (100, 10_000))
  # A hundred times the examples: a tenth of the error, or somewhat more.
  assert many < 0.25 * few
  assert many < 0.02
  # With a wrong test prior it learns another posterior.
  assert _distance_to_bayes(10_000, None) > 0.1


PRIORS = np.array([[0.2, 0.3, 0.5], [0, 1, 0], [0, 0, 0]], np.float32)
BATCH = collections.OrderedDict(
  y=tf.constant([1, 0, 1]), class_priors=tf.constant(PRIORS)
)


def test_rows_are_those_of_the_sets_and_nan_where_there_is_none():
  sets = tf.constant([1, 0, 2, 3, -1])
  rows = surrogate_sets.class_priors(BATCH, sets, tf.zeros([5, 3]))
  np.testing.assert_allclose(rows[:2], PRIORS[[1, 0]])
  assert np.isnan(rows[2:]).all()
  # Model and priors must have the same classes.
  with pytest.raises(ValueError, match=r'priors_shape=\(3, 3\).* 4 outputs'):
    surrogate_sets.class_priors(BATCH, BATCH['y'], tf.zeros([3, 4]))


def test_sets_are_no_classes():
  classes = tf.constant([1, 0, 1])
  assert surrogate_sets.count_right(classes, BATCH) == (0, 0)
  known = collections.OrderedDict(BATCH, true_y=tf.constant([1, 2, -1]))
  assert surrogate_sets.count_right(classes, known) == (1, 2)
  mask = tf.constant([0.0, 1.0, 1.0])
  assert surrogate_sets.count_right(classes, known, mask) == (0, 1)


_PRIORS = np.array([[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]])
_SHARES = np.array([0.5, 0.3, 0.2])
_LOGITS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [-4.0, 0.0]])
_SETS = np.array([0, 1, 2, 0])


def _evaluate(objective, **extra):
  batch = collections.OrderedDict(
    x=tf.zeros([4, 1]),
    y=tf.constant(_SETS, tf.int32),
    class_priors=tf.constant(_PRIORS, tf.float32),
    set_shares=tf.constant(_SHARES, tf.float32),
    **extra,
  )
  return objective(
    lambda x, **_: tf.constant(_LOGITS, tf.float32),
    batch,
    None,
    tf.constant([0, 0]),
  )


def _expected_q(test_prior):
  eta = scipy.special.softmax(_LOGITS, axis=1)
  q = (eta / test_prior) @ _PRIORS.T * _SHARES
  return q / q.sum(axis=1, keepdims=True)


@pytest.mark.parametrize('test_prior', [None, (0.9, 0.1)])
def test_loss_is_that_of_the_set(test_prior):
  objective = objectives.SurrogateSets(
    views.PlainViews(), test_prior=test_prior
  )
  loss, metrics = _evaluate(objective)
  q = _expected_q(test_prior or (0.5, 0.5))
  losses = -np.log(q[np.arange(4), _SETS])
  assert float(loss) == pytest.approx(losses.mean(), rel=1e-5)
  total, count = metrics['loss']
  assert float(total) == pytest.approx(losses.sum(), rel=1e-5)
  assert float(count) == 4
  right = (q.argmax(axis=1) == _SETS).sum()
  np.testing.assert_array_equal(metrics['set_accuracy'], [right, 4])


def test_accuracy_is_that_of_known_classes():
  objective = objectives.SurrogateSets(views.PlainViews())
  # Predicted are 0, 1, 0 and 1.
  _, metrics = _evaluate(objective, true_y=tf.constant([0, 0, -1, 1]))
  np.testing.assert_array_equal(metrics['accuracy'], [2, 3])
  _, metrics = _evaluate(objective)
  np.testing.assert_array_equal(metrics['accuracy'], [0, 0])
  assert tuple(metrics) == objective.metric_names


def test_published_code_has_its_own_loss():
  objective = objectives.SurrogateSets(views.PlainViews(), 'published_code')
  loss, _ = _evaluate(objective)
  log_p = scipy.special.log_softmax(_expected_q((0.5, 0.5)), axis=1)
  assert float(loss) == pytest.approx(
    -log_p[np.arange(4), _SETS].mean(), rel=1e-5
  )


def test_published_code_has_no_test_prior():
  with pytest.raises(ValueError, match="not fit surrogate_loss='published_c"):
    objectives.SurrogateSets(
      views.PlainViews(), 'published_code', test_prior=(0.5, 0.5)
    )
