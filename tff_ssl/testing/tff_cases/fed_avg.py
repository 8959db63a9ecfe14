"""Cases of TFF's `fed_avg_test.py`."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.testing import assertions
from tff_ssl.testing.tff_cases import builders
from tff_ssl.testing.tff_cases.cases import (
  NO_COUNTERPART,
  REFUSED,
  TAKEN,
  Case,
  Stop,
)


def model_fn_is_called_few_times(build):
  """A build calls `model_fn`, which may be slow, at most three times."""
  calls = {
    builders.count_calls(build, model_aggregator=aggregator())
    for aggregator in (
      tff.learning.robust_aggregator,
      tff.learning.secure_aggregator,
    )
  }
  assertions.require(max(calls) <= 3, f'Calls of model_fn: {calls}.')
  (stock_calls,) = {builders.count_calls(builders.stock)}
  (own_calls,) = calls
  return f'Calls here: {own_calls}; of TFF: {stock_calls}.'


def loop_implementation(build):
  """The loop over a client's batches can be chosen."""
  build(loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR)


def unweighted_is_uniform(build):
  """The unweighted builder is the weighted one with equal weights."""
  del build
  assertions.require_close(
    builders.mean_weights(unweighted=True),
    builders.weights_after(builders.stock(unweighted=True)),
    'Weights must be those of build_unweighted_fed_avg.',
  )
  return "Written `client_weighting='uniform'`; weights as of TFF to 1e-6."


def unweighted_factory_is_wrapped(build):
  """An unweighted aggregation factory is made a weighted one, once."""
  created = []

  class Counting(tff.aggregators.UnweightedAggregationFactory):
    def create(self, value_type):
      created.append(value_type)
      return tff.aggregators.UnweightedMeanFactory().create(value_type)

  built = build(model_aggregator=Counting(), unweighted=True)
  assertions.require_equal(len(created), 1, 'create must be called once.')
  assertions.require_close(
    builders.weights_after(built),
    builders.mean_weights(unweighted=True),
    'The mean of the factory must be the mean.',
  )


def function_without_a_model(build):
  """A function that returns no model is refused."""
  build(lambda: 0)


def neither_function_nor_model(build):
  """A model that is neither a function nor a functional model is refused."""
  build(0)


def unknown_client_weighting(build):
  """A `client_weighting` of another kind is refused."""
  build(client_weighting='by size')


def client_weighting_as_a_word(build):
  """`client_weighting='uniform'` is no `tff.learning.ClientWeighting`."""
  assertions.require_equal(
    builders.weights_after(build(client_weighting='uniform')),
    builders.mean_weights(unweighted=True),
    'The word must mean ClientWeighting.UNIFORM.',
  )


def unweighted_aggregator_with_weights(build):
  """An unweighted aggregator is refused where clients have weights."""
  build(model_aggregator=tff.learning.robust_aggregator(weighted=False))


def weighted_aggregator_without_weights(build):
  """A weighted aggregator is refused where clients have none."""
  built = build(
    model_aggregator=tff.learning.robust_aggregator(), unweighted=True
  )
  stock = builders.stock(
    model_aggregator=tff.learning.robust_aggregator(weighted=False),
    unweighted=True,
  )
  assertions.require_close(
    builders.weights_after(built),
    builders.weights_after(stock),
    'With weights of 1 it must be the unweighted aggregator.',
  )
  return 'Each client weighs 1, and the weights are those of `weighted=False`.'


def secure_sums_only(build):
  """With secure aggregators, no sum of `next` is in the clear."""
  del build
  tff.test.assert_not_contains_unsecure_aggregation(
    builders.secure_process().next
  )


def secure_sums_only_unweighted(build):
  """The same without weights."""
  built = build(
    model_aggregator=tff.learning.secure_aggregator(weighted=False),
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
    unweighted=True,
  )
  tff.test.assert_not_contains_unsecure_aggregation(built.next)


def secure_sums_only_functional(build):
  """The same with a functional model and a server optimizer."""
  built = build(
    builders.functional_model(),
    server_optimizer_fn=builders.sgd(1.0),
    model_aggregator=tff.learning.secure_aggregator(),
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
  )
  tff.test.assert_not_contains_unsecure_aggregation(built.next)


def secure_counts(build):
  """The server still learns how many clients took part."""
  del build
  assertions.require_close(
    *(
      builders.train(process).metrics['client_work']['clients']
      for process in (builders.secure_process(), builders.process())
    ),
    'Counts of clients must be those without secure sums.',
  )


def regression(build):
  """A functional linear regression trains."""
  build(
    tff.learning.models.functional_model_from_keras(
      tf.keras.Sequential(
        [tf.keras.layers.InputLayer((2,)), tf.keras.layers.Dense(1)]
      ),
      tf.keras.losses.MeanSquaredError(),
      input_spec={
        'x': tf.TensorSpec([None, 2], tf.float32),
        'y': tf.TensorSpec([None, 1], tf.float32),
      },
    )
  )


CASES = (
  Case(
    model_fn_is_called_few_times,
    'fed_avg_test: FedAvgTest.test_construction_calls_model_fn',
  ),
  Case(
    loop_implementation,
    'fed_avg_test: FedAvgTest.test_client_tf_dataset_reduce_fn',
    NO_COUNTERPART,
    Stop(TypeError, 'build_fed_avg() got an unexpected keyword argument'),
    'There is one loop.',
  ),
  Case(
    unweighted_is_uniform,
    'fed_avg_test: '
    'FedAvgTest.test_build_weighted_fed_avg_called_by_unweighted_fed_avg',
  ),
  Case(
    unweighted_factory_is_wrapped,
    'fed_avg_test: FedAvgTest.test_aggregation_wrapper_called_by_unweighted',
  ),
  Case(
    function_without_a_model,
    'fed_avg_test: FedAvgTest.test_raises_on_callable_non_model_fn',
    REFUSED,
    Stop(TypeError, 'model is a function that returns a int'),
  ),
  Case(
    neither_function_nor_model,
    'fed_avg_test: '
    'FunctionalFedAvgTest.test_raises_on_non_callable_or_functional_model',
    REFUSED,
    Stop(TypeError, 'model is a int: give a Keras model'),
  ),
  Case(
    unknown_client_weighting,
    'fed_avg_test: FedAvgTest.test_raises_on_invalid_client_weighting',
    REFUSED,
    Stop(ValueError, 'client_weighting must be one of'),
  ),
  Case(
    client_weighting_as_a_word,
    'fed_avg_test: FedAvgTest.test_raises_on_invalid_client_weighting',
    TAKEN,
  ),
  Case(
    unweighted_aggregator_with_weights,
    'fed_avg_test: '
    'FedAvgTest.test_weighted_fed_avg_raises_on_unweighted_aggregator',
    REFUSED,
    Stop(ValueError, 'model_aggregator ignores weights'),
  ),
  Case(
    weighted_aggregator_without_weights,
    'fed_avg_test: '
    'FedAvgTest.test_unweighted_fed_avg_raises_on_weighted_aggregator',
    TAKEN,
  ),
  Case(
    secure_sums_only,
    'fed_avg_test: '
    'FedAvgTest.test_weighted_fed_avg_with_only_secure_aggregation',
  ),
  Case(
    secure_sums_only_unweighted,
    'fed_avg_test: '
    'FedAvgTest.test_unweighted_fed_avg_with_only_secure_aggregation',
  ),
  Case(
    secure_sums_only_functional,
    'fed_avg_test: '
    'FunctionalFedAvgTest.test_weighted_fed_avg_with_only_secure_aggregation',
  ),
  Case(
    secure_counts,
    'fed_avg_test: '
    'FedAvgTest.test_weighted_fed_avg_with_only_secure_aggregation',
  ),
  Case(
    regression,
    'fed_avg_test: '
    'FunctionalFedAvgTest.test_weighted_fed_avg_with_only_secure_aggregation',
    REFUSED,
    Stop(TypeError, "element_spec['y'] is float32"),
    'Processes here train classifiers.',
  ),
)
