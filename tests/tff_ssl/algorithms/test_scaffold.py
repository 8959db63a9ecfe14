"""SCAFFOLD against a numpy computation of softmax regression."""

import costs
import numpy as np
import pytest
import tensorflow_federated as tff
from comparing import assert_same

from tff_ssl import aggregators, objectives, optimizers
from tff_ssl.augmentation import views

PROCESS = 'scaffold'
_RATE, _SERVER_RATE, _EPOCHS = 0.3, 0.8, 3
_SAMPLES = ([0, 1, 3], [1, 2], [0, 2, 3], [1, 3])
# The same for all, so that tests share built processes.
_OPTIMIZERS = {
  'client_optimizer': tff.learning.optimizers.build_sgdm(_RATE),
  'server_optimizer': optimizers.build_server_sgd(_SERVER_RATE),
}
_DEFAULTS = {'control_update': 'from_steps', 'client_weighting': 'uniform'}


@pytest.fixture
def build(own_models):
  def build_process(**changes):
    return own_models.build(**{**_OPTIMIZERS, **_DEFAULTS, **changes})

  return build_process


@pytest.fixture
def run(own_models):
  def run_rounds(process, samples, state=None):
    state = process.initialize() if state is None else state
    for sample in samples:
      clients = [own_models.client(index) for index in sample]
      state = process.next(state, clients).state
    return state

  return run_rounds


def imitate(problem, start, option, momentum=0.0, weighting='uniform'):
  """Algorithm 1; returns the model, the server's control and the clients'."""
  x = start
  zero = [np.zeros_like(leaf) for leaf in x]
  c, own = zero, dict.fromkeys(range(len(problem.sizes)), zero)
  for sample in _SAMPLES:
    share = np.array(
      [problem.sizes[i] if weighting == 'examples' else 1 for i in sample]
    )
    share = share / share.sum()
    moves, changes = [], []
    for i in sample:
      y, v, length = x, zero, 0.0
      weight_of_one = 0.0
      for _ in range(_EPOCHS):
        g = problem.gradient(y, i)
        v = [
          momentum * v_ + g_ - ci + c_
          for v_, g_, ci, c_ in zip(v, g, own[i], c, strict=True)
        ]
        y = [y_ - _RATE * v_ for y_, v_ in zip(y, v, strict=True)]
        weight_of_one = momentum * weight_of_one + 1
        length += _RATE * weight_of_one
      if option == 'full_gradient':
        new = problem.gradient(x, i)
      else:
        new = [
          ci - c_ + (x_ - y_) / length
          for ci, c_, x_, y_ in zip(own[i], c, x, y, strict=True)
        ]
      moves.append([y_ - x_ for y_, x_ in zip(y, x, strict=True)])
      changes.append([n - ci for n, ci in zip(new, own[i], strict=True)])
      own[i] = new
    x = [
      x_ + _SERVER_RATE * sum(s * m for s, m in zip(share, move, strict=True))
      for x_, *move in zip(x, *moves, strict=True)
    ]
    rate = len(sample) / len(problem.sizes)
    c = [
      c_ + rate * sum(s * d for s, d in zip(share, change, strict=True))
      for c_, *change in zip(c, *changes, strict=True)
    ]
  return x, c, own


@pytest.mark.parametrize(
  'option, momentum, weighting',
  costs.rest_in(
    'parts',
    [
      ('from_steps', 0.0, 'uniform'),
      ('full_gradient', 0.0, 'uniform'),
      ('from_steps', 0.7, 'uniform'),
      ('from_steps', 0.0, 'examples'),
    ],
    keep=2,
    dear=True,
  ),
)
def test_rounds_with_sampling_equal_numpy(
  own_models, build, run, option, momentum, weighting
):
  changes = {'control_update': option, 'client_weighting': weighting}
  if momentum:
    sgdm = tff.learning.optimizers.build_sgdm(_RATE, momentum)
    changes['client_optimizer'] = sgdm
  process = build(**changes)
  start = own_models.weights(process, process.initialize())
  state = run(process, _SAMPLES)
  x, c, own = imitate(own_models, start, option, momentum, weighting)
  own_models.assert_close(own_models.weights(process, state), x)
  own_models.assert_close(state.client_work['shared'], c)
  for index, control in own.items():
    own_models.assert_close(own_models.stored(index), control)
  if weighting == 'uniform':
    # The server's control is the mean of the clients'.
    stored = [own_models.stored(index) for index in own]
    mean = [np.mean(leaves, axis=0) for leaves in zip(*stored, strict=True)]
    own_models.assert_close(state.client_work['shared'], mean, atol=1e-6)
  # The controls matter: without them, the model is another.
  assert max(np.abs(leaf).max() for leaf in c) > 1e-2


@pytest.mark.parts
def test_the_first_round_is_fedavgs(own_models, build, run):
  """All controls are zero."""
  fedavg = {'name': 'fedavg', 'client_weighting': 'uniform', **_OPTIMIZERS}
  processes = build(), own_models.build(**fedavg)

  def after(num_rounds):
    return [
      own_models.weights(each, run(each, _SAMPLES[:num_rounds]))
      for each in processes
    ]

  own_models.assert_close(*after(1), atol=1e-7)
  two, other = after(2)
  assert np.abs(two[0] - other[0]).max() > 1e-3


def test_a_control_stays_at_learning_rate_zero(build, run):
  process = build()
  state = run(process, [[0, 1]])
  control = state.client_work['shared']
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = 0.0
  after = run(process, [[0, 1]], process.set_hparams(state, hparams))
  assert_same(after.client_work['shared'], control)


@pytest.mark.parts
def test_any_objective_is_corrected(build, run):
  """That of FedProx, say: its second round is not that of the plain one."""
  proximal = objectives.Proximal(objectives.Supervised(views.PlainViews()), 0.9)
  plain, other = (
    run(process, _SAMPLES[:2]).client_work['shared']
    for process in (build(), build(client_objective=proximal))
  )
  assert not np.array_equal(plain[0], other[0])


@pytest.mark.parametrize(
  'changes, words',
  [
    (
      {'client_optimizer': tff.learning.optimizers.build_adam(0.1)},
      'client_optimizer.*from_steps',
    ),
    (
      {'control_update': 'full_gradient', 'redrawn_mask_ratio': 0.5},
      'redrawn_mask_ratio=0.5',
    ),
    # Controls would go round it.
    (
      {'model_aggregator': tff.learning.dp_aggregator(0.1, 4)},
      'differential privacy, and what clients change .* in the clear',
    ),
    (
      {'model_aggregator': tff.learning.secure_aggregator()},
      'secure sums, and what clients change .* in the clear',
    ),
    (
      {'model_aggregator': aggregators.MedianFactory()},
      'a median .*, and what clients change .* would go round it',
    ),
  ],
)
def test_bad_arguments_are_named(build, changes, words):
  with pytest.raises(ValueError, match=words):
    build(**changes)


@pytest.mark.parts
def test_full_gradients_go_with_any_optimizer(own_models, build, run):
  process = build(
    control_update='full_gradient',
    client_optimizer=tff.learning.optimizers.build_adam(0.01),
  )
  start = own_models.weights(process, process.initialize())
  state = run(process, _SAMPLES[:1])
  expected = [
    sum(leaves) / len(own_models.sizes)
    for leaves in zip(
      *(own_models.gradient(start, i) for i in _SAMPLES[0]), strict=True
    )
  ]
  own_models.assert_close(state.client_work['shared'], expected)
