"""Cases of TFF's `fed_prox_test.py` and of its proximal client work."""

import functools

import numpy as np
import scipy.special
import tensorflow_federated as tff

from tests.tff_parity import builders
from tests.tff_parity.cases import TAKEN, Group, no_counterpart, refused
from tff_ssl.testing import assertions

GROUP = Group('FedProx')
_TEST = 'fed_prox_test: FedProxConstructionTest'
_STRENGTH = 1.0
_FED_PROX = {'proximal_strength': _STRENGTH}
_PASSES = 3

GROUP.row(
  'model_fn_is_called_few_times',
  'A build calls `model_fn`, which may be slow, at most three times.',
  f'{_TEST}.test_construction_calls_model_fn',
  lambda build: builders.require_few_calls(
    build, _FED_PROX, of_stock=_FED_PROX
  ),
)
GROUP.row(
  'loop_implementation',
  "The loop over a client's batches can be chosen.",
  f'{_TEST}.test_client_tf_dataset_reduce_fn',
  lambda build: build(
    **_FED_PROX,
    loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
  ),
  no_counterpart(
    TypeError,
    'build_fed_avg() got an unexpected keyword argument',
    'There is one loop.',
  ),
)


@GROUP.case(f'{_TEST}.test_build_functional_model_fed_prox')
def functional_model(build):
  """A functional model can be given."""
  build = functools.partial(
    build, **_FED_PROX, client_training=builders.plan(epochs=_PASSES)
  )
  builders.require_same(build(builders.functional_model()), build())


@GROUP.case(
  f'{_TEST}.test_build_weighted_fed_prox_called_by_unweighted_fed_prox'
)
def unweighted_is_uniform(build):
  """The unweighted builder is the weighted one with equal weights."""
  builders.require_same(
    build(**_FED_PROX, unweighted=True),
    builders.stock(**_FED_PROX, unweighted=True),
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


@GROUP.case(
  'proximal_client_work_test: test_delta_regularizer_yields_smaller_model_delta'
)
def the_term_pulls_back(build):
  """The proximal term keeps a client nearer to the global weights."""
  built = build(**_FED_PROX, client_training=builders.plan(epochs=_PASSES))
  found = builders.weights_after(built, [builders.client(0)], rounds=1)
  assertions.require_close(
    found, _descended(_STRENGTH), 'Weights must be those of NumPy.'
  )
  assert np.linalg.norm(found[0]) < np.linalg.norm(_descended(0.0)[0]), (
    'The term must make the change smaller.'
  )
  # TFF's own term has the other sign; where not, the remark is wrong.
  passes = builders.client(0).repeat(_PASSES)
  builders.require_same(
    builders.stock(**_FED_PROX), _descended(-_STRENGTH), [passes], rounds=1
  )
  return (
    'Weights as computed by NumPy to 1e-6. Those of TFF 0.87 are not: its term '
    'has the other sign, and pushes clients away.'
  )


GROUP.row(
  'instance_of_a_model',
  'A model in the place of a function that makes one is refused.',
  f'{_TEST}.test_raises_on_non_callable_model_fn',
  lambda build: build(builders.OwnModel(), **_FED_PROX),
  refused(TypeError, 'model is a OwnModel: give the function that makes it'),
)
GROUP.row(
  'negative_strength',
  'A negative strength is refused.',
  f'{_TEST}.test_raises_on_negative_proximal_strength',
  lambda build: build(proximal_strength=-1.0),
  refused(ValueError, 'proximal_strength must be a number >= 0, but is -1.0'),
)
GROUP.row(
  'no_strength',
  '`None` for the strength is refused.',
  'fed_prox: build_weighted_fed_prox',
  lambda build: build(proximal_strength=None),
  refused(ValueError, 'proximal_strength must be a number >= 0, but is None'),
)


@GROUP.case(f'{_TEST}.test_raises_on_invalid_distributor', TAKEN)
def distributor_of_another_class(build):
  """A distributor that is no `DistributionProcess` is refused."""
  weights_type = builders.process().get_model_weights.type_signature.result
  sender = tff.learning.templates.build_broadcast_process(weights_type)
  another = tff.templates.IterativeProcess(sender.initialize, sender.next)
  builders.require_same(
    build(**_FED_PROX, model_distributor=another),
    build(**_FED_PROX),
    exactly=True,
  )
  return 'What counts is what it sends: weights.'


GROUP.row(
  'secure_sums_only',
  'With secure aggregators, no sum of `next` is in the clear.',
  f'{_TEST}.test_weighted_fed_prox_with_only_secure_aggregation',
  lambda build: builders.require_secure_sums(
    build(**_FED_PROX, **builders.secure())
  ),
)
