"""FedNova against FedAvg and a numpy computation of softmax regression."""

import collections

import costs
import federations
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, largest_differences

from tff_ssl import metrics, optimizers

_FEATURES, _CLASSES = 4, 3
_RATE, _MOMENTUM, _STRENGTH = 0.4, 0.8, 0.7
# In minibatches of 4 and two passes: 2, 6 and 4 steps.
_SIZES = (2, 9, 5)
_STEPS = (2, 6, 4)
_SGD = tff.learning.optimizers.build_sgdm(_RATE)


def example(index):
  """The one example of which a client has copies: no order can matter."""
  rng = np.random.default_rng(index)
  return rng.normal(size=_FEATURES).astype(np.float32), index % _CLASSES


def client(index):
  x, y = example(index)
  size = _SIZES[index]
  arrays = collections.OrderedDict(
    x=np.repeat(x[np.newaxis], size, axis=0), y=np.full(size, y, np.int32)
  )
  return tf.data.Dataset.from_tensors(arrays)


CLIENTS = [client(index) for index in range(len(_SIZES))]


@pytest.fixture(scope='module')
def build(tff_context):
  return federations.builder(
    'fednova',
    federations.model(_FEATURES, _CLASSES),
    data_spec=federations.data_spec((_FEATURES,)),
    client_optimizer=_SGD,
    batch_size=4,
  )


def one_round(process):
  return federations.one_round(process, CLIENTS)


def train(start, index, momentum, strength):
  """The client's weights after its steps, and the norm of its a."""
  x, y = example(index)
  w, b = (np.asarray(value, np.float64) for value in start)
  w0, b0, vw, vb = w, b, 0, 0
  steps = _STEPS[index]
  for _ in range(steps):
    error = scipy.special.softmax(x @ w + b) - np.eye(_CLASSES)[y]
    vw = momentum * vw + np.outer(x, error) + strength * (w - w0)
    vb = momentum * vb + error + strength * (b - b0)
    w, b = w - _RATE * vw, b - _RATE * vb
  if momentum:
    a = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (
      1 - momentum
    )
  elif strength:
    alpha = _RATE * strength
    a = (1 - (1 - alpha) ** steps) / alpha
  else:
    a = steps
  return (w, b), a


@pytest.mark.dear
@pytest.mark.parametrize(
  'weighting', costs.rest_in('parts', ['examples', 'uniform'])
)
@pytest.mark.parametrize(
  'momentum, strength',
  costs.rest_in('parts', [(_MOMENTUM, 0.0), (0.0, 0.0), (0.0, _STRENGTH)]),
)
def test_unequal_steps_equal_numpy(build, momentum, strength, weighting):
  start, end, metrics = one_round(
    build(
      local_epochs=2,
      client_weighting=weighting,
      proximal_strength=strength,
      client_optimizer=tff.learning.optimizers.build_sgdm(
        _RATE, momentum or None
      ),
    )
  )
  p = np.array(_SIZES if weighting == 'examples' else (1, 1, 1), float)
  p /= p.sum()
  results = [train(start, i, momentum, strength) for i in range(len(_SIZES))]
  a = np.array([steps for _, steps in results])
  tau = p @ a
  np.testing.assert_allclose(
    metrics['aggregator']['effective_steps'], tau, rtol=1e-5
  )
  for leaf, (before, after) in enumerate(zip(start, end, strict=True)):
    deltas = [weights[leaf] - before for weights, _ in results]
    expected = before + tau * sum(
      share * delta / steps
      for share, delta, steps in zip(p, deltas, a, strict=True)
    )
    np.testing.assert_allclose(after, expected, atol=1e-5)
    # And FedAvg's average is another.
    average = before + sum(s * d for s, d in zip(p, deltas, strict=True))
    assert np.abs(average - expected).max() > 1e-3


@pytest.mark.parts
def test_equal_steps_are_fedavg(build):
  """For any optimizer, and clients that differ in all but their steps."""
  for optimizer in (_SGD, optimizers.build_grouping_sgd(_RATE)):
    common = {'local_steps': 3, 'client_optimizer': optimizer}
    start, nova, _ = one_round(build(**common))
    _, average, _ = one_round(build('fedavg', **common))
    assert_close(nova, average, atol=1e-6)
    assert min(largest_differences(average, start)) > 1e-2


@pytest.mark.parts
def test_the_server_optimizer_steps_along_the_mean(build):
  start, whole, _ = one_round(build(local_epochs=2))
  _, half, _ = one_round(
    build(
      local_epochs=2,
      server_optimizer=tff.learning.optimizers.build_sgdm(0.5),
    )
  )
  for before, ours, theirs in zip(start, half, whole, strict=True):
    np.testing.assert_allclose(ours, (before + theirs) / 2, atol=1e-6)


@pytest.mark.parts
def test_gradient_diversity_takes_the_deltas_as_they_are(build):
  """Not per step, and the number of steps is not taken for a group."""
  results = []
  for process in (build(local_epochs=1), build('fedavg', local_epochs=1)):
    state = metrics.measured_state(
      process, process.initialize(), round_num=0, seed=0
    )
    measure = metrics.build_process_diversity(process)
    results.append(dict(measure(state, CLIENTS)))
  assert_close(*results, rtol=1e-5)


def test_a_proximal_term_that_overshoots_is_refused(build):
  with pytest.raises(ValueError, match='proximal_strength=4.*must be below 1'):
    build(
      proximal_strength=4.0,
      client_optimizer=tff.learning.optimizers.build_sgdm(0.25),
    )
