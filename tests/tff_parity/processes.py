"""Cases of TFF's tests of learning processes: their parts, state and forms."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.tff_parity import builders
from tests.tff_parity.cases import Group, refused
from tff_ssl.testing import assertions

GROUP = Group('Learning processes')
_FED_AVG = 'composers_test: VanillaFedAvgTest'
_WORK = 'model_delta_client_work_test'


@GROUP.case(f'{_FED_AVG}.test_loss_decreases')
def loss_decreases(build):
  """The loss decreases in each of five rounds on equal clients."""
  del build
  process = builders.process()
  data, state, losses = [builders.client(0)] * 3, None, []
  for _ in range(5):
    state, metrics = builders.train(process, data, rounds=1, state=state)
    losses.append(builders.train_loss(metrics))
  assert all(np.diff(losses) < 0), f'The loss must decrease: {losses}.'
  assert isinstance(state, tff.learning.templates.LearningAlgorithmState)
  parts = ['distributor', 'client_work', 'aggregator', 'finalizer']
  assert list(metrics) == parts, f'Metrics: {list(metrics)}.'


@GROUP.case(f'{_FED_AVG}.test_get_set_model_weights_roundtrip')
def weights_round_trip(build):
  """Weights that are read and put back change nothing."""
  del build
  process = builders.process()
  state = builders.train(process, rounds=1).state
  again = process.set_model_weights(state, process.get_model_weights(state))
  assertions.require_equal(again, state, 'The state must be as before.')


@GROUP.case(f'{_FED_AVG}.test_get_set_model_weights_keras_model')
def weights_of_a_keras_model(build):
  """Weights of a trained Keras model go in; trained ones go back to it."""
  del build
  process, keras_model = builders.process(), builders.keras_model()
  keras_model.set_weights(
    [np.full_like(each, 0.1) for each in keras_model.get_weights()]
  )
  pretrained = tff.learning.models.ModelWeights.from_model(keras_model)
  state = process.set_model_weights(process.initialize(), pretrained)
  assertions.require_equal(
    process.get_model_weights(state).trainable,
    keras_model.get_weights(),
    'The state must hold the weights of the Keras model.',
  )
  state = builders.train(process, state=state).state
  weights = process.get_model_weights(state)
  weights.assign_weights_to(keras_model)
  assertions.require_equal(
    keras_model.get_weights(),
    weights.trainable,
    'The Keras model must hold the trained weights.',
  )
  assert np.ptp(keras_model.get_weights()[1]) > 0, 'Training moves weights.'


@GROUP.case(f'{_FED_AVG}.test_get_hparams_returns_expected_result')
def hparams_are_read(build):
  """The hyperparameters are those of both optimizers."""
  del build
  found, expected = (
    process.get_hparams(process.initialize())
    for process in (builders.process(), builders.stock_process())
  )
  assert found == expected, f'{found} must be {expected}, as with TFF.'


@GROUP.case(f'{_FED_AVG}.test_set_hparams_returns_expected_result')
def hparams_are_set(build):
  """Hyperparameters can be set in the state."""
  process = builders.process()
  state = process.initialize()
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = np.float32(0.05)
  hparams['finalizer']['learning_rate'] = np.float32(0.5)
  state = process.set_hparams(state, hparams)
  weights = process.get_model_weights(
    builders.train(process, state=state).state
  )
  built_so = build(rate=0.05, server_optimizer_fn=builders.sgd(0.5))
  builders.require_same(built_so, list(weights.trainable), exactly=True)


GROUP.row(
  'what_is_no_learning_rate',
  'A number in the place of an optimizer is refused.',
  f'{_FED_AVG}.test_wrong_client_learning_rate_raises',
  lambda build: build(client_optimizer_fn=1),
  refused(TypeError, 'client_optimizer_fn gives a int'),
)
GROUP.row(
  'what_is_no_factory',
  'What is no aggregation factory is refused.',
  'composers_test: test_not_aggregator_type_raises',
  lambda build: build(model_aggregator=builders.process()),
  refused(TypeError, 'model_aggregator is a ComposedProcess: give a factory'),
)


@GROUP.case(
  'learning_process_test: '
  'LearningProcessTest.test_learning_process_can_be_reconstructed'
)
def rebuilt_of_its_parts(build):
  """A learning process can be made anew of a process's computations."""
  del build
  process = builders.process()
  again = tff.learning.templates.LearningProcess(
    process.initialize,
    process.next,
    process.get_model_weights,
    process.set_model_weights,
    get_hparams_fn=process.get_hparams,
    set_hparams_fn=process.set_hparams,
  )
  states = (builders.train(each).state for each in (again, process))
  assertions.require_equal(*states, 'It must be the same process.')


GROUP.row(
  'functional_as_model_fn',
  'A functional model trains as the same model of a `model_fn`.',
  f'{_WORK}: test_functional_model_matches_model_fn',
  lambda build: builders.require_same(
    build(builders.functional_model()), builders.mean_weights()
  ),
)


@GROUP.case(f'{_WORK}: test_non_finite_aggregation')
def weights_not_finite(build):
  """A client whose update is not finite does not count."""
  del build
  broken = tf.data.Dataset.from_tensors(
    collections.OrderedDict(
      x=np.full([20, builders.NUM_PIXELS], np.inf, np.float32),
      y=np.zeros([20, 1], np.int32),
    )
  )
  data = [*builders.clients(), broken]
  output = builders.train(builders.process(), data, rounds=1)
  weights = builders.process().get_model_weights(output.state).trainable
  without = builders.process(), builders.clients()
  for process, clients in (without, (builders.stock_process(), data)):
    builders.require_same(process, list(weights), clients, rounds=1)
  counts = output.metrics['client_work']['clients']
  assert counts['non_finite'] == 1, f'Counts are {counts}.'
  return 'Weights as of TFF to 1e-6; and the client is counted.'


@GROUP.case(f'{_WORK}: test_custom_metrics_aggregator')
def metrics_aggregator(build):
  """The aggregation of metrics can be chosen."""
  default, plain, secure = (
    builders.train(process).metrics
    for process in (
      builders.process(),
      build(metrics_aggregator=tff.learning.metrics.sum_then_finalize),
      build(metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize),
    )
  )
  assertions.require_equal(plain, default, 'It must be the default.')
  change = abs(builders.train_loss(secure) - builders.train_loss(plain))
  assert change < 1e-3, f'The loss changes by {change}.'


GROUP.row(
  'what_is_no_metrics_aggregator',
  'What is no aggregation of metrics is refused.',
  'fed_eval_test: test_invalid_metrics_aggregation_process_raises',
  lambda build: build(metrics_aggregator=1),
  refused(TypeError, 'metrics_aggregator must be a function'),
)


@GROUP.case('distributors_test: test_broadcast_struct')
def stock_distributor(build):
  """TFF's broadcast of weights can be given as the distributor."""
  weights_type = builders.process().get_model_weights.type_signature.result
  sender = tff.learning.templates.build_broadcast_process(weights_type)
  built = build(model_distributor=sender)
  builders.require_same(built, builders.mean_weights(), exactly=True)
  return 'Round and seed go beside the weights.'


GROUP.row(
  'distributor_of_other_weights',
  'A distributor of weights of another type is refused.',
  'distributors_test: test_incorrect_value_type_raises',
  lambda build: build(
    model_distributor=tff.learning.templates.build_broadcast_process(
      tff.types.to_type([(np.float32, [3])])
    )
  ),
  refused(TypeError, 'model_distributor sends'),
)


@GROUP.case('fed_eval_test: test_fed_eval_process_execution')
def evaluation(build):
  """TFF's evaluation takes the trained weights."""
  del build
  ours, stock = (
    builders.evaluate(process.get_model_weights(builders.train(process).state))
    for process in (builders.process(), builders.stock_process())
  )
  assertions.require_close(ours, stock, 'Metrics must be those with TFF.')
  return 'Loss and accuracy as of TFF to 1e-6.'


def _require_round_trip(to_form, from_form):
  """Requires that a round is the same after a way through a form."""
  process = builders.process()
  rebuilt = from_form(to_form(process.next))
  state, clients = process.initialize(), list(builders.clients())
  rounds = (next_fn(state, clients) for next_fn in (rebuilt, process.next))
  assertions.require_close(*rounds, 'The form must compute the same round.')


_forms = tff.backends.mapreduce
GROUP.row(
  'map_reduce_form',
  'A round goes to a MapReduceForm and back, and is the same.',
  'form_utils_test: test_mnist_training_round_trip',
  lambda _: _require_round_trip(
    _forms.get_map_reduce_form_for_computation,
    _forms.get_computation_for_map_reduce_form,
  ),
)
GROUP.row(
  'distribute_aggregate_form',
  'The same with a DistributeAggregateForm.',
  'form_utils_test: test_mnist_training_round_trip',
  lambda _: _require_round_trip(
    _forms.get_distribute_aggregate_form_for_computation,
    _forms.get_computation_for_distribute_aggregate_form,
  ),
)
