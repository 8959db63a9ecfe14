"""The training loop, watched through a model that logs what it is shown."""

import collections
from typing import NamedTuple

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_same

from tff_ssl import objectives, optimizers, plans
from tff_ssl.augmentation import views
from tff_ssl.templates import local_training

ModelWeights = tff.learning.models.ModelWeights

# Size of the log: steps and examples.
_STEPS, _EXAMPLES = 40, 30
_SEED = tf.constant([8, 9])


class _Specs(NamedTuple):
  trainable: list


class _LoggingModel:
  """Its non-trainable weights log which examples each step was shown.

  Examples are their own indices. The one trainable weight has the gradient 1
  in every step, so that SGD subtracts the sum of the learning rates from it.
  """

  weights_spec = _Specs([tf.TensorSpec([], tf.float32)])

  @staticmethod
  def initial_weights():
    return ModelWeights(
      [tf.constant(0.0)],
      [tf.constant(0), tf.zeros([_STEPS, _EXAMPLES], tf.int32)],
    )

  @staticmethod
  def predict(trainable, non_trainable, x, *, training, seed=None):
    del training, seed
    step, log = non_trainable
    shown = tf.math.bincount(x, minlength=_EXAMPLES, maxlength=_EXAMPLES)
    log = tf.tensor_scatter_nd_update(log, [[step]], [shown])
    return trainable[0], [step + 1, log]


class _LoggingObjective:
  """Metrics: steps taken, sum of squared batch sizes, sum of squared seeds."""

  metric_names = ('steps', 'squares', 'seeds')

  def __call__(self, predict, batch, anchors, seed):
    weight = predict(batch['x'])
    size = tf.cast(tf.size(batch['x']), tf.float32)
    one = tf.constant(1.0)
    metrics = collections.OrderedDict(
      # Keys in another order than metric_names: the loop goes by names.
      squares=(size**2, size),
      steps=(one, one),
      seeds=(tf.cast(seed[0] % 1024, tf.float32), anchors.trainable[0]),
    )
    return weight, metrics


def _training(rate=1.0, momentum=0, objective=None, **arguments):
  return local_training.LocalTraining(
    _LoggingModel(),
    objective or _LoggingObjective(),
    plans.TrainingPlan(
      optimizers.build_nesterov_sgd(rate, momentum, nesterov=False),
      **arguments,
    ),
  )


def _run(training, num_examples, seed=_SEED, round_num=0, **arguments):
  """Runs in a graph; returns the log of the steps taken and the result."""
  examples = collections.OrderedDict(
    x=tf.range(num_examples), y=tf.fill([num_examples], -1)
  )

  @tf.function(autograph=False)
  def run(seed, round_num):
    return training.run(
      _LoggingModel.initial_weights(),
      examples,
      seed=seed,
      round_num=round_num,
      **arguments,
    )

  result = run(seed, tf.constant(round_num))
  steps, log = result.weights.non_trainable
  return log.numpy()[: int(steps)], result


def _train(training, start, examples, seed=_SEED):
  """Runs the first round in a graph, as inside TFF."""

  @tf.function(autograph=False)
  def train(seed):
    return training.run(start, examples, seed=seed, round_num=tf.constant(0))

  return train(seed)


class TestSteps:
  @pytest.mark.parametrize(
    'num_examples, batch_size, steps',
    [(10, 4, 5), (10, 4, 7), (3, 8, 4), (1, 5, 3), (12, 4, 3), (5, 5, 2)],
  )
  def test_full_batches_that_see_every_example_about_equally(
    self, num_examples, batch_size, steps
  ):
    log, result = _run(
      _training(batch_size=batch_size, steps=steps), num_examples
    )
    assert len(log) == steps
    np.testing.assert_array_equal(log.sum(1), batch_size)
    counts = log.sum(0)[:num_examples]
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == steps * batch_size == float(result.num_examples)


class TestEpochs:
  @pytest.mark.parametrize(
    'num_examples, batch_size, epochs, sizes',
    [
      (10, 4, 2, [4, 4, 2]),
      (8, 4, 3, [4, 4]),
      (3, 8, 2, [3]),
      (9, 4, 1, [4, 4, 1]),
      (1, 1, 2, [1]),
    ],
  )
  def test_every_example_once_per_epoch(
    self, num_examples, batch_size, epochs, sizes
  ):
    log, result = _run(
      _training(batch_size=batch_size, epochs=epochs), num_examples
    )
    assert log.sum(1).tolist() == sizes * epochs
    for epoch in np.split(log, epochs):
      np.testing.assert_array_equal(epoch.sum(0)[:num_examples], 1)
    assert float(result.num_examples) == num_examples * epochs


def test_order_is_a_function_of_the_seed():
  training = _training(batch_size=5, epochs=1)
  log, result = _run(training, 20)
  again, same = _run(training, 20)
  np.testing.assert_array_equal(again, log)
  assert float(same.metrics['seeds'][0]) == float(result.metrics['seeds'][0])
  other, different = _run(training, 20, seed=tf.constant([8, 10]))
  assert (other != log).any()
  assert different.metrics['seeds'][0] != result.metrics['seeds'][0]


def test_example_frequencies_of_first_places_are_uniform():
  """The first batch of one of 5 examples, over 300 seeds."""
  training = _training(batch_size=1, steps=1)
  x = collections.OrderedDict(x=tf.range(5), y=tf.zeros([5], tf.int32))

  @tf.function(autograph=False)
  def first(seed):
    result = training.run(
      _LoggingModel.initial_weights(), x, seed=seed, round_num=tf.constant(0)
    )
    return result.weights.non_trainable[1][0]

  counts = sum(first(tf.constant([i, 0])).numpy() for i in range(300))[:5]
  # Binomial(300, 1/5): 60 with a standard deviation of 6.9.
  assert counts.sum() == 300
  assert np.abs(counts - 60).max() < 5 * 6.9


class TestMetrics:
  def test_numerators_and_denominators_are_summed_over_steps(self):
    training = _training(batch_size=4, epochs=2)
    _, result = _run(training, 10)
    assert tuple(result.metrics) == training.metric_names
    # Sizes 4, 4, 2 twice: squares 2 * (16 + 16 + 4), sizes 2 * 10.
    np.testing.assert_array_equal(result.metrics['steps'], [6, 6])
    np.testing.assert_array_equal(result.metrics['squares'], [72, 20])

  def test_anchors_stay_at_the_start(self):
    _, result = _run(_training(batch_size=4, steps=3), 10)
    assert float(result.weights.trainable[0]) == -3
    assert result.metrics['seeds'][1] == 0  # the sum of the anchors' weight


class TestLearningRate:
  def test_schedule_is_asked_at_the_global_step(self):
    # In round 2 with 3 steps a round the global steps are 6, 7 and 8. With a
    # factor of 10 ** (step - 8) the rates are 2 * (.01 + .1 + 1) = 2.22.
    training = _training(
      rate=2.0,
      schedule=lambda step: 10.0 ** tf.cast(step - 8, tf.float32),
      batch_size=4,
      steps=3,
    )
    _, result = _run(training, 10, round_num=2)
    assert float(result.weights.trainable[0]) == pytest.approx(-2.22, rel=1e-5)
    # The base rate is in the state again: the next round starts from it.
    assert float(result.optimizer_state['learning_rate']) == 2.0

  def test_steps_per_round_may_be_given(self):
    training = _training(
      schedule=lambda step: tf.cast(step, tf.float32),
      batch_size=4,
      epochs=1,
      steps_per_round=100,
    )
    _, result = _run(training, 8, round_num=3)
    assert float(result.weights.trainable[0]) == -(300 + 301)

  def test_hparams_replace_those_of_the_optimizer_before_a_schedule(self):
    training = _training(rate=1.0, batch_size=4, steps=3)
    hparams = training.initial_hparams()
    assert list(hparams) == ['learning_rate'] and hparams['learning_rate'] == 1
    hparams['learning_rate'] = tf.constant(0.25)
    _, result = _run(training, 10, hparams=hparams)
    assert float(result.weights.trainable[0]) == -0.75
    # Both multiply.
    training = _training(
      schedule=lambda step: tf.constant(0.5), batch_size=4, steps=2
    )
    _, result = _run(training, 10, hparams=hparams)
    assert float(result.weights.trainable[0]) == -0.25


@pytest.mark.parametrize(
  'mode', [{'steps': 3}, {'epochs': 2, 'steps_per_round': 3}]
)
@pytest.mark.parametrize(
  'num_examples, active',
  [(0, True), (10, False), (10, tf.constant(False)), (0, tf.constant(True))],
)
def test_nothing_is_trained(mode, num_examples, active):
  schedule = lambda step: tf.constant(1.0)
  log, result = _run(
    _training(batch_size=4, schedule=schedule, **mode),
    num_examples,
    active=active,
  )
  assert len(log) == 0
  assert float(result.num_examples) == 0
  assert float(result.weights.trainable[0]) == 0
  for pair in result.metrics.values():
    np.testing.assert_array_equal(pair, [0, 0])


def test_optimizer_state_goes_on_from_the_one_given():
  """Momentum .5 with gradient 1: velocities 1, 1.5, 1.75, then 1.875."""
  training = _training(momentum=0.5, batch_size=4, steps=1)
  state = training.initial_optimizer_state()
  state['velocity'] = [tf.constant(1.75)]
  _, result = _run(training, 10, optimizer_state=state)
  assert float(result.weights.trainable[0]) == -1.875
  _, fresh = _run(training, 10)
  assert float(fresh.weights.trainable[0]) == -1


class _Constant:
  """The loss of a weight, times a constant of the participant."""

  metric_names = ('constant',)

  def __call__(self, predict, batch, anchors, seed):
    del anchors, seed
    metrics = {'constant': (batch['table'][1], tf.constant(1.0))}
    return batch['table'][0] * predict(batch['x']), metrics


def test_every_minibatch_carries_the_constants():
  training = _training(objective=_Constant(), batch_size=4, steps=3)
  constants = collections.OrderedDict(table=tf.constant([0.5, 7.0]))
  _, result = _run(training, 6, constants=constants)
  # Three steps of gradient 0.5; the metric is 7 in each.
  assert float(result.weights.trainable[0]) == -1.5
  np.testing.assert_array_equal(result.metrics['constant'], [21, 3])


@pytest.mark.parametrize(
  'wrap',
  costs.rest_in(
    'parts',
    [
      lambda objective: objective,
      lambda objective: objectives.Proximal(objective, 0.5),
      lambda objective: objectives.L1Penalty(objective, 0.1),
      lambda objective: objectives.WeightedLoss(objective, 2.0),
    ],
  ),
  ids=['alone', 'proximal', 'lasso', 'weighted'],
)
@pytest.mark.parametrize('length', [{'steps': 5}, {'epochs': 2}])
def test_supervised_training_leaves_out_what_has_no_label(wrap, length):
  model = federations.model(3, 2)
  start = model.initial_weights(0)
  training = local_training.LocalTraining(
    model,
    wrap(objectives.Supervised(views.PlainViews())),
    plans.TrainingPlan(
      optimizers.build_nesterov_sgd(0.1), batch_size=4, **length
    ),
  )
  rng = np.random.default_rng(0)
  x = rng.normal(size=(12, 3)).astype(np.float32)
  y = rng.integers(2, size=12).astype(np.int32)
  y[::3] = -1

  def run(rows):
    examples = collections.OrderedDict(x=tf.constant(x[rows]), y=y[rows])
    return _train(training, start, examples)

  with_all, without = run(np.arange(12)), run(np.flatnonzero(y >= 0))
  assert_same(with_all.weights, without.weights)
  assert with_all.num_examples == without.num_examples > 0
  assert with_all.num_steps == without.num_steps


def test_closed_masks_give_a_delta_of_exactly_zero():
  model = federations.model(4, 3)
  training = local_training.LocalTraining(
    model,
    objectives.ConsistencyRegularization(views.PlainViews(), 1.0),
    plans.TrainingPlan(
      optimizers.build_nesterov_sgd(0.3, momentum=0), batch_size=2, epochs=2
    ),
  )
  start = model.initial_weights(0)
  x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
  examples = collections.OrderedDict(x=tf.constant(x), y=tf.fill([6], -1))
  result = _train(training, start, examples)
  assert_same(result.weights.trainable, start.trainable)
  np.testing.assert_array_equal(result.metrics['mask_rate'], [0, 12])


@pytest.mark.parametrize(
  'arguments, message',
  [
    # Nothing reads it.
    ({'labelled_batch_size': 4}, 'labelled_batch_size=4 has no effect on'),
    ({'steps_per_round': 0}, 'steps_per_round'),
  ],
)
def test_refused_plans(arguments, message):
  with pytest.raises(ValueError, match=message):
    _training(batch_size=2, epochs=1, **arguments)


@pytest.mark.parametrize('is_wrapped', [False, True])
@pytest.mark.parametrize('given, size', [(None, 2), (5, 5)])
def test_the_second_minibatch_is_by_default_as_large_as_the_first(
  is_wrapped, given, size
):
  objective = objectives.SemiSupervised(views.PlainViews())
  if is_wrapped:
    objective = objectives.Proximal(objective, 0.1)
  training = _training(
    objective=objective, batch_size=2, steps=1, labelled_batch_size=given
  )
  assert training.plan.labelled_batch_size == size
