"""Each check catches a process that is broken in what the check is about."""

import collections
import copy
import dataclasses
import functools
import itertools
from unittest import mock

import costs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl import algorithms, objectives, shared_settings, testing
from tff_ssl.algorithms import fed_avg
from tff_ssl.common import setting
from tff_ssl.templates import composition
from tff_ssl.testing import tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')

SPEC = dataclasses.replace(
  algorithms.PROCESSES['fedavg'],
  settings=(
    shared_settings.CLIENT_WEIGHTING,
    shared_settings.BATCH_SIZE,
    shared_settings.LOCAL_EPOCHS,
  ),
  # The builders below change the views that it is made of.
  objective=None,
)


class UnseededViews(tiny_problems.NoisyViews):
  """Noise from TensorFlow's global generator."""

  def weak(self, examples, seed):
    return self.plain(examples) + tf.random.normal(tf.shape(examples))


class RepairingViews(tiny_problems.NoisyViews):
  """Hides what is broken, so that broken clients take part."""

  def weak(self, examples, seed):
    return tf.where(tf.math.is_finite(examples), examples, 1.0)


class FrozenOptimizer(tff.learning.optimizers.Optimizer):
  """Ignores the learning rate that it has as a hyperparameter."""

  def initialize(self, specs):
    return collections.OrderedDict(learning_rate=0.1)

  def next(self, state, weights, gradients):
    moved = tf.nest.map_structure(lambda w, g: w - 0.1 * g, weights, gradients)
    return state, moved

  def get_hparams(self, state):
    return state

  def set_hparams(self, state, hparams):
    return hparams


def problem(builder=fed_avg.build_fed_avg, **arguments):
  return testing.TinyProblem(
    dataclasses.replace(SPEC, builder=builder), arguments=arguments
  )


def with_server(build):
  """Returns the builder, which then takes (and ignores) the server's data."""
  return lambda model, *, seed, server_data=None, **more: build(
    model, seed=seed, **more
  )


def replace(process, **functions):
  """Returns a learning process with some of its computations replaced."""
  return tff.learning.templates.LearningProcess(
    process.initialize,
    functions.get('next', process.next),
    process.get_model_weights,
    functions.get('set_model_weights', process.set_model_weights),
    get_hparams_fn=process.get_hparams,
    set_hparams_fn=functions.get('set_hparams', process.set_hparams),
  )


def same_seed_for_all_clients(model, *, seed, **arguments):
  """Another seed gives other weights, but never reaches the clients."""
  weights = composition.initial_weights(model, seed)
  same = composition.build_distributor(weights.type_signature.result, 0)
  wiring = tff_ssl.Wiring(model_distributor=same, seed=seed)
  return fed_avg.build_fed_avg(model, wiring=wiring, **arguments)


def forgetting(name):
  """Returns a builder of FedAvg one of whose setters sets nothing."""

  def build(model, **arguments):
    process = fed_avg.build_fed_avg(model, **arguments)
    state_type, given_type = getattr(process, name).type_signature.parameter

    @tff.tensorflow.computation(state_type, given_type)
    def keep(state, given):
      del given
      return state

    return replace(process, **{name: keep})

  return build


def build_with_hidden_state():
  """Returns a builder that remembers how many processes it has built."""
  builds = itertools.count()

  def build(model, *, views, **arguments):
    views = dataclasses.replace(views, mean=float(next(builds)))
    return fed_avg.build_fed_avg(model, views=views, **arguments)

  return build


@dataclasses.dataclass
class Retracing:
  """Builds its computation anew for each call."""

  build: object

  def __getattr__(self, name):
    return getattr(self.build(), name)


def retracing(model, **arguments):
  return Retracing(lambda: fed_avg.build_fed_avg(model, **arguments))


def tolerant(model, *, batch_size, client_training, **arguments):
  """Accepts any batch size, and says nothing of its arguments.

  Args:
    model: A model.
  """
  if not isinstance(batch_size, int) or batch_size < 1:
    batch_size = 8
  plan = dataclasses.replace(client_training, batch_size=batch_size)
  return fed_avg.build_fed_avg(model, client_training=plan, **arguments)


@costs.shared
def sound(seed=1, in_context=True):
  """FedAvg, built once for all that `tampering` makes of it."""
  sound_problem = problem()
  return sound_problem.build(
    seed=seed, data_spec=sound_problem.data_spec(in_context=in_context)
  )


def tampering(tamper=None, **functions):
  """Returns a builder of FedAvg with functions in place of computations.

  Args:
    tamper: Computes a round in place of `next`, which is its first argument.
    **functions: What stands in the place of other computations.
  """

  def build(model, *, seed, data_spec, **_):
    del model
    process = sound(seed, data_spec.in_context)
    names = ('initialize', 'next', 'get_model_weights', 'set_model_weights')
    parts = {
      name: getattr(process, name)
      for name in (*names, 'get_hparams', 'set_hparams')
    }
    if tamper is not None:
      parts['next'] = functools.partial(tamper, process.next)
    # `isinstance` takes it for a learning process.
    return mock.NonCallableMock(
      spec=tff.learning.templates.LearningProcess, **{**parts, **functions}
    )

  return build


def moved(output, step):
  """Returns the output with all weights of the model moved by a step."""
  state = output.state
  weights = tf.nest.map_structure(
    lambda weight: weight + np.float32(step), state.global_model_weights
  )
  return output._replace(state=state._replace(global_model_weights=weights))


def with_client_metrics(output, **metrics):
  metrics = {**output.metrics['client_work'], **metrics}
  return output._replace(metrics={'client_work': metrics})


def changing(change):
  """Returns what computes a round and then changes its output."""
  return lambda next_fn, *arguments: change(next_fn(*arguments))


def images_of(client):
  """Returns a client's images, [n, 8, 8, 1]."""
  batches = client['examples'] if isinstance(client, dict) else client
  images = [batch['x'] for batch in batches.as_numpy_iterator()]
  return np.concatenate([np.zeros((0, 8, 8, 1), np.float32), *images])


without_train_metrics = changing(
  lambda output: output._replace(metrics={'client_work': {}})
)
with_empty_train_metrics = changing(
  lambda output: with_client_metrics(output, train={})
)
without_counts = changing(
  lambda output: with_client_metrics(output, clients={})
)
is_never_finite = changing(lambda output: moved(output, float('nan')))


def every_round_is_the_first(next_fn, state, clients):
  first = {**state.distributor, 'round': np.int32(0)}
  return next_fn(
    state._replace(distributor=collections.OrderedDict(first)), clients
  )


def every_client_is_the_first(next_fn, state, clients):
  context = problem().client(0)['context']
  return next_fn(
    state, [collections.OrderedDict(each, context=context) for each in clients]
  )


def moves_where(condition, step=float('nan')):
  """Moves the model where a condition holds of the images of all clients."""

  def tamper(next_fn, state, clients):
    output = next_fn(state, clients)
    holds = condition([images_of(client) for client in clients])
    return moved(output, step) if holds else output

  return tamper


def all_are_empty(images):
  return not any(map(len, images))


def a_pixel_is_not_finite(images):
  return not all(np.isfinite(each).all() for each in images)


def one_is_alone(images):
  return 1 in map(len, images)


def adds_left_out_clients_to_the_loss(next_fn, state, clients):
  output = next_fn(state, clients)
  work = output.metrics['client_work']
  loss = work['train']['loss'] + work['clients']['non_finite']
  return with_client_metrics(output, train={**work['train'], 'loss': loss})


def moves_with_the_first_client(next_fn, state, clients):
  step = 1e-3 * len(images_of(clients[0]))
  return moved(next_fn(state, clients), step)


def drops_the_remainder(next_fn, state, clients):
  size = tiny_problems.BATCH_SIZE
  return next_fn(
    state,
    [
      problem().client(index, len(images_of(client)) // size * size)
      for index, client in enumerate(clients)
    ],
  )


def loses_the_loss_of_one_example(next_fn, state, clients):
  output = next_fn(state, clients)
  if len(clients) > 1:
    return output
  return with_client_metrics(output, train={'loss': np.float32(np.nan)})


def takes_nobody(next_fn, state, clients):
  empty = [problem().client(0, 0, in_context=False) for _ in clients]
  return next_fn(state, empty)


def with_metric_of_the_mean(output):
  """Reports what the mean would, which `sound` does not have."""
  return with_client_metrics(output, zeroed_count=0)


def stands_still(next_fn, state, clients):
  return with_metric_of_the_mean(next_fn(state, clients))._replace(state=state)


# Does not move any statistics, of which `sound` has none.
only_trains = changing(with_metric_of_the_mean)


def without_server_rate(state):
  del state
  return {'client_work': {'learning_rate': 0.1}, 'finalizer': {}}


def starts_trained():
  state = sound().initialize()
  for round_num in range(15):
    state = sound().next(state, problem().clients(round_num)).state
  return state


class SampleVariance(objectives.Supervised):
  """Divides by n - 1: one example has no finite loss."""

  def __call__(self, predict, batch, anchors, seed):
    loss, metrics = super().__call__(predict, batch, anchors, seed)
    size = tf.cast(tf.shape(batch['y'])[0], tf.float32)
    return loss * size / (size - 1), metrics


def in_tff(round_of):
  """Returns a builder of FedAvg whose rounds a TFF function computes."""

  def build(model, **_):
    del model
    process = sound()

    @tff.federated_computation(*process.next.type_signature.parameter)
    def next_fn(state, clients):
      output = process.next(state, clients)
      return tff.learning.templates.LearningProcessOutput(
        *round_of(output.state, output.metrics, clients)
      )

    return replace(process, next=next_fn)

  return build


def draws_at_the_server(state, metrics, clients):
  """Moves the model by noise from TensorFlow's global generator."""
  del clients

  @tff.tensorflow.computation(state.type_signature.member)
  def add_noise(state):
    weights = tf.nest.map_structure(
      lambda weight: weight + tf.random.normal(weight.shape),
      state.global_model_weights,
    )
    return state._replace(global_model_weights=weights)

  return tff.federated_map(add_noise, state), metrics


def loses_train_metrics(state, metrics, clients):
  del clients
  counts = tff.federated_map(
    tff.tensorflow.computation(
      lambda metrics: metrics['client_work']['clients'],
      metrics.type_signature.member,
    ),
    metrics,
  )
  return state, counts


def ones_of(clients):
  """Returns a one for each client."""

  @tff.tensorflow.computation(clients.type_signature.member)
  def one(client):
    del client
    return tf.constant(1)

  return tff.federated_map(one, clients)


def with_count(metrics, count):
  return tff.federated_zip(
    collections.OrderedDict(metrics=metrics, count=count)
  )


def sums_securely(state, metrics, clients):
  count = tff.federated_secure_sum_bitwidth(ones_of(clients), 4)
  return state, with_count(metrics, count)


def forgets_in_merge(state, metrics, clients):
  """Counts clients; of two partial counts only the first is kept."""

  @tff.tensorflow.computation(np.int32, np.int32)
  def add(total, value):
    return total + value

  @tff.tensorflow.computation(np.int32, np.int32)
  def first(total, other):
    del other
    return total

  @tff.tensorflow.computation(np.int32)
  def report(total):
    return total

  count = tff.federated_aggregate(ones_of(clients), 0, add, first, report)
  return state, with_count(metrics, count)


def selects(state, metrics, clients):
  """Sends by `federated_select`, of which neither form knows anything."""
  del clients

  @tff.tensorflow.computation
  def keys():
    return tf.constant([0])

  @tff.tensorflow.computation(np.int32, np.int32)
  def pick(value, key):
    return value + key

  @tff.tensorflow.computation(tff.SequenceType(np.int32))
  def add(picked):
    return picked.reduce(0, lambda total, value: total + value)

  picked = tff.federated_select(
    tff.federated_eval(keys, tff.CLIENTS),
    tff.federated_value(1, tff.SERVER),
    tff.federated_value(7, tff.SERVER),
    pick,
  )
  count = tff.federated_sum(tff.federated_map(add, picked))
  return state, with_count(metrics, count)


def accepts_all(model, **arguments):
  del model, arguments


def accepts_nothing(error):
  def build(model, *, batch_size, **arguments):
    raise error

  return build


def lacks_an_aggregator(
  model,
  *,
  data_spec,
  views,
  client_optimizer,
  seed,
  client_weighting,
  batch_size,
  local_epochs,
):
  raise AssertionError('Python refuses the call.')


def weighs_as_it_likes(model, *, client_weighting='uniform', **arguments):
  """Knows no other weights than uniform ones, and does not say so."""
  del client_weighting
  return fed_avg.build_fed_avg(model, client_weighting='uniform', **arguments)


def needs_context(model, *, data_spec, **arguments):
  if not data_spec.in_context:
    raise ValueError('data_spec must have a context.')
  return fed_avg.build_fed_avg(model, data_spec=data_spec, **arguments)


def uncited(model):
  """Says what its arguments are, but not where the method comes from.

  Args:
    model: A model.
  """


def other(spec, builder):
  return testing.TinyProblem(dataclasses.replace(spec, builder=builder))


def tampered(tamper=None, **functions):
  return problem(tampering(tamper, **functions))


UNIFORM = {'client_weighting': 'uniform'}
SUM = tff.aggregators.as_weighted_aggregator(tff.aggregators.SumFactory())
COUNTING_MEAN = tff.aggregators.UnweightedMeanFactory()
NOISY_SERVER = problem(in_tff(draws_at_the_server))
SELECTING = problem(in_tff(selects))
# A setting whose record excludes nothing.
COLOUR = setting.Setting('colour', str, 'Any text.')
OF_SETS = dataclasses.replace(SPEC, needs=algorithms.Needs(labels_at='sets'))

# For each promise of each check: a process that breaks it, and words of the
# message. `test_contract.py` shows that FedAvg itself keeps them all.
BROKEN = {
  'is_learning_process': [
    (problem(accepts_all), 'must return a LearningProcess'),
    (tampered(without_train_metrics), 'reads the metrics'),
    (tampered(with_empty_train_metrics), 'must hold some metric'),
  ],
  'model_weights_round_trip': [
    (
      problem(forgetting('set_model_weights')),
      'must return what set_model_weights set',
    )
  ],
  'learns': [
    (
      problem(client_optimizer=tff.learning.optimizers.build_sgdm(1e-6)),
      'accuracy must be at least 0.5',
    ),
    (tampered(initialize=starts_trained), 'must start at chance'),
  ],
  'map_reduce_form_equals_next': [
    (problem(in_tff(forgets_in_merge)), 'The MapReduceForm, executed, must'),
    (SELECTING, 'stops with ValueError: .* federated_select'),
    (
      problem(in_tff(sums_securely)),
      'give it a process without secure sums',
    ),
  ],
  'distribute_aggregate_form_equals_next': [
    (NOISY_SERVER, 'The DistributeAggregateForm, executed, must'),
    (SELECTING, 'stops with ValueError: Comp contains a placement'),
  ],
  'deterministic': [
    (problem(views=UnseededViews()), 'one seed must be bit-equal'),
    (
      problem(lambda model, **_: sound()),
      'Another seed must give another model',
    ),
  ],
  'seed_reaches_clients': [
    (problem(same_seed_for_all_clients), 'another seed must change'),
    (tampered(every_round_is_the_first), 'another round must change'),
    (tampered(every_client_is_the_first), 'another client must change'),
  ],
  'resumes': [
    (problem(build_with_hidden_state()), 'keep all that matters in the state')
  ],
  'empty_clients_change_nothing': [
    (
      problem(model_aggregator=COUNTING_MEAN, **UNIFORM),
      'empty clients must equal',
    ),
    (tampered(without_counts), 'clients/empty must be 2, but is None'),
    (
      tampered(moves_where(all_are_empty)),
      'empty clients must leave the state finite',
    ),
    (
      tampered(moves_where(all_are_empty, 0.1)),
      'empty clients must not move the model',
    ),
  ],
  'non_finite_clients_are_left_out': [
    (
      tampered(moves_where(a_pixel_is_not_finite)),
      'NaN or Inf must leave the state finite',
    ),
    (
      problem(model_aggregator=COUNTING_MEAN, **UNIFORM),
      'that hold NaN or Inf must equal',
    ),
    (tampered(without_counts), 'clients/non_finite must be 2, but is None'),
    (tampered(adds_left_out_clients_to_the_loss), 'must leave the metrics'),
  ],
  'client_order_does_not_matter': [
    (
      tampered(moves_with_the_first_client),
      'The order of the clients must not matter',
    )
  ],
  'copies_count_as_one': [
    (problem(model_aggregator=SUM, **UNIFORM), 'Four copies of a client must')
  ],
  'zero_learning_rate_moves_nothing': [
    (problem(client_optimizer=FrozenOptimizer()), 'the deltas must be 0'),
    (
      problem(with_server(tampering(get_hparams=without_server_rate))),
      'must have the hyperparameter finalizer/learning_rate',
    ),
  ],
  'hparams_round_trip': [
    (problem(forgetting('set_hparams')), 'must return what set_hparams set'),
    (tampered(get_hparams=lambda state: {}), 'must return some parameter'),
  ],
  'any_minibatch_remainder': [
    (
      tampered(moves_where(one_is_alone)),
      r'Clients of \(1, 7, 8, 9, 16, 17\) examples must leave',
    ),
    (
      problem(client_objective=SampleVariance(tiny_problems.NoisyViews())),
      'clients/non_finite must be 0, but is 3',
    ),
    (
      tampered(drops_the_remainder),
      'clients/participating must be 6, but is 4',
    ),
    (tampered(loses_the_loss_of_one_example), 'must give a finite loss'),
  ],
  'traces_once': [
    (problem(retracing), 'the model was called [1-9]'),
    (problem(lambda model, **_: sound()), 'must call its model'),
  ],
  'norms_and_aggregators_compose': [
    (tampered(is_never_finite), 'guarded mean must leave the state finite'),
    (tampered(), 'must report zeroed_count'),
    (tampered(stands_still), 'must move the model'),
    (tampered(only_trains), 'must move the moving statistics'),
  ],
  'refuses_meaningless_aggregators': [
    (problem(weighs_as_it_likes), 'model_aggregator=.* is accepted'),
    (
      problem(accepts_nothing(ValueError('No.'))),
      r"must say \['model_aggregator'\], but is: No",
    ),
    (problem(lacks_an_aggregator), 'is no argument of the builder'),
  ],
  'refuses_bad_arguments': [
    (problem(tolerant), 'batch_size=0.* is accepted'),
    (
      problem(accepts_nothing(ValueError('batch_size must be above 0.'))),
      r"The error for batch_size=2.5 must say \['2.5'\], but is: batch_size",
    ),
    (
      problem(accepts_nothing(KeyError('batch_size'))),
      'batch_size=0 must raise a ValueError or TypeError',
    ),
    (problem(accepts_all), '(?s)seed=-1 must be .*data_spec=.* is accepted'),
    (
      problem(with_server(accepts_all)),
      '(?s)server_data=None must be .*no server_data must be',
    ),
    (
      other(dataclasses.replace(SPEC, settings=(COLOUR,)), accepts_all),
      r"Any value passes for the settings \['colour'\]",
    ),
  ],
  'documented': [
    (problem(tolerant), "must document .*'batch_size'"),
    (problem(uncited), 'uncited or its module must cite the paper'),
    (
      other(dataclasses.replace(SPEC, source=''), fed_avg.build_fed_avg),
      'the spec must name its source',
    ),
  ],
  'takes_plain_data': [
    (problem(needs_context), 'stops with ValueError: data_spec must have'),
    (
      tampered(is_never_finite),
      'plain client data must leave the state finite',
    ),
    (tampered(takes_nobody), 'clients/participating must be 4, but is 0'),
    (
      tampered(moves_with_the_first_client),
      'The order of clients with plain data must not matter',
    ),
    (
      other(OF_SETS, accepts_all),
      'data_spec=.* must be refused before',
    ),
    (
      other(OF_SETS, accepts_nothing(ValueError('No.'))),
      r"must say \['priors_shape'\], but is: No",
    ),
  ],
  'runs_under_train_model': [
    (NOISY_SERVER, 'train_model must end in the state'),
    (
      problem(in_tff(loses_train_metrics)),
      'stops with KeyError: .*a `train` field',
    ),
  ],
}


@pytest.mark.dear
def test_augmentation_does_not_hide_broken_clients():
  check = testing.CHECKS['non_finite_clients_are_left_out']
  check(problem(views=RepairingViews()))


@pytest.mark.parametrize(
  ('check', 'broken', 'message'),
  [
    case
    for check, cases in BROKEN.items()
    for case in costs.rest_in(
      'contract',
      [
        pytest.param(check, *case, id=f'{check}-{index}')
        for index, case in enumerate(cases)
      ],
      dear=True,
    )
  ],
)
def test_check_catches(check, broken, message):
  with pytest.raises(AssertionError, match=message):
    testing.run_check(check, broken)


def test_every_check_is_shown_to_catch_a_broken_process():
  assert list(BROKEN) == list(testing.CHECKS)
  assert all(BROKEN.values())


def excepted(builder, check):
  return other(
    dataclasses.replace(SPEC, exceptions={check: 'for a reason'}), builder
  )


def test_an_exception_lets_a_failing_check_be_and_no_other():
  testing.run_check('documented', excepted(tolerant, 'documented'))
  passing = excepted(fed_avg.build_fed_avg, 'documented')
  with pytest.raises(AssertionError, match='remove that'):
    testing.run_check('documented', passing)


def test_check_that_stops_with_an_error_has_failed():
  broken = problem(accepts_nothing(OSError('No disk.')))
  with pytest.raises(AssertionError, match='stops with OSError: No disk'):
    testing.run_check('learns', broken)
  # An error of another kind is not what an exception in a spec is for.
  allowed = excepted(broken.spec.builder, 'learns')
  with pytest.raises(OSError, match='No disk'):
    testing.run_check('learns', allowed)


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match="'colour'.*choose one of"):
    testing.run_check('colour', problem())
  with pytest.raises(ValueError, match=r"\['colour'\].*choose among"):
    testing.check_exceptions(excepted(fed_avg.build_fed_avg, 'colour').spec)


def test_a_check_that_stops_has_failed(monkeypatch):
  def stops(problem):
    raise KeyError(problem.spec.name)

  monkeypatch.setattr(testing, 'CHECKS', {'stops': stops})
  with pytest.raises(AssertionError, match="stops with KeyError: 'fedavg'"):
    testing.run_check('stops', problem())


@pytest.mark.contract
def test_stock_process_without_a_seed_is_not_deterministic():
  def build(model, *, data_spec, views, seed, **_):
    del model, views, seed

    def to_xy(batch):
      return collections.OrderedDict(x=batch['x'], y=batch['y'])

    def model_fn():
      keras = tf.keras.Sequential(
        [tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)]
      )
      keras.build([None, *tiny_problems.INPUT_SHAPE])
      spec = data_spec.element_spec
      return tff.learning.models.from_keras_model(
        keras,
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        collections.OrderedDict(x=spec['x'], y=spec['y']),
      )

    process = tff.learning.algorithms.build_weighted_fed_avg(
      model_fn, tff.learning.optimizers.build_sgdm(0.1)
    )

    @tff.tensorflow.computation(data_spec.type)
    def read(data):
      examples = data['examples'].unbatch().shuffle(100).batch(8)
      return examples.map(to_xy)

    @tff.federated_computation(
      process.next.type_signature.parameter[0],
      tff.FederatedType(data_spec.type, tff.CLIENTS),
    )
    def next_fn(state, data):
      return process.next(state, tff.federated_map(read, data))

    return replace(process, next=next_fn)

  stock = problem(build)
  testing.run_check('is_learning_process', stock)
  with pytest.raises(AssertionError, match='one seed must be bit-equal'):
    testing.run_check('deterministic', stock)


STATE = {'event': b'GaussianDpEvent', 'x': np.float32(1)}


@pytest.mark.parametrize(
  'state, other',
  [
    # Strings are compared, too.
    (STATE, {**STATE, 'event': b'NoOpDpEvent'}),
    # NumPy alone finds no difference between 1 and three ones.
    (np.ones(()), np.ones(3)),
    (np.ones(()), [np.ones(()), np.ones(())]),
  ],
)
def test_structures_of_other_leaves_are_not_equal(state, other):
  assertions = testing.assertions
  assertions.require_finite(state, 'Finite.')
  assertions.require_equal(state, copy.copy(state), 'Equal.')
  for require in (assertions.require_equal, assertions.require_close):
    with pytest.raises(AssertionError, match='Equal. Largest difference: inf'):
      require(state, other, 'Equal.')


def test_bit_equality_is_not_closeness():
  one = {'a': np.float32([1.0, np.nan]), 'b': ()}
  two = {'a': np.nextafter(one['a'], np.float32(2)), 'b': ()}
  assertions = testing.assertions
  assert assertions.is_equal(one, one)
  assert not assertions.is_equal(one, two)
  assert not assertions.is_equal(one, {'a': one['a'].astype(np.float64)})
  assertions.require_close(one, two, 'Close.')
  for far in ([1.0, 0.0], [1.1, np.nan]):
    with pytest.raises(AssertionError, match='Close.'):
      assertions.require_close(
        {'a': np.float32(far)}, {'a': one['a']}, 'Close.'
      )
