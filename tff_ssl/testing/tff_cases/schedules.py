"""Cases of TFF's `fed_avg_with_optimizer_schedule_test.py`.

Its builder takes the learning rate as a function of the round. Here a schedule
is a part of the plan by which clients train, for every builder.
"""

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.testing import assertions
from tff_ssl.testing.tff_cases import builders
from tff_ssl.testing.tff_cases.cases import (
  DIFFERS,
  NO_COUNTERPART,
  Case,
  Stop,
)

_ROUNDS = 4


def _factor(round_num):
  """Returns the factor on the rate, which changes after two rounds."""
  return tf.cond(tf.less(round_num, 2), lambda: 1.0, lambda: 0.1)


def _scheduled(build, *model, factor=_factor, **arguments):
  """Builds with a schedule, as our builder takes one."""
  schedule = optimizers.RoundSchedule(factor)
  return build(
    *model, client_training=builders.plan(schedule=schedule), **arguments
  )


def _stock(learning_rate_fn):
  return tff.learning.algorithms.build_weighted_fed_avg_with_optimizer_schedule(
    builders.model_fn, learning_rate_fn, builders.sgd
  )


def model_fn_is_called_few_times(build):
  """A build calls `model_fn`, which may be slow, at most three times."""
  calls = builders.count_calls(
    lambda model, **arguments: _scheduled(build, model, **arguments),
    model_aggregator=tff.learning.robust_aggregator(),
  )
  assertions.require(calls <= 3, f'Calls of model_fn: {calls}.')
  return f'Calls here: {calls}.'


def functional_model(build):
  """A functional model can be given; a constant rate is a constant rate."""
  built = _scheduled(
    build, builders.functional_model(), factor=lambda round_num: 1.0
  )
  assertions.require_close(
    builders.weights_after(built),
    builders.mean_weights(),
    'A factor of 1 must change nothing.',
  )


def learning_rate_argument(build):
  """The rate is the argument `client_learning_rate_fn`."""
  build(client_learning_rate_fn=lambda round_num: 0.1)


def _optimizer_of_rate(rate):
  return builders.sgd(rate)


def optimizer_of_the_rate(build):
  """The optimizer is a function of the rate."""
  build(client_optimizer_fn=_optimizer_of_rate)


def schedule_is_called_few_times(build):
  """A build calls the function of the rate at most twice."""
  calls = []

  def counted(round_num):
    calls.append(round_num)
    return 1.0

  _scheduled(build, factor=counted)
  assertions.require(1 <= len(calls) <= 2, f'Calls: {len(calls)}.')
  return f'Calls here: {len(calls)}.'


def rate_that_changes(build):
  """The rate may change from round to round."""
  rates = _stock(lambda round_num: builders.RATE * _factor(round_num))
  assertions.require_close(
    builders.weights_after(_scheduled(build), rounds=_ROUNDS),
    builders.weights_after(rates, rounds=_ROUNDS),
    "Weights must be those of TFF's builder.",
  )
  return 'Weights as of TFF to 1e-6.'


def tf_function(build):
  """The function of the rate may be a `tf.function` with branches."""

  @tf.function
  def factor(round_num):
    if round_num < 2:
      return 1.0
    return 0.1

  assertions.require_equal(
    builders.weights_after(_scheduled(build, factor=factor), rounds=_ROUNDS),
    builders.weights_after(_scheduled(build), rounds=_ROUNDS),
    'Weights must be those of the same function without tf.function.',
  )


def secure_sums_only(build):
  """With secure aggregators, no sum of `next` is in the clear."""
  built = _scheduled(
    build,
    model_aggregator=tff.learning.secure_aggregator(),
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
  )
  tff.test.assert_not_contains_unsecure_aggregation(built.next)


def rate_is_measured(build):
  """The metrics of a round hold the rate."""
  metrics = builders.train(_scheduled(build), rounds=1).metrics['client_work']
  assertions.require(
    'client_learning_rate' in metrics,
    f'Metrics of client work are {", ".join(metrics)}.',
  )


_TEST = 'fed_avg_with_optimizer_schedule_test: ClientScheduledFedAvgTest'
_SCHEDULE = (
  'Here: `client_training=TrainingPlan(optimizer=..., '
  'schedule=RoundSchedule(factor))`.'
)
CASES = (
  Case(
    model_fn_is_called_few_times, f'{_TEST}.test_construction_calls_model_fn'
  ),
  Case(functional_model, f'{_TEST}.test_construction_of_functional_model'),
  Case(
    learning_rate_argument,
    f'{_TEST}.test_constructs_with_non_constant_learning_rate',
    NO_COUNTERPART,
    Stop(TypeError, 'build_fed_avg() got an unexpected keyword argument'),
    _SCHEDULE,
  ),
  Case(
    optimizer_of_the_rate,
    f'{_TEST}.test_construction_calls_client_optimizer_fn',
    NO_COUNTERPART,
    Stop(TypeError, 'client_optimizer_fn is a function of rate'),
  ),
  Case(
    schedule_is_called_few_times,
    f'{_TEST}.test_construction_calls_client_learning_rate_fn',
  ),
  Case(
    rate_that_changes,
    f'{_TEST}.test_constructs_with_non_constant_learning_rate',
  ),
  Case(tf_function, f'{_TEST}.test_constructs_with_tf_function'),
  Case(
    secure_sums_only,
    f'{_TEST}.test_construction_with_only_secure_aggregation',
  ),
  Case(
    rate_is_measured,
    f'{_TEST}.test_measurements_include_client_learning_rate',
    DIFFERS,
    Stop(AssertionError, 'Metrics of client work are train, clients.'),
    'The rate is not measured.',
  ),
)
