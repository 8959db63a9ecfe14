"""Cases of TFF's `fed_avg_with_optimizer_schedule_test.py`.

Its builder takes the learning rate as a function of the round. Here a schedule
is a part of the plan by which clients train, for every builder.
"""

import functools

import tensorflow as tf
import tensorflow_federated as tff

from tests.tff_parity import builders
from tests.tff_parity.cases import Group, differs, no_counterpart
from tff_ssl import optimizers

GROUP = Group('Schedules of the learning rate')
_TEST = 'fed_avg_with_optimizer_schedule_test: ClientScheduledFedAvgTest'
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


GROUP.row(
  'model_fn_is_called_few_times',
  'A build calls `model_fn`, which may be slow, at most three times.',
  f'{_TEST}.test_construction_calls_model_fn',
  lambda build: builders.require_few_calls(
    functools.partial(_scheduled, build),
    {'model_aggregator': tff.learning.robust_aggregator()},
  ),
)
GROUP.row(
  'functional_model',
  'A functional model can be given; a constant rate is a constant rate.',
  f'{_TEST}.test_construction_of_functional_model',
  lambda build: builders.require_same(
    _scheduled(build, builders.functional_model(), factor=lambda _: 1.0),
    builders.mean_weights(),
  ),
)
GROUP.row(
  'learning_rate_argument',
  'The rate is the argument `client_learning_rate_fn`.',
  f'{_TEST}.test_constructs_with_non_constant_learning_rate',
  lambda build: build(client_learning_rate_fn=lambda round_num: 0.1),
  no_counterpart(
    TypeError,
    'build_fed_avg() got an unexpected keyword argument',
    'Here: `client_training=TrainingPlan(optimizer=..., '
    'schedule=RoundSchedule(factor))`.',
  ),
)
GROUP.row(
  'optimizer_of_the_rate',
  'The optimizer is a function of the rate.',
  f'{_TEST}.test_construction_calls_client_optimizer_fn',
  lambda build: build(client_optimizer_fn=lambda rate: builders.sgd(rate)),
  no_counterpart(TypeError, 'client_optimizer_fn is a function of rate'),
)


@GROUP.case(f'{_TEST}.test_construction_calls_client_learning_rate_fn')
def schedule_is_called_few_times(build):
  """A build calls the function of the rate at most twice."""
  calls = []

  def factor(round_num):
    calls.append(round_num)
    return 1.0

  _scheduled(build, factor=factor)
  assert 1 <= len(calls) <= 2, f'Calls: {len(calls)}.'
  return f'Calls here: {len(calls)}.'


@GROUP.case(f'{_TEST}.test_constructs_with_non_constant_learning_rate')
def rate_that_changes(build):
  """The rate may change from round to round."""
  algorithms = tff.learning.algorithms
  stock = algorithms.build_weighted_fed_avg_with_optimizer_schedule(
    builders.model_fn,
    lambda round_num: builders.RATE * _factor(round_num),
    builders.sgd,
  )
  return builders.require_as_of_tff(_scheduled(build), stock, rounds=_ROUNDS)


@GROUP.case(f'{_TEST}.test_constructs_with_tf_function')
def tf_function(build):
  """The function of the rate may be a `tf.function` with branches."""

  @tf.function
  def factor(round_num):
    if round_num < 2:
      return 1.0
    return 0.1

  builders.require_same(
    _scheduled(build, factor=factor),
    _scheduled(build),
    rounds=_ROUNDS,
    exactly=True,
  )


GROUP.row(
  'secure_sums_only',
  'With secure aggregators, no sum of `next` is in the clear.',
  f'{_TEST}.test_construction_with_only_secure_aggregation',
  lambda build: builders.require_secure_sums(
    _scheduled(build, **builders.secure())
  ),
)


@GROUP.case(
  f'{_TEST}.test_measurements_include_client_learning_rate',
  differs(
    AssertionError,
    'Metrics of client work are train, clients.',
    'The rate is not measured.',
  ),
)
def rate_is_measured(build):
  """The metrics of a round hold the rate."""
  metrics = builders.train(_scheduled(build), rounds=1).metrics['client_work']
  assert 'client_learning_rate' in metrics, (
    f'Metrics of client work are {", ".join(metrics)}.'
  )
