"""The average against TensorFlow's own, and the process that it follows."""

import costs
import numpy as np
import pytest
import tensorflow as tf
from comparing import assert_close

import tff_ssl
from tff_ssl import testing
from tff_ssl.algorithms import PROCESSES
from tff_ssl.templates import moving_average

_ROUNDS = 4


def _followed(values, decay):
  """Returns what TensorFlow's average is after each value but the first."""
  variable, count = tf.Variable(values[0]), tf.Variable(0)
  average = tf.train.ExponentialMovingAverage(decay, num_updates=count)
  average.apply([variable])
  followed = []
  for round_num, value in enumerate(values[1:]):
    variable.assign(value)
    count.assign(round_num)
    average.apply([variable])
    followed.append(average.average(variable).numpy())
  return followed


def test_it_is_that_of_tensorflow():
  values = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
  for decay in (0.5, 0.9):
    expected = _followed(values, decay)
    actual, own = values[0], []
    for round_num, value in enumerate(values[1:]):
      share = moving_average.decay_at(decay, tf.constant(round_num)).numpy()
      actual = share * actual + (1 - share) * value
      own.append(actual)
    np.testing.assert_allclose(own, expected, atol=1e-6)


def _train(name, **changes):
  """Returns the model after each round, the initial one first."""
  problem = testing.TinyProblem(PROCESSES[name])
  process = problem.build(**changes)
  state = process.initialize()
  weights = [process.get_model_weights(state).trainable]
  for round_num in range(_ROUNDS):
    state = process.next(state, problem.clients(round_num)).state
    weights.append(process.get_model_weights(state).trainable)
  return process, state, weights


def _check_follows(averaged, plain, decay):
  expected = plain[0]
  for round_num, model in enumerate(plain[1:]):
    share = min(decay, (1 + round_num) / (10 + round_num))
    expected = [
      share * old + (1 - share) * new
      for old, new in zip(expected, model, strict=True)
    ]
    assert_close(averaged[round_num + 1], expected, atol=1e-6)


# The global weights of SSJO are more than the classifier, and those of grouping
# a row for each group.
@pytest.mark.parametrize(
  'name', costs.rest_in('parts', ['fedavg', 'ssjo', 'grouping'], dear=True)
)
@pytest.mark.usefixtures('tff_context')
def test_it_follows_a_process_that_it_leaves_alone(name):
  _, _, plain = _train(name)
  process, state, averaged = _train(name, ema_decay=0.3)
  _check_follows(averaged, plain, 0.3)
  np.testing.assert_equal(
    process.read_model_weights(state).trainable, averaged[-1]
  )
  new = process.get_model_weights(process.initialize())
  state = process.set_model_weights(state, new)
  np.testing.assert_equal(
    process.get_model_weights(state).trainable, new.trainable
  )
  if name == 'grouping':
    # Weights that are put in are in every row.
    rows = state.global_model_weights.trainable
    np.testing.assert_equal(rows, [np.stack([w] * 3) for w in new.trainable])


def test_every_process_takes_it():
  assert all('ema_decay' in spec.setting_names for spec in PROCESSES.values())
  with pytest.raises(ValueError, match='ema_decay must be .* >= 0 and < 1'):
    tff_ssl.Wiring(ema_decay=1.0)


@pytest.mark.parts
@pytest.mark.usefixtures('tff_context')
def test_the_average_labels_where_the_received_model_does():
  problem = testing.TinyProblem(PROCESSES['grouping'])
  losses = []
  for decay in (0.0, 0.9):
    process = problem.build(
      teacher='received', server_order='after', ema_decay=decay, threshold=0.1
    )
    state, of_rounds = process.initialize(), []
    for round_num in range(2):
      state, metrics = process.next(state, problem.clients(round_num))
      of_rounds.append(metrics['client_work']['train']['loss'])
    losses.append(of_rounds)
  (first, second), (first_with, second_with) = losses
  # The first labels are those of the initial model. In the second round, the
  # models that are trained are the same still, and only the labels differ.
  assert first == first_with
  assert second != second_with
