"""EASGD against numpy, and what follows from its equations by hand."""

import dataclasses

import costs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_same

from tff_ssl import objectives
from tff_ssl.augmentation import views

PROCESS = 'easgd'


def imitate(problem, start, num_rounds, elastic_rate, proximal=0.0):
  """Eqs. 5 and 6, T steps between them; z, and all x and velocities."""
  z, num_clients = start, len(problem.sizes)
  a = elastic_rate / num_clients
  x = [z] * num_clients
  v = [[np.zeros_like(leaf) for leaf in z]] * num_clients
  for _ in range(num_rounds):
    trained = [
      problem.steps(x[i], v[i], i, z, proximal) for i in range(num_clients)
    ]
    v = [velocity for _, velocity in trained]
    x = [
      [(1 - a) * own + a * old for own, old in zip(new, z, strict=True)]
      for new, _ in trained
    ]
    z = [
      (1 - num_clients * a) * old + a * sum(new[leaf] for new, _ in trained)
      for leaf, old in enumerate(z)
    ]
  return z, x, v


PROXIMAL = objectives.Proximal(objectives.Supervised(views.PlainViews()), 0.5)


@pytest.mark.parametrize(
  'given, elastic_rate, proximal',
  costs.rest_in(
    'parts',
    [
      ({'elastic_rate': 0.5}, 0.5, 0.0),
      ({}, 0.9, 0.0),
      # An objective pulls to z, and not to where the client begins.
      ({'client_objective': PROXIMAL}, 0.9, 0.5),
    ],
    dear=True,
  ),
)
def test_rounds_equal_numpy(own_models, given, elastic_rate, proximal):
  process = own_models.build(**given)
  start = own_models.weights(process, process.initialize())
  state = own_models.run(process, 3)
  z, x, v = imitate(own_models, start, 3, elastic_rate, proximal)
  own_models.assert_close(own_models.weights(process, state), z)
  own_models.check_stored(x, v)


@pytest.mark.parts
def test_without_steps_the_models_move_and_their_sum_stays(own_models):
  process = own_models.build()
  state = own_models.run(process, 1)

  def models(state):
    stored = [own_models.stored(i)[:2] for i in range(len(own_models.sizes))]
    return [own_models.weights(process, state), *stored]

  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = 0.0
  state = process.set_hparams(state, hparams)
  before, after = models(state), models(own_models.run(process, 1, state))
  for old, new in zip(before, after, strict=True):
    assert np.abs(old[0] - new[0]).max() > 1e-4
  own_models.assert_close(
    [sum(leaves) for leaves in zip(*after, strict=True)],
    [sum(leaves) for leaves in zip(*before, strict=True)],
  )
  # z goes nine tenths of the way to the mean.
  mean = [np.mean(leaves, axis=0) for leaves in zip(*before[1:], strict=True)]
  own_models.assert_close(
    after[0],
    [0.1 * z + 0.9 * m for z, m in zip(before[0], mean, strict=True)],
  )


@pytest.mark.parts
def test_one_client_and_its_server_change_places(own_models):
  """With M a = 1, x <- z and z <- x': two chains of plain descent in turn."""
  alone = dataclasses.replace(own_models, momentum=0.0, sizes=(9,))
  process = alone.build(elastic_rate=1.0)
  state, z = process.initialize(), []
  start = alone.weights(process, state)
  for _ in range(4):
    state = alone.run(process, 1, state)
    z.append(alone.weights(process, state))
  once, _ = alone.steps(start, start, 0)
  twice, _ = alone.steps(once, once, 0)
  for actual, expected in zip(z, (once, once, twice, twice), strict=True):
    own_models.assert_close(actual, expected)
  assert np.abs(once[0] - twice[0]).max() > 1e-2


@pytest.mark.parts
def test_the_first_round_at_rate_one_is_fedavgs(own_models):
  """All models are z, and the server takes the mean."""
  process = own_models.build(elastic_rate=1.0)
  reference = own_models.build(name='fedavg', client_weighting='uniform')
  ours, theirs = (
    own_models.weights(each, own_models.run(each, 1))
    for each in (process, reference)
  )
  own_models.assert_close(ours, theirs, atol=1e-7)


@pytest.mark.dear
@pytest.mark.parametrize('fault', ['spoil', 'empty'])
def test_a_client_that_is_left_out_keeps_its_state(own_models, fault):
  process = own_models.build()
  before = own_models.run(process, 1)
  others = own_models.clients()[1:]
  without = process.next(before, others).state
  output = process.next(
    before, [own_models.client(0, **{fault: True}), *others]
  )
  counted = {'spoil': 'non_finite', 'empty': 'empty'}[fault]
  assert output.metrics['client_work']['clients'][counted] == 1
  assert_same(output.state.global_model_weights, without.global_model_weights)
  written = own_models.files()
  versions = [str(path) for path in written if path.parent.name == '0']
  assert len(versions) == 1 and len(written) == 1 + 2 * len(others)


@pytest.mark.parts
def test_moving_statistics_of_the_server_are_the_clients_mean(own_models):
  process = own_models.build(norm='batch', elastic_rate=0.5)
  state = own_models.run(process, 2)
  own_models.check_statistics(process, state)


@pytest.mark.parts
def test_the_clients_optimizer_goes_on(own_models):
  """Adam has counted the steps of both rounds, three in each."""
  process = own_models.build(
    client_optimizer=tff.learning.optimizers.build_adam(0.01)
  )
  own_models.run(process, 2)
  assert own_models.stored(0, dtype=tf.int32) == [6]
