"""Cases of TFF's `fed_avg_test.py`."""

import tensorflow as tf
import tensorflow_federated as tff

from tests.tff_parity import builders
from tests.tff_parity.cases import TAKEN, Group, no_counterpart, refused
from tff_ssl.testing import assertions

GROUP = Group('Federated averaging')
_TEST = 'fed_avg_test: FedAvgTest'
_FUNCTIONAL = 'fed_avg_test: FunctionalFedAvgTest'

GROUP.row(
  'model_fn_is_called_few_times',
  'A build calls `model_fn`, which may be slow, at most three times.',
  f'{_TEST}.test_construction_calls_model_fn',
  lambda build: builders.require_few_calls(
    build,
    {'model_aggregator': tff.learning.robust_aggregator()},
    {'model_aggregator': tff.learning.secure_aggregator()},
    of_stock={},
  ),
)
GROUP.row(
  'loop_implementation',
  "The loop over a client's batches can be chosen.",
  f'{_TEST}.test_client_tf_dataset_reduce_fn',
  lambda build: build(
    loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR
  ),
  no_counterpart(
    TypeError,
    'build_fed_avg() got an unexpected keyword argument',
    'There is one loop.',
  ),
)


@GROUP.case(f'{_TEST}.test_build_weighted_fed_avg_called_by_unweighted_fed_avg')
def unweighted_is_uniform(build):
  """The unweighted builder is the weighted one with equal weights."""
  del build
  of_tff, ours = builders.stock(unweighted=True), builders.mean_weights(True)
  builders.require_same(of_tff, ours)
  return "Written `client_weighting='uniform'`; weights as of TFF to 1e-6."


@GROUP.case(f'{_TEST}.test_aggregation_wrapper_called_by_unweighted')
def unweighted_factory_is_wrapped(build):
  """An unweighted aggregation factory is made a weighted one, once."""
  created = []

  class Counting(tff.aggregators.UnweightedAggregationFactory):
    def create(self, value_type):
      created.append(value_type)
      return tff.aggregators.UnweightedMeanFactory().create(value_type)

  built = build(model_aggregator=Counting(), unweighted=True)
  assert len(created) == 1, 'create must be called once.'
  builders.require_same(built, builders.mean_weights(unweighted=True))


GROUP.row(
  'function_without_a_model',
  'A function that returns no model is refused.',
  f'{_TEST}.test_raises_on_callable_non_model_fn',
  lambda build: build(lambda: 0),
  refused(TypeError, 'model is a function that returns a int'),
)
GROUP.row(
  'neither_function_nor_model',
  'A model that is neither a function nor a functional model is refused.',
  f'{_FUNCTIONAL}.test_raises_on_non_callable_or_functional_model',
  lambda build: build(0),
  refused(TypeError, 'model is a int: give a Keras model'),
)
GROUP.row(
  'unknown_client_weighting',
  'A `client_weighting` of another kind is refused.',
  f'{_TEST}.test_raises_on_invalid_client_weighting',
  lambda build: build(client_weighting='by size'),
  refused(ValueError, 'client_weighting must be one of'),
)
GROUP.row(
  'client_weighting_as_a_word',
  "`client_weighting='uniform'` is no `tff.learning.ClientWeighting`.",
  f'{_TEST}.test_raises_on_invalid_client_weighting',
  lambda build: builders.require_same(
    build(client_weighting='uniform'),
    builders.mean_weights(unweighted=True),
    exactly=True,
  ),
  TAKEN,
)
GROUP.row(
  'unweighted_aggregator_with_weights',
  'An unweighted aggregator is refused where clients have weights.',
  f'{_TEST}.test_weighted_fed_avg_raises_on_unweighted_aggregator',
  lambda build: build(
    model_aggregator=tff.learning.robust_aggregator(weighted=False)
  ),
  refused(ValueError, 'model_aggregator ignores weights'),
)


@GROUP.case(
  f'{_TEST}.test_unweighted_fed_avg_raises_on_weighted_aggregator', TAKEN
)
def weighted_aggregator_without_weights(build):
  """A weighted aggregator is refused where clients have none."""
  robust = tff.learning.robust_aggregator
  builders.require_same(
    build(model_aggregator=robust(), unweighted=True),
    builders.stock(model_aggregator=robust(weighted=False), unweighted=True),
  )
  return 'Each client weighs 1, and the weights are those of `weighted=False`.'


GROUP.row(
  'secure_sums_only',
  'With secure aggregators, no sum of `next` is in the clear.',
  f'{_TEST}.test_weighted_fed_avg_with_only_secure_aggregation',
  lambda _: builders.require_secure_sums(builders.secure_process()),
)
GROUP.row(
  'secure_sums_only_unweighted',
  'The same without weights.',
  f'{_TEST}.test_unweighted_fed_avg_with_only_secure_aggregation',
  lambda build: builders.require_secure_sums(
    build(**builders.secure(weighted=False), unweighted=True)
  ),
)
GROUP.row(
  'secure_sums_only_functional',
  'The same with a functional model and a server optimizer.',
  f'{_FUNCTIONAL}.test_weighted_fed_avg_with_only_secure_aggregation',
  lambda build: builders.require_secure_sums(
    build(
      builders.functional_model(),
      server_optimizer_fn=builders.sgd(1.0),
      **builders.secure(),
    )
  ),
)


@GROUP.case(f'{_TEST}.test_weighted_fed_avg_with_only_secure_aggregation')
def secure_counts(build):
  """The server still learns how many clients took part."""
  del build
  secure, plain = (
    builders.train(process).metrics['client_work']['clients']
    for process in (builders.secure_process(), builders.process())
  )
  assertions.require_close(secure, plain, 'The counts are others.')


GROUP.row(
  'regression',
  'A functional linear regression trains.',
  f'{_FUNCTIONAL}.test_weighted_fed_avg_with_only_secure_aggregation',
  lambda build: build(
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
  ),
  refused(
    TypeError,
    "element_spec['y'] is float32",
    'Processes here train classifiers.',
  ),
)
