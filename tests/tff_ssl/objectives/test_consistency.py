"""Losses of pseudo-labels, alone and beside labels, against numpy."""

import collections

import federations
import numpy as np
import pytest
import scipy.special
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close
from federations import ShiftedViews

from tff_ssl import objectives, plans
from tff_ssl.augmentation import views
from tff_ssl.models import convolutional, dense, functional
from tff_ssl.objectives import selection
from tff_ssl.templates import local_training, prediction

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


def _linear(kernel):
  biases = np.zeros(kernel.shape[1], np.float32)
  return tff.learning.models.ModelWeights([np.float32(kernel), biases], [])


class TestClientAdaptive:
  """Thresholds of all examples of the client, in minibatches of four."""

  rng = np.random.default_rng(2)
  x = np.float32(rng.normal(size=(24, 4)))
  labels = np.int32(rng.integers(0, 3, 24))
  start, received = map(_linear, rng.normal(size=(2, 4, 3)))

  def by_hand(self, weights):
    """Returns pseudo-labels, and which of them count."""
    found = softmax_regression.probabilities(weights.trainable, self.x)
    confidence, guesses = found.max(1), found.argmax(1)
    shares = found.mean(0)
    thresholds = confidence.mean() * shares / shares.max()
    return guesses, confidence >= thresholds[guesses]

  def training(self, wrap=lambda objective: objective, floor=0.0):
    objective = objectives.ConsistencyRegularization(
      views.PlainViews(),
      teacher='received',
      pseudo_label_rule='client_adaptive',
      min_confidence=floor,
    )
    return local_training.LocalTraining(
      softmax_regression.model(4, 3),
      wrap(objective),
      plans.TrainingPlan(
        tff.learning.optimizers.build_sgdm(0.1), batch_size=4, epochs=2
      ),
    )

  def run(self, training, **more):
    return tf.function(autograph=False)(training.run)(
      tf.nest.map_structure(tf.constant, self.start),
      collections.OrderedDict(
        x=tf.constant(self.x), y=tf.constant(self.labels)
      ),
      seed=_SEED,
      round_num=tf.constant(0),
      anchors=tf.nest.map_structure(tf.constant, self.received),
      **more,
    )

  def test_counts_equal_numpy(self):
    guesses, counts = self.by_hand(self.received)
    result = self.run(self.training())
    np.testing.assert_array_equal(
      result.metrics['mask_rate'], [2 * counts.sum(), 48]
    )
    right = 2 * np.sum((guesses == self.labels) & counts)
    np.testing.assert_array_equal(
      result.metrics['pseudo_label_accuracy'], [right, 2 * counts.sum()]
    )
    # Once for the thresholds, then two passes for labels, and what counts.
    trained = 2 * counts.sum()
    np.testing.assert_array_equal(
      result.passes, [24 + 2 * 24 + trained, trained]
    )

  def test_a_floor_stays_one(self):
    found = softmax_regression.probabilities(self.received.trainable, self.x)
    counts = self.by_hand(self.received)[1] & (found.max(1) >= 0.7)
    assert 0 < counts.sum() < self.by_hand(self.received)[1].sum()
    result = self.run(self.training(floor=0.7))
    assert result.metrics['mask_rate'][0] == 2 * counts.sum()

  def test_who_does_not_train_asks_nothing(self):
    result = self.run(self.training(), active=tf.constant(False))
    np.testing.assert_array_equal(result.passes, [0, 0])
    for new, old in zip(
      result.weights.trainable, self.start.trainable, strict=True
    ):
      np.testing.assert_array_equal(new, old)

  def test_the_gradient_on_all_examples_is_numpys(self):
    """Also of an objective around it; its teacher is the model itself."""
    guesses, counts = self.by_hand(self.start)
    expected = softmax_regression.gradient(
      self.start.trainable, self.x, guesses, counts
    )
    training = self.training(
      lambda objective: objectives.WeightedLoss(objective, 2.0)
    )
    found = training.full_gradient(
      tf.nest.map_structure(tf.constant, self.start),
      collections.OrderedDict(
        x=tf.constant(self.x), y=tf.constant(self.labels)
      ),
      seed=_SEED,
    )
    assert_close(found, [2 * part for part in expected], atol=1e-6)


class TestEnergy:
  """Examples of high energy by the received model, in a client's training."""

  rng = np.random.default_rng(2)
  x = np.float32(rng.normal(size=(24, 4)))
  start, received = map(_linear, rng.normal(0, 2, size=(2, 4, 3)))

  def trainer(self, batch_size=4, **rule):
    """Returns the function from a client's examples to its new weights."""
    training = local_training.LocalTraining(
      softmax_regression.model(4, 3),
      objectives.ConsistencyRegularization(
        views.PlainViews(), teacher='received', **rule
      ),
      plans.TrainingPlan(
        tff.learning.optimizers.build_sgdm(0.1),
        batch_size=batch_size,
        epochs=1,
      ),
    )
    start, anchors = (
      tf.nest.map_structure(tf.constant, weights)
      for weights in (self.start, self.received)
    )

    @tf.function(autograph=False)
    def train(x):
      return training.run(
        start,
        collections.OrderedDict(x=x, y=tf.fill([24], -1)),
        seed=_SEED,
        round_num=tf.constant(0),
        anchors=anchors,
      ).weights.trainable

    return lambda x: np.concatenate([np.ravel(w) for w in train(x)])

  def by_hand(self):
    """Returns pseudo-labels, and which of them count."""
    logits = self.x @ self.received.trainable[0]
    kept = -scipy.special.logsumexp(logits, axis=1) <= -2
    assert 4 < kept.sum() < 20
    return logits.argmax(1), kept

  def test_a_step_is_numpys(self):
    guesses, kept = self.by_hand()
    train = self.trainer(24, pseudo_label_rule='energy', max_energy=-2.0)
    expected = softmax_regression.step(
      self.start.trainable, self.x, guesses, 0.1, kept
    )
    np.testing.assert_allclose(
      train(self.x), np.concatenate([*map(np.ravel, expected)]), atol=1e-6
    )

  def test_what_is_removed_has_no_influence(self):
    removed = ~self.by_hand()[1]
    other = self.x.copy()
    other[removed] *= -0.01  # Of still higher energy.
    train = self.trainer(pseudo_label_rule='energy', max_energy=-2.0)
    np.testing.assert_array_equal(train(self.x), train(other))
    # Another rule would train on some of them.
    found = softmax_regression.probabilities(self.received.trainable, self.x)
    assert found[removed].max() > 0.8

  def test_without_a_bound_it_is_the_fixed_rule(self):
    unbounded = self.trainer(
      pseudo_label_rule='energy', min_confidence=0.5, max_energy=1e9
    )
    fixed = self.trainer(threshold=0.5)
    np.testing.assert_array_equal(unbounded(self.x), fixed(self.x))


@pytest.mark.parametrize(
  'option',
  [{'pseudo_label_rule': 'client_adaptive'}, {'sharpness_radius': 0.1}],
)
def test_what_needs_labels_that_do_not_change(option):
  (name,) = option
  with pytest.raises(ValueError, match=f"{name}=.*teacher='received'"):
    objectives.ConsistencyRegularization(views.PlainViews(), **option)


_STEP_SEED = tf.constant([1, 2])


def _two_batches(num_labelled=3):
  rng = np.random.default_rng(0)

  def part(size):
    return collections.OrderedDict(
      x=tf.constant(rng.normal(size=(size, 4)), tf.float32),
      y=tf.constant(rng.integers(0, 3, size), tf.int32),
    )

  batch = part(8)
  batch['labelled'] = part(num_labelled)
  return batch


@pytest.fixture(scope='module')
def model():
  return federations.model(4, 3)


def _predictor(model):
  return prediction.Predictor(
    model, *(list(map(tf.constant, w)) for w in model.initial_weights(5))
  )


def _log_probabilities(model, x, weights=None):
  weights = (weights or model.initial_weights(5)).trainable
  return np.log(softmax_regression.probabilities(weights, x))


def _terms(model, batch, threshold):
  """L_s, and L_u of Eq. 4 and of self-training on both views."""
  labelled = batch['labelled']
  rows = np.arange(len(labelled['y']))
  of_labels = _log_probabilities(model, labelled['x'])
  supervised = -of_labels[rows, labelled['y']].mean()
  weak = _log_probabilities(model, batch['x'])
  strong = _log_probabilities(model, batch['x'] + 1)

  def pseudo(teacher, student):
    passed = np.exp(teacher.max(1)) >= threshold
    loss = -student[np.arange(8), teacher.argmax(1)]
    assert 0 < passed.sum() < 8
    return (passed * loss).mean()

  both = (pseudo(weak, weak) + pseudo(strong, strong)) / 2
  return supervised, {'crl': pseudo(weak, strong), 'self_training': both}


@pytest.mark.parametrize('unlabelled_loss', ['crl', 'self_training'])
@pytest.mark.parametrize('weight', [1.0, 0.25])
def test_loss_is_the_sum_of_both_terms(model, unlabelled_loss, weight):
  objective = objectives.SemiSupervised(
    ShiftedViews(), 0.6, unlabelled_loss, weight
  )
  batch = _two_batches()
  loss, metrics = objective(_predictor(model), batch, None, _STEP_SEED)
  supervised, both = _terms(model, batch, 0.6)
  unlabelled = both[unlabelled_loss]
  for value, expected in (
    (loss, supervised + weight * unlabelled),
    (tf.divide(*metrics['loss']), supervised),
    (tf.divide(*metrics['unlabelled_loss']), unlabelled),
  ):
    assert float(value) == pytest.approx(expected, rel=1e-5)
  assert set(metrics) == set(objective.metric_names)


def test_weights_of_classes_are_those_of_labelled_examples(model):
  weights, batch = (0.5, 2.0, 4.0), _two_batches()
  losses = [
    float(objective(_predictor(model), batch, None, _STEP_SEED)[0])
    for objective in (
      objectives.SemiSupervised(ShiftedViews(), 0.6),
      objectives.SemiSupervised(ShiftedViews(), 0.6, class_weights=weights),
    )
  ]
  labels = np.asarray(batch['labelled']['y'])
  logs = _log_probabilities(model, batch['labelled']['x'])[range(3), labels]
  more = -((np.array(weights)[labels] - 1) * logs).mean()
  assert losses[1] - losses[0] == pytest.approx(more, rel=1e-4)
  with pytest.raises(ValueError, match='a positive number for each class'):
    objectives.SemiSupervised(ShiftedViews(), class_weights=(1.0, -1.0, 1.0))


def test_without_labels_the_supervised_term_is_zero(model):
  batch = _two_batches(num_labelled=0)
  objective = objectives.SemiSupervised(ShiftedViews(), 0.0)
  loss, metrics = objective(_predictor(model), batch, None, _STEP_SEED)
  unlabelled = tf.divide(*metrics['unlabelled_loss'])
  assert float(loss) == pytest.approx(float(unlabelled))
  assert [float(v) for v in metrics['loss']] == [0.0, 0.0]


def _received(model):
  """Another model, surer than the one in training of some examples."""
  weights = model.initial_weights(9)
  return tff.learning.models.ModelWeights(
    [3.0 * weight for weight in weights.trainable], weights.non_trainable
  )


@pytest.mark.parametrize('loss', ['received', 'sage'])
def test_labels_of_the_received_model_equal_numpy(model, loss):
  batch, received, threshold = _two_batches(), _received(model), 0.6
  objective = objectives.SemiSupervised(ShiftedViews(), threshold, loss)
  found, metrics = objective(_predictor(model), batch, received, _STEP_SEED)
  supervised, _ = _terms(model, batch, threshold)
  own = np.exp(_log_probabilities(model, batch['x']))
  given = np.exp(_log_probabilities(model, batch['x'], received))
  student = _log_probabilities(model, batch['x'] + 1)
  share = 2.0 ** (-np.abs(own.max(1) - given.max(1)) / 0.05)
  share *= (own.max(1) >= threshold) & (loss == 'sage')
  labels = share[:, None] * np.eye(3)[own.argmax(1)]
  labels += (1 - share)[:, None] * np.eye(3)[given.argmax(1)]
  passed = given.max(1) >= threshold
  if loss == 'sage':
    # The case asks for examples of which one model alone is sure.
    assert np.any(passed != (own.max(1) >= threshold)) and 0 < share.max() < 1
    passed |= own.max(1) >= threshold
  divergence = scipy.special.rel_entr(labels, np.exp(student)).sum(1)
  unlabelled = (passed * divergence).mean()
  assert float(found) == pytest.approx(supervised + unlabelled, rel=1e-4)
  assert metrics['mask_rate'][0] == passed.sum() and 0 < passed.sum() < 8


def test_sage_of_two_equal_models_is_fixmatch(model):
  batch, losses = _two_batches(), []
  for loss in ('sage', 'crl'):
    objective = objectives.SemiSupervised(ShiftedViews(), 0.6, loss)
    predict = _predictor(model)
    received = tff.learning.models.ModelWeights(
      predict.trainable, predict.non_trainable
    )
    losses.append(float(objective(predict, batch, received, _STEP_SEED)[0]))
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
  'loss', ['crl', 'self_training', 'uda', 'received', 'sage']
)
@pytest.mark.parts
def test_convolutions_of_a_client_without_labels(loss):
  """The labelled minibatch turns out empty when the graph runs."""
  model = functional.from_keras(convolutional.small_cnn((8, 8, 1), 3))
  objective = objectives.SemiSupervised(
    views.PlainViews(), threshold=0.0, unlabelled_loss=loss
  )
  x = tf.random.stateless_uniform([4, 8, 8, 1], _STEP_SEED)

  @tf.function(autograph=False)
  def gradient(num_labelled):
    batch = collections.OrderedDict(x=x, y=tf.fill([4], -1))
    batch['labelled'] = collections.OrderedDict(
      x=tf.zeros([num_labelled, 8, 8, 1]), y=tf.zeros([num_labelled], tf.int32)
    )
    predict = _predictor(model)
    with tf.GradientTape() as tape:
      tape.watch(predict.trainable)
      value, metrics = objective(
        predict, batch, model.initial_weights(5), _STEP_SEED
      )
    return tape.gradient(value, predict.trainable), metrics

  found, metrics = gradient(tf.constant(0))
  assert metrics['loss'] == (0, 0)
  assert np.abs(found[0]).max() > 0 and np.isfinite(found[0]).all()
  # Of 2 labels, known when the graph runs or when it is built.
  some, metrics = gradient(tf.constant(2))
  same, _ = gradient(2)
  assert metrics['loss'][1] == 2
  np.testing.assert_allclose(some[0], same[0], rtol=1e-5)
