"""Cases of TFF's tests of learning processes: their parts, state and forms."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.testing import assertions
from tff_ssl.testing.tff_cases import builders
from tff_ssl.testing.tff_cases.cases import REFUSED, Case, Stop


def loss_decreases(build):
  """The loss decreases in each of five rounds on equal clients."""
  del build
  process = builders.process()
  data, state, losses = [builders.client(0)] * 3, None, []
  for _ in range(5):
    state, metrics = builders.train(process, data, rounds=1, state=state)
    losses.append(float(metrics['client_work']['train']['loss']))
  assertions.require(
    all(np.diff(losses) < 0), f'The loss must decrease: {losses}.'
  )
  assertions.require(
    isinstance(state, tff.learning.templates.LearningAlgorithmState),
    f'The state is a {type(state).__name__}.',
  )
  parts = ['distributor', 'client_work', 'aggregator', 'finalizer']
  assertions.require(list(metrics) == parts, f'Metrics: {list(metrics)}.')


def weights_round_trip(build):
  """Weights that are read and put back change nothing."""
  del build
  process = builders.process()
  state = builders.train(process, rounds=1).state
  assertions.require_equal(
    process.set_model_weights(state, process.get_model_weights(state)),
    state,
    'The state must be as before.',
  )


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
  weights = process.get_model_weights(
    builders.train(process, state=state).state
  )
  weights.assign_weights_to(keras_model)
  assertions.require_equal(
    keras_model.get_weights(),
    weights.trainable,
    'The Keras model must hold the trained weights.',
  )
  assertions.require(
    np.ptp(keras_model.get_weights()[1]) > 0, 'Training must move weights.'
  )


def hparams_are_read(build):
  """The hyperparameters are those of both optimizers."""
  del build
  found, expected = (
    process.get_hparams(process.initialize())
    for process in (builders.process(), builders.stock_process())
  )
  assertions.require(
    found == expected, f'Hyperparameters are {found}, with TFF {expected}.'
  )


def hparams_are_set(build):
  """Hyperparameters can be set in the state."""
  process = builders.process()
  state = process.initialize()
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = np.float32(0.05)
  hparams['finalizer']['learning_rate'] = np.float32(0.5)
  changed = process.set_hparams(state, hparams)
  other = build(rate=0.05, server_optimizer_fn=builders.sgd(0.5))
  trained = builders.train(process, state=changed).state
  assertions.require_equal(
    list(process.get_model_weights(trained).trainable),
    builders.weights_after(other),
    'Weights must be those of a process that is built with these rates.',
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
  assertions.require_equal(
    builders.train(again).state,
    builders.train(process).state,
    'It must be the same process.',
  )


def what_is_no_factory(build):
  """What is no aggregation factory is refused."""
  build(model_aggregator=builders.process())


def what_is_no_learning_rate(build):
  """A number in the place of an optimizer is refused."""
  build(client_optimizer_fn=1)


def functional_as_model_fn(build):
  """A functional model trains as the same model of a `model_fn`."""
  assertions.require_close(
    builders.weights_after(build(builders.functional_model())),
    builders.mean_weights(),
    'Weights must be the same.',
  )


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
  for expected in (
    builders.weights_after(builders.process(), rounds=1),
    builders.weights_after(builders.stock_process(), data, rounds=1),
  ):
    assertions.require_close(
      list(weights), expected, 'Weights must be those without the client.'
    )
  counts = output.metrics['client_work']['clients']
  assertions.require(counts['non_finite'] == 1, f'Counts are {counts}.')
  return 'Weights as of TFF to 1e-6; and the client is counted.'


def metrics_aggregator(build):
  """The aggregation of metrics can be chosen."""
  assertions.require_equal(
    builders.train(
      build(metrics_aggregator=tff.learning.metrics.sum_then_finalize)
    ).metrics,
    builders.train(builders.process()).metrics,
    'sum_then_finalize must be the default.',
  )
  secure = build(
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize
  )
  metrics = builders.train(secure).metrics['client_work']['train']
  plain = builders.train(builders.process()).metrics['client_work']['train']
  change = abs(float(metrics['loss']) - float(plain['loss']))
  assertions.require(change < 1e-3, f'The loss changes by {change}.')


def what_is_no_metrics_aggregator(build):
  """What is no aggregation of metrics is refused."""
  build(metrics_aggregator=1)


def stock_distributor(build):
  """TFF's broadcast of weights can be given as the distributor."""
  weights_type = builders.process().get_model_weights.type_signature.result
  built = build(
    model_distributor=tff.learning.templates.build_broadcast_process(
      weights_type
    )
  )
  assertions.require_equal(
    builders.weights_after(built),
    builders.mean_weights(),
    'Weights must be those of the default.',
  )
  return 'Round and seed go beside the weights.'


def distributor_of_other_weights(build):
  """A distributor of weights of another type is refused."""
  build(
    model_distributor=tff.learning.templates.build_broadcast_process(
      tff.types.to_type([(np.float32, [3])])
    )
  )


def evaluation(build):
  """TFF's evaluation takes the trained weights."""
  del build
  evaluating = tff.learning.algorithms.build_fed_eval(builders.model_fn)
  results = []
  for process in (builders.process(), builders.stock_process()):
    weights = process.get_model_weights(builders.train(process).state)
    state = evaluating.set_model_weights(evaluating.initialize(), weights)
    output = evaluating.next(state, list(builders.clients()))
    results.append(
      output.metrics['client_work']['eval']['current_round_metrics']
    )
  assertions.require_close(*results, 'Metrics must be those with TFF.')
  return 'Loss and accuracy as of TFF to 1e-6.'


def map_reduce_form(build):
  """A round goes to a MapReduceForm and back, and is the same."""
  del build
  process, forms = builders.process(), tff.backends.mapreduce
  rebuilt = forms.get_computation_for_map_reduce_form(
    forms.get_map_reduce_form_for_computation(process.next)
  )
  _require_same_round(rebuilt, process)


def distribute_aggregate_form(build):
  """The same with a DistributeAggregateForm."""
  del build
  process, forms = builders.process(), tff.backends.mapreduce
  rebuilt = forms.get_computation_for_distribute_aggregate_form(
    forms.get_distribute_aggregate_form_for_computation(process.next)
  )
  _require_same_round(rebuilt, process)


def _require_same_round(next_fn, process):
  state, clients = process.initialize(), list(builders.clients())
  assertions.require_close(
    next_fn(state, clients),
    process.next(state, clients),
    'The form must compute the same round.',
  )


_FED_AVG = 'composers_test: VanillaFedAvgTest'
_WORK = 'model_delta_client_work_test'
CASES = (
  Case(loss_decreases, f'{_FED_AVG}.test_loss_decreases'),
  Case(weights_round_trip, f'{_FED_AVG}.test_get_set_model_weights_roundtrip'),
  Case(
    weights_of_a_keras_model,
    f'{_FED_AVG}.test_get_set_model_weights_keras_model',
  ),
  Case(
    hparams_are_read, f'{_FED_AVG}.test_get_hparams_returns_expected_result'
  ),
  Case(hparams_are_set, f'{_FED_AVG}.test_set_hparams_returns_expected_result'),
  Case(
    what_is_no_learning_rate,
    f'{_FED_AVG}.test_wrong_client_learning_rate_raises',
    REFUSED,
    Stop(TypeError, 'client_optimizer_fn gives a int'),
  ),
  Case(
    what_is_no_factory,
    'composers_test: test_not_aggregator_type_raises',
    REFUSED,
    Stop(TypeError, 'model_aggregator is a ComposedProcess: give a factory'),
  ),
  Case(
    rebuilt_of_its_parts,
    'learning_process_test: '
    'LearningProcessTest.test_learning_process_can_be_reconstructed',
  ),
  Case(
    functional_as_model_fn, f'{_WORK}: test_functional_model_matches_model_fn'
  ),
  Case(weights_not_finite, f'{_WORK}: test_non_finite_aggregation'),
  Case(metrics_aggregator, f'{_WORK}: test_custom_metrics_aggregator'),
  Case(
    what_is_no_metrics_aggregator,
    'fed_eval_test: test_invalid_metrics_aggregation_process_raises',
    REFUSED,
    Stop(TypeError, 'metrics_aggregator must be a function'),
  ),
  Case(stock_distributor, 'distributors_test: test_broadcast_struct'),
  Case(
    distributor_of_other_weights,
    'distributors_test: test_incorrect_value_type_raises',
    REFUSED,
    Stop(TypeError, 'model_distributor sends'),
  ),
  Case(evaluation, 'fed_eval_test: test_fed_eval_process_execution'),
  Case(map_reduce_form, 'form_utils_test: test_mnist_training_round_trip'),
  Case(
    distribute_aggregate_form, 'form_utils_test: test_mnist_training_round_trip'
  ),
)
