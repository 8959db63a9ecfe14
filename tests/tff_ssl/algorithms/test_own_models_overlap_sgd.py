"""Overlap-Local-SGD against numpy, and what follows from its equations."""

import costs
import numpy as np
import pytest

PROCESS = 'overlap_sgd'


def imitate(problem, start, num_rounds, a, b):
  """The authors' updates with v and lr; z, and all x and velocities."""
  z, num_clients = start, len(problem.sizes)
  anchor_v = [np.zeros_like(leaf) for leaf in z]
  x, v = [z] * num_clients, [anchor_v] * num_clients
  for _ in range(num_rounds):
    trained = [problem.steps(x[i], v[i], i) for i in range(num_clients)]
    v = [velocity for _, velocity in trained]
    x = [
      [(1 - a) * own + a * old for own, old in zip(new, z, strict=True)]
      for new, _ in trained
    ]
    anchor_v = [
      b * velocity
      + (old - np.mean([own[leaf] for own in x], axis=0)) / problem.rate
      for leaf, (velocity, old) in enumerate(zip(anchor_v, z, strict=True))
    ]
    z = [
      old - problem.rate * velocity
      for old, velocity in zip(z, anchor_v, strict=True)
    ]
  return z, x, v


@pytest.mark.parametrize(
  'given',
  costs.rest_in(
    'parts', [{}, {'pull': 0.3, 'anchor_momentum': 0.0}], dear=True
  ),
  ids=['default', 'other'],
)
def test_rounds_equal_numpy(own_models, given):
  process = own_models.build(**given)
  start = own_models.weights(process, process.initialize())
  state = own_models.run(process, 3)
  z, x, v = imitate(
    own_models,
    start,
    3,
    given.get('pull', 0.6),
    given.get('anchor_momentum', 0.7),
  )
  own_models.assert_close(own_models.weights(process, state), z)
  own_models.check_stored(x, v)


@pytest.mark.parts
def test_a_whole_pull_leaves_nothing_to_average(own_models):
  """With a = 1 all models are z after a round, and z stays."""
  process = own_models.build(pull=1.0, norm='batch')
  start = process.initialize()
  before = own_models.weights(process, start)
  state = own_models.run(process, 2, start)
  own_models.assert_close(own_models.weights(process, state), before, atol=1e-6)
  own_models.assert_close(
    own_models.stored(0)[: len(before)], before, atol=1e-6
  )
  # The pull leaves the clients' moving statistics alone.
  own_models.check_statistics(process, state)


@pytest.mark.parts
def test_the_first_round_is_fedavgs_by_what_the_pull_leaves(own_models):
  """All models are z at first: z <- z + (1 - a) mean(x' - z)."""
  process = own_models.build()
  reference = own_models.build(name='fedavg', client_weighting='uniform')
  start = own_models.weights(process, process.initialize())
  ours, theirs = (
    own_models.weights(each, own_models.run(each, 1))
    for each in (process, reference)
  )
  own_models.assert_close(
    ours,
    [0.6 * old + 0.4 * new for old, new in zip(start, theirs, strict=True)],
  )
