"""Cases of TFF's `fed_prox_test.py` and of its proximal client work."""

import numpy as np
import scipy.special
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

_STRENGTH = 1.0
_PASSES = 3


def model_fn_is_called_few_times(build):
  """A build calls `model_fn`, which may be slow, at most three times."""
  calls = builders.count_calls(build, proximal_strength=_STRENGTH)
  assertions.require(calls <= 3, f'Calls of model_fn: {calls}.')
  of_stock = builders.count_calls(builders.stock, proximal_strength=_STRENGTH)
  return f'Calls here: {calls}; of TFF: {of_stock}.'


def loop_implementation(build):
  """The loop over a client's batches can be chosen."""
  build(
    proximal_strength=_STRENGTH,
    loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
  )


def functional_model(build):
  """A functional model can be given."""
  arguments = {
    'proximal_strength': _STRENGTH,
    'client_training': builders.plan(epochs=_PASSES),
  }
  assertions.require_close(
    builders.weights_after(build(builders.functional_model(), **arguments)),
    builders.weights_after(build(**arguments)),
    'Weights must be those with a model_fn.',
  )


def unweighted_is_uniform(build):
  """The unweighted builder is the weighted one with equal weights."""
  built, stock = (
    each(proximal_strength=_STRENGTH, unweighted=True)
    for each in (build, builders.stock)
  )
  assertions.require_close(
    builders.weights_after(built),
    builders.weights_after(stock),
    'Weights after one step of a client must be those of '
    'build_unweighted_fed_prox.',
  )
  return 'Weights of one step of a client as of TFF to 1e-6.'


def _descended(strength: float) -> list[np.ndarray]:
  """Returns FedProx of one client by NumPy: kernel and bias after a round."""
  data = builders.examples(0)
  inputs = np.hstack([np.float64(data['x']), np.ones([builders.BATCH_SIZE, 1])])
  targets = np.eye(builders.NUM_CLASSES)[data['y'][:, 0]]
  weights = np.zeros([builders.NUM_PIXELS + 1, builders.NUM_CLASSES])
  for _ in range(_PASSES):
    errors = scipy.special.softmax(inputs @ weights, axis=1) - targets
    gradient = inputs.T @ errors / builders.BATCH_SIZE
    # Training begins at zero.
    weights = weights - builders.RATE * (gradient + strength * weights)
  return [np.float32(weights[:-1]), np.float32(weights[-1])]


def the_term_pulls_back(build):
  """The proximal term keeps a client nearer to the global weights."""
  built = build(
    proximal_strength=_STRENGTH,
    client_training=builders.plan(epochs=_PASSES),
  )
  found = builders.weights_after(built, [builders.client(0)], rounds=1)
  expected, without = _descended(_STRENGTH), _descended(0.0)
  assertions.require_close(found, expected, 'Weights must be those of NumPy.')
  assertions.require(
    np.linalg.norm(found[0]) < np.linalg.norm(without[0]),
    'The term must make the change smaller.',
  )
  stock = builders.stock(proximal_strength=_STRENGTH)
  passes = builders.client(0).repeat(_PASSES)
  assertions.require_close(
    builders.weights_after(stock, [passes], rounds=1),
    _descended(-_STRENGTH),
    "TFF's own term has the other sign; correct the remark.",
  )
  return (
    'Weights as computed by NumPy to 1e-6. Those of TFF 0.87 are not: its term '
    'has the other sign, and pushes clients away.'
  )


def instance_of_a_model(build):
  """A model in the place of a function that makes one is refused."""
  build(builders.OwnModel(), proximal_strength=_STRENGTH)


def negative_strength(build):
  """A negative strength is refused."""
  build(proximal_strength=-1.0)


def no_strength(build):
  """`None` for the strength is refused."""
  build(proximal_strength=None)


def distributor_of_another_class(build):
  """A distributor that is no `DistributionProcess` is refused."""
  weights_type = builders.process().get_model_weights.type_signature.result
  sender = tff.learning.templates.build_broadcast_process(weights_type)
  built = build(
    proximal_strength=_STRENGTH,
    model_distributor=tff.templates.IterativeProcess(
      sender.initialize, sender.next
    ),
  )
  assertions.require_equal(
    builders.weights_after(built),
    builders.weights_after(build(proximal_strength=_STRENGTH)),
    'It must send the weights.',
  )
  return 'What counts is what it sends: weights.'


def secure_sums_only(build):
  """With secure aggregators, no sum of `next` is in the clear."""
  built = build(
    proximal_strength=_STRENGTH,
    model_aggregator=tff.learning.secure_aggregator(),
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
  )
  tff.test.assert_not_contains_unsecure_aggregation(built.next)


_TEST = 'fed_prox_test: FedProxConstructionTest'
CASES = (
  Case(
    model_fn_is_called_few_times, f'{_TEST}.test_construction_calls_model_fn'
  ),
  Case(
    loop_implementation,
    f'{_TEST}.test_client_tf_dataset_reduce_fn',
    NO_COUNTERPART,
    Stop(TypeError, 'build_fed_avg() got an unexpected keyword argument'),
    'There is one loop.',
  ),
  Case(functional_model, f'{_TEST}.test_build_functional_model_fed_prox'),
  Case(
    unweighted_is_uniform,
    f'{_TEST}.test_build_weighted_fed_prox_called_by_unweighted_fed_prox',
  ),
  Case(
    the_term_pulls_back,
    'proximal_client_work_test: '
    'test_delta_regularizer_yields_smaller_model_delta',
  ),
  Case(
    instance_of_a_model,
    f'{_TEST}.test_raises_on_non_callable_model_fn',
    REFUSED,
    Stop(TypeError, 'model is a OwnModel: give the function that makes it'),
  ),
  Case(
    negative_strength,
    f'{_TEST}.test_raises_on_negative_proximal_strength',
    REFUSED,
    Stop(ValueError, 'proximal_strength must be a number >= 0, but is -1.0'),
  ),
  Case(
    no_strength,
    'fed_prox: build_weighted_fed_prox',
    REFUSED,
    Stop(ValueError, 'proximal_strength must be a number >= 0, but is None'),
  ),
  Case(
    distributor_of_another_class,
    f'{_TEST}.test_raises_on_invalid_distributor',
    TAKEN,
  ),
  Case(
    secure_sums_only,
    f'{_TEST}.test_weighted_fed_prox_with_only_secure_aggregation',
  ),
)
