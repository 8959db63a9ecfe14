"""Cases of TFF's `training_program_logic_test.py`.

TFF's test gives `train_model` a process that does nothing. Here it trains.
"""

import asyncio
import collections
import functools
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.testing import assertions
from tff_ssl.testing.tff_cases import builders
from tff_ssl.testing.tff_cases.cases import Case

_NUM_CLIENTS = 4
_PER_ROUND = 2


@functools.cache
def _reading() -> tff.learning.templates.LearningProcess:
  """Returns the shared process over client keys, as `train_model` needs it."""
  data = builders.examples(0, _NUM_CLIENTS * builders.BATCH_SIZE)

  @tff.tensorflow.computation(np.int32)
  def reader(index):
    start = index * builders.BATCH_SIZE
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(
        (key, tf.constant(value)[start : start + builders.BATCH_SIZE])
        for key, value in data.items()
      )
    )

  return tff_ssl.compose_with_reader(builders.process(), reader)


def _source() -> tff.program.FederatedDataSource:
  return tff_ssl.ClientKeySource(num_clients=_NUM_CLIENTS, seed=1)


def _trained(rounds: int, state=None):
  """Returns the state after rounds without a program."""
  process, keys = _reading(), _source().iterator()
  state = process.initialize() if state is None else state
  for _ in range(rounds):
    state = process.next(state, keys.select(_PER_ROUND)).state
  return state


class _Awaitable(tff.framework.AsyncContext):
  """The present context, awaitable as `tff.program` wants it."""

  def __init__(self, context: tff.framework.SyncContext):
    self._context = context

  async def invoke(self, comp, arg):
    return await asyncio.to_thread(self._context.invoke, comp, arg)


def _run(folder: str, rounds: int, **arguments):
  """Runs `train_model`; returns what it released: states, and metrics."""
  states = tff.program.MemoryReleaseManager()
  metrics = tff.program.MemoryReleaseManager()
  stack = tff.framework.get_context_stack()
  context = tff.program.NativeFederatedContext(_Awaitable(stack.current))
  with stack.install(context):
    asyncio.run(
      tff.learning.programs.train_model(
        **{
          'train_process': _reading(),
          'train_data_source': _source(),
          'train_per_round_clients': _PER_ROUND,
          'train_total_rounds': rounds,
          'program_state_manager': tff.program.FileProgramStateManager(folder),
          'model_output_manager': states,
          'train_metrics_manager': metrics,
          'evaluation_manager': None,
          'evaluation_periodicity': 2,
          **arguments,
        }
      )
    )
  return states.values(), metrics.values()


def trains_without_evaluation(build):
  """Rounds run; states and metrics are saved and released."""
  del build
  rounds = 3
  with tempfile.TemporaryDirectory() as folder:
    states, metrics = _run(folder, rounds)
    versions = asyncio.run(
      tff.program.FileProgramStateManager(folder).get_versions()
    )
  assertions.require_equal(
    states[f'training_checkpoint_round_{rounds}'],
    _trained(rounds),
    'The last state must be that of calls of next.',
  )
  assertions.require(list(metrics) == [1, 2, 3], f'Metrics: {list(metrics)}.')
  assertions.require(versions[-1] == rounds, f'Versions saved: {versions}.')


def evaluates_on_time(build):
  """The weights are evaluated every few rounds and after the last."""
  del build
  evaluating = tff.learning.algorithms.build_fed_eval(builders.model_fn)
  given = {}

  async def start(round_num, timestamp, weights):
    del timestamp
    given[round_num] = await tff.program.materialize_value(weights)

  manager = mock.create_autospec(
    tff.learning.programs.EvaluationManager, instance=True, spec_set=True
  )
  manager.start_evaluation.side_effect = start
  with tempfile.TemporaryDirectory() as folder:
    _run(folder, 5, evaluation_manager=manager)
  assertions.require(list(given) == [2, 4, 5], f'Rounds: {list(given)}.')
  losses = []
  for weights in given.values():
    state = evaluating.set_model_weights(evaluating.initialize(), weights)
    metrics = evaluating.next(state, list(builders.clients())).metrics
    evaluated = metrics['client_work']['eval']['current_round_metrics']
    losses.append(float(evaluated['loss']))
  assertions.require(
    all(np.diff(losses) < 0), f'The loss must decrease: {losses}.'
  )


def begins_with_a_given_state(build):
  """Training may begin with a given state."""
  del build
  process = _reading()
  state = process.initialize()
  weights = process.get_model_weights(state)
  start = process.set_model_weights(
    state,
    tff.learning.models.ModelWeights(
      [np.full_like(weight, 0.1) for weight in weights.trainable], []
    ),
  )
  with tempfile.TemporaryDirectory() as folder:
    states, _ = _run(folder, 1, initial_train_state=start)
  assertions.require_equal(
    states['training_checkpoint_round_1'],
    _trained(1, start),
    'The state must be that of a call of next on the given one.',
  )


def goes_on_after_a_stop(build):
  """A program that is started again goes on where it was."""
  del build
  with tempfile.TemporaryDirectory() as folder:
    _run(folder, 2)
    states, metrics = _run(folder, 4)
  assertions.require(list(metrics) == [3, 4], f'Rounds: {list(metrics)}.')
  assertions.require_equal(
    states['training_checkpoint_round_4'],
    _trained(4),
    'The state must be that of four rounds without a stop.',
  )


def nothing_is_left_to_do(build):
  """A program that has done all its rounds does none."""
  del build
  with tempfile.TemporaryDirectory() as folder:
    _run(folder, 1)
    states, metrics = _run(folder, 1)
  assertions.require(
    not states and not metrics, f'Released: {list(states)}, {list(metrics)}.'
  )


def discards_a_round(build):
  """A round may be discarded, and is done again."""
  del build
  asked = []

  def first_time(output):
    asked.append(output.metrics['client_work']['clients']['participating'])
    return len(asked) == 1

  with tempfile.TemporaryDirectory() as folder:
    states, _ = _run(folder, 2, should_discard_round=first_time)
  assertions.require(asked == [_PER_ROUND] * 3, f'Rounds done: {asked}.')
  assertions.require_equal(
    states['training_checkpoint_round_2'],
    _trained(2),
    'The state must be that of two rounds.',
  )


_TEST = 'training_program_logic_test: TrainModelTest'
CASES = (
  Case(
    trains_without_evaluation,
    f'{_TEST}.test_integration_runs_5_training_rounds_no_eval_manager',
  ),
  Case(
    evaluates_on_time,
    f'{_TEST}.test_integration_runs_training_rounds_evaluates_on_time',
  ),
  Case(
    begins_with_a_given_state,
    f'{_TEST}.test_program_state_manager_work_with_initial_state',
  ),
  Case(
    goes_on_after_a_stop,
    f'{_TEST}.test_resumes_from_previous_version_10_runs_one_round',
  ),
  Case(
    nothing_is_left_to_do,
    f'{_TEST}.test_resumes_from_previous_runs_no_train_rounds',
  ),
  Case(discards_a_round, f'{_TEST}.test_retries_one_round'),
)
