"""Checks of the process itself: its form, that it learns, seeds and states."""

import asyncio
import collections
import tempfile

import numpy as np
from etils import epy

from tff_ssl.testing import assertions
from tff_ssl.testing.tiny_problems import NUM_CLASSES, TinyProblem

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff


def train_metrics(metrics) -> collections.OrderedDict:
  """Returns the metrics of the clients' training."""
  return metrics['client_work']['train']


def is_learning_process(problem: TinyProblem) -> None:
  """The builder returns a LearningProcess with metrics `client_work/train`."""
  process = problem.process
  assertions.require(
    isinstance(process, tff.learning.templates.LearningProcess),
    f'The builder must return a LearningProcess, but gives {type(process)}.',
  )
  metrics = problem.first_round.metrics
  assertions.require(
    'train' in metrics.get('client_work', {}),
    'train_model reads the metrics client_work/train, but next gives '
    f'{list(metrics)}.',
  )
  assertions.require(
    bool(train_metrics(metrics)), 'client_work/train must hold some metric.'
  )


def model_weights_round_trip(problem: TinyProblem) -> None:
  """`get_model_weights` returns what `set_model_weights` set, bit for bit."""
  process, state = problem.process, problem.initial_state
  rng = np.random.default_rng(7)
  weights = tf.nest.map_structure(
    lambda value: rng.normal(size=value.shape).astype(value.dtype),
    process.get_model_weights(state),
  )
  assertions.require_equal(
    process.get_model_weights(process.set_model_weights(state, weights)),
    weights,
    'get_model_weights must return what set_model_weights set.',
  )
  # Only processes of this library have it.
  if hasattr(process, 'read_model_weights'):
    assertions.require_equal(
      process.read_model_weights(state),
      process.get_model_weights(state),
      'read_model_weights must return what get_model_weights does.',
    )


def learns(problem: TinyProblem) -> None:
  """Passes a bar on held-out digits, from a start at chance."""
  process, state = problem.process, problem.initial_state
  start = problem.accuracy(process.get_model_weights(state))
  assertions.require(
    start < 2.5 / NUM_CLASSES,
    f'Training must start at chance, but at first accuracy is {start:.2f}.',
  )
  for round_num in range(problem.learning_rounds):
    state = process.next(state, problem.clients(round_num)).state
  end = problem.accuracy(process.get_model_weights(state))
  assertions.require(
    end >= problem.learning_bar,
    f'After {problem.learning_rounds} rounds accuracy must be at least '
    f'{problem.learning_bar}, but is {end:.2f}.',
  )


def deterministic(problem: TinyProblem) -> None:
  """Two builds with one seed agree bit for bit; another seed differs."""

  def train(process):
    return _run(process, problem, process.initialize(), range(2))

  first = train(problem.process)
  assertions.require_equal(
    train(problem.rebuilt),
    first,
    'Two builds with one seed must be bit-equal after 2 rounds: derive all '
    'randomness from the seed, with stateless ops.',
  )
  assertions.require(
    not assertions.is_equal(
      train(problem.reseeded).global_model_weights, first.global_model_weights
    ),
    'Another seed must give another model.',
  )


def seed_reaches_clients(problem: TinyProblem) -> None:
  """Seed, round and client each change what a client draws.

  The weights are the same before each of the compared rounds. Where a process
  keeps nothing else from round to round, only the draws can make a difference.
  Where it does (momentum, controls, states of clients, phases of training),
  that may make a difference too, and the comparison of rounds shows less.
  """
  process, state = problem.process, problem.initial_state
  weights = process.get_model_weights(state)
  other = problem.reseeded
  data = [problem.client(0, 30)]

  def train(process, state, data):
    return process.next(process.set_model_weights(state, weights), data)

  base = train(process, state, data)
  cases = [
    ('seed', train(other, other.initialize(), data)),
    ('round', train(process, base.state, data)),
  ]
  if problem.spec.needs.clients != 'none':
    twin = problem.client(problem.num_groups, 30, digits_of=0)
    cases.append(('client', train(process, state, [twin])))
  for what, varied in cases:
    # Metrics of clients tell their draws from the server's.
    compared = [
      train_metrics(output.metrics)
      if problem.spec.needs.clients != 'none'
      else output.state.global_model_weights
      for output in (base, varied)
    ]
    assertions.require(
      not assertions.is_equal(*compared),
      f'With the same weights, another {what} must change what is drawn in '
      f'local training: derive its randomness from the {what} too.',
    )


def resumes(problem: TinyProblem) -> None:
  """Rounds through a saved state equal rounds at a stretch, bit for bit."""
  process = problem.process
  halfway = _run(process, problem, problem.initial_state, range(2))
  restarted = problem.rebuilt
  with tempfile.TemporaryDirectory() as folder:
    manager = tff.program.FileProgramStateManager(folder)
    asyncio.run(manager.save(halfway, 2))
    loaded = asyncio.run(manager.load(2, restarted.initialize()))
  assertions.require_equal(
    _run(restarted, problem, loaded, range(2, 4)),
    _run(process, problem, halfway, range(2, 4)),
    'A restarted program that goes on from a saved state must give what an '
    'uninterrupted one gives: keep all that matters in the state.',
  )


def hparams_round_trip(problem: TinyProblem) -> None:
  """`get_hparams` returns what `set_hparams` set."""
  process, state = problem.process, problem.initial_state
  hparams = tf.nest.map_structure(
    lambda value: (np.asarray(value) / 2).astype(np.asarray(value).dtype),
    process.get_hparams(state),
  )
  assertions.require(
    bool(tf.nest.flatten(hparams)), 'get_hparams must return some parameter.'
  )
  assertions.require_equal(
    process.get_hparams(process.set_hparams(state, hparams)),
    hparams,
    'get_hparams must return what set_hparams set.',
  )


def _run(process, problem, state, rounds):
  for round_num in rounds:
    state = process.next(state, problem.clients(round_num)).state
  return state
