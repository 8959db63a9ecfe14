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
from tests.tff_parity import builders
from tests.tff_parity.cases import Group
from tff_ssl.simulation import contexts
from tff_ssl.testing import assertions

GROUP = Group('Programs')
_TEST = 'training_program_logic_test: TrainModelTest'
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


def _require_last_state(states, rounds, start=None):
  """Requires the released state of as many calls of `next`."""
  process, keys = _reading(), _source().iterator()
  state = process.initialize() if start is None else start
  for _ in range(rounds):
    state = process.next(state, keys.select(_PER_ROUND)).state
  released = states[f'training_checkpoint_round_{rounds}']
  assertions.require_equal(released, state, 'The state must be that of `next`.')


def _run(folder: str, rounds: int, **arguments):
  """Runs `train_model`; returns what it released: states, and metrics."""
  states = tff.program.MemoryReleaseManager()
  metrics = tff.program.MemoryReleaseManager()
  stack = tff.framework.get_context_stack()
  context = tff.program.NativeFederatedContext(
    contexts.BackgroundContext(stack.current)
  )
  arguments.setdefault('evaluation_manager', None)
  with stack.install(context):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=_reading(),
        train_data_source=_source(),
        train_per_round_clients=_PER_ROUND,
        train_total_rounds=rounds,
        program_state_manager=tff.program.FileProgramStateManager(folder),
        model_output_manager=states,
        train_metrics_manager=metrics,
        evaluation_periodicity=2,
        **arguments,
      )
    )
  return states.values(), metrics.values()


@GROUP.case(f'{_TEST}.test_integration_runs_5_training_rounds_no_eval_manager')
def trains_without_evaluation(build):
  """Rounds run; states and metrics are saved and released."""
  del build
  with tempfile.TemporaryDirectory() as folder:
    states, metrics = _run(folder, 3)
    versions = asyncio.run(
      tff.program.FileProgramStateManager(folder).get_versions()
    )
  _require_last_state(states, 3)
  assert list(metrics) == [1, 2, 3], f'Metrics: {list(metrics)}.'
  assert versions[-1] == 3, f'Versions saved: {versions}.'


@GROUP.case(f'{_TEST}.test_integration_runs_training_rounds_evaluates_on_time')
def evaluates_on_time(build):
  """The weights are evaluated every few rounds and after the last."""
  del build
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
  assert list(given) == [2, 4, 5], f'Rounds: {list(given)}.'
  losses = [float(builders.evaluate(each)['loss']) for each in given.values()]
  assert all(np.diff(losses) < 0), f'The loss must decrease: {losses}.'


@GROUP.case(f'{_TEST}.test_program_state_manager_work_with_initial_state')
def begins_with_a_given_state(build):
  """Training may begin with a given state."""
  del build
  process = _reading()
  state = process.initialize()
  kernel, bias = process.get_model_weights(state).trainable
  weights = [np.full_like(kernel, 0.1), np.full_like(bias, 0.1)]
  start = process.set_model_weights(
    state, tff.learning.models.ModelWeights(weights, [])
  )
  with tempfile.TemporaryDirectory() as folder:
    states, _ = _run(folder, 1, initial_train_state=start)
  _require_last_state(states, 1, start)


@GROUP.case(f'{_TEST}.test_resumes_from_previous_version_10_runs_one_round')
def goes_on_after_a_stop(build):
  """A program that is started again goes on where it was."""
  del build
  with tempfile.TemporaryDirectory() as folder:
    _run(folder, 2)
    states, metrics = _run(folder, 4)
  assert list(metrics) == [3, 4], f'Rounds: {list(metrics)}.'
  _require_last_state(states, 4)


@GROUP.case(f'{_TEST}.test_resumes_from_previous_runs_no_train_rounds')
def nothing_is_left_to_do(build):
  """A program that has done all its rounds does none."""
  del build
  with tempfile.TemporaryDirectory() as folder:
    _run(folder, 1)
    states, metrics = _run(folder, 1)
  assert not states and not metrics, f'Released: {states}, {metrics}.'


@GROUP.case(f'{_TEST}.test_retries_one_round')
def discards_a_round(build):
  """A round may be discarded, and is done again."""
  del build
  asked = []

  def first_time(output):
    asked.append(output.metrics['client_work']['clients']['participating'])
    return len(asked) == 1

  with tempfile.TemporaryDirectory() as folder:
    states, _ = _run(folder, 2, should_discard_round=first_time)
  assert asked == [_PER_ROUND] * 3, f'Rounds done: {asked}.'
  _require_last_state(states, 2)
