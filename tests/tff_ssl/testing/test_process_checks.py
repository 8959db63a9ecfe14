"""The checks have teeth: each of them catches a process that is broken."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import algorithms, testing
from tff_ssl.algorithms import fed_avg
from tff_ssl.templates import composition, distributors
from tff_ssl.testing import tiny_models, tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')

SPEC = dataclasses.replace(
  algorithms.PROCESSES['fedavg'],
  settings=('client_weighting', 'batch_size', 'local_epochs'),
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


def problem(builder=None, **arguments):
  return testing.TinyProblem(SPEC, builder=builder, arguments=arguments)


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
  weights = composition.initial_weights_computation(model, seed)
  return fed_avg.build_fed_avg(
    model,
    seed=seed,
    model_distributor=distributors.build_weights_and_round(
      weights.type_signature.result, 0
    ),
    **arguments,
  )


def forgetful_set_model_weights(model, **arguments):
  process = fed_avg.build_fed_avg(model, **arguments)

  @tff.tensorflow.computation(
    process.set_model_weights.type_signature.parameter[0],
    process.set_model_weights.type_signature.parameter[1],
  )
  def set_model_weights(state, weights):
    del weights
    return state

  return replace(process, set_model_weights=set_model_weights)


def forgetful_set_hparams(model, **arguments):
  process = fed_avg.build_fed_avg(model, **arguments)

  @tff.tensorflow.computation(
    process.set_hparams.type_signature.parameter[0],
    process.set_hparams.type_signature.parameter[1],
  )
  def set_hparams(state, hparams):
    del hparams
    return state

  return replace(process, set_hparams=set_hparams)


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


def tolerant(model, *, batch_size, **arguments):
  """Accepts any batch size, and says nothing of its arguments.

  Args:
    model: A model.
  """
  if not isinstance(batch_size, int) or batch_size < 1:
    batch_size = 8
  return fed_avg.build_fed_avg(model, batch_size=batch_size, **arguments)


UNIFORM = {'client_weighting': 'uniform'}
SUM = tff.aggregators.as_weighted_aggregator(tff.aggregators.SumFactory())
COUNTING_MEAN = tff.aggregators.UnweightedMeanFactory()

# For each check: a process that breaks its promise, and words of the message.
BROKEN = {
  'model_weights_round_trip': (
    problem(forgetful_set_model_weights),
    'must return what set_model_weights set',
  ),
  'learns': (
    problem(client_optimizer=tff.learning.optimizers.build_sgdm(1e-6)),
    'accuracy must be at least 0.5',
  ),
  'deterministic': (
    problem(views=UnseededViews()),
    'one seed must be bit-equal',
  ),
  'seed_reaches_clients': (
    problem(same_seed_for_all_clients),
    'another seed must change',
  ),
  'resumes': (
    problem(build_with_hidden_state()),
    'keep all that matters in the state',
  ),
  'empty_clients_change_nothing': (
    problem(model_aggregator=COUNTING_MEAN, **UNIFORM),
    'empty clients must equal',
  ),
  'non_finite_clients_are_left_out': (
    problem(model_aggregator=COUNTING_MEAN, **UNIFORM),
    'that hold NaN or Inf must equal',
  ),
  'copies_count_as_one': (
    problem(model_aggregator=SUM, **UNIFORM),
    'Four copies of a client must',
  ),
  'zero_learning_rate_moves_nothing': (
    problem(client_optimizer=FrozenOptimizer()),
    'the deltas must be 0',
  ),
  'hparams_round_trip': (
    problem(forgetful_set_hparams),
    'must return what set_hparams set',
  ),
  'traces_once': (problem(retracing), 'the model was called [1-9]'),
  'refuses_bad_arguments': (problem(tolerant), 'batch_size=0.* is accepted'),
  'documented': (problem(tolerant), "must document .*'batch_size'"),
}


def test_augmentation_does_not_hide_broken_clients():
  check = testing.CHECKS['non_finite_clients_are_left_out']
  check(problem(views=RepairingViews()))


@pytest.mark.parametrize('check', BROKEN)
def test_check_catches(check):
  broken, message = BROKEN[check]
  with pytest.raises(AssertionError, match=message):
    testing.run_check(check, broken)


def test_result_other_than_a_process_is_caught():
  with pytest.raises(AssertionError, match='must return a LearningProcess'):
    testing.run_check('is_learning_process', problem(lambda model, **_: None))


def excepted(builder, check):
  spec = dataclasses.replace(SPEC, exceptions={check: 'for a reason'})
  return testing.TinyProblem(spec, builder=builder)


def test_exception_lets_a_failing_check_be():
  testing.run_check('documented', excepted(tolerant, 'documented'))


def test_exception_to_a_check_that_passes_fails():
  with pytest.raises(AssertionError, match='remove that'):
    testing.run_check(
      'documented', excepted(fed_avg.build_fed_avg, 'documented')
    )


def test_unknown_names_are_refused():
  with pytest.raises(ValueError, match="'colour'.*choose one of"):
    testing.run_check('colour', problem())
  with pytest.raises(ValueError, match=r"\['colour'\].*choose among"):
    testing.all_checks(excepted(fed_avg.build_fed_avg, 'colour'))


def test_all_checks_lists_every_failure(monkeypatch):
  def passes(problem):
    del problem

  def fails(problem):
    raise AssertionError(f'{problem.spec.name} breaks it')

  checks = {'one': passes, 'two': fails, 'three': fails}
  monkeypatch.setattr(testing.process_checks, 'CHECKS', checks)
  with pytest.raises(AssertionError) as error:
    testing.all_checks(problem())
  assert str(error.value) == 'two: fedavg breaks it\nthree: fedavg breaks it'


def test_stock_process_without_a_seed_is_not_deterministic():
  def build(model, *, data_spec, views, seed, **_):
    del model, views, seed

    def to_xy(batch):
      return collections.OrderedDict(x=batch['x'], y=batch['y'])

    def model_fn():
      keras = tf.keras.Sequential(
        [tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)]
      )
      keras.build([None, *tiny_models.INPUT_SHAPE])
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


def test_strings_in_states_are_compared_too():
  assertions = testing.assertions
  state = {'event': b'GaussianDpEvent', 'x': np.float32(1)}
  other = {**state, 'event': b'NoOpDpEvent'}
  assertions.require_finite(state, 'Finite.')
  assertions.require_equal(state, dict(state), 'Equal.')
  for require in (assertions.require_equal, assertions.require_close):
    with pytest.raises(AssertionError, match='Largest difference: inf'):
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
