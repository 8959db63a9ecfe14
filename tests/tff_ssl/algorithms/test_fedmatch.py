"""FedMatch, with labels at clients or at the server: its rounds by hand."""

import math

import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same
from softmax_regression import probabilities

from tff_ssl import metrics

_FEATURES, _CLASSES = 5, 3
_RATE = 0.05
_SGD = tff.learning.optimizers.build_sgdm(_RATE)
_COMMON = {
  'data_spec': federations.data_spec(
    (_FEATURES,), in_context=True, num_clients=8
  ),
  'views': federations.StrongerViews(),
  'client_optimizer': _SGD,
  'seed': 3,
}


def arrays(seed, labelled=4):
  return federations.separable_examples(
    seed, 12, (_FEATURES,), _CLASSES, labelled
  )


def client(index, labelled=4):
  return federations.in_context(arrays(index, labelled), index)


@pytest.fixture
def build(tmp_path, tff_context):
  return federations.builder(
    'fedmatch',
    federations.model(_FEATURES, _CLASSES),
    helper_interval=1,
    client_state_dir=str(tmp_path / 'states'),
    # One step on all examples of a kind: their order does not matter.
    batch_size=12,
    **_COMMON,
  )


def backward(x, error):
  """Returns the gradient of a mean over rows, from that of the logits."""
  return [x.T @ error / len(x), error.mean(axis=0)]


def sigma_step(sigma, psi, x, y, lambda_s):
  theta = [a + b for a, b in zip(sigma, psi, strict=True)]
  error = probabilities(theta, x) - np.eye(_CLASSES)[y]
  return [
    w - _RATE * lambda_s * g
    for w, g in zip(sigma, backward(x, error), strict=True)
  ]


def psi_step(sigma, psi, gradient, lambda_l2, lambda_l1):
  return [
    b - _RATE * (g + 2 * lambda_l2 * (b - a) + lambda_l1 * np.sign(b))
    for a, b, g in zip(sigma, psi, gradient, strict=True)
  ]


def local_round(sigma, psi, data, helpers, *, lambdas, threshold):
  """Returns sigma and psi after a client's round, in numpy."""
  lambda_s, lambda_i, lambda_a, lambda_l2, lambda_l1 = lambdas
  labelled = data['y'] >= 0
  x, y = data['x'][labelled].astype(np.float64), data['y'][labelled]
  sigma = sigma_step(sigma, psi, x, y, lambda_s)
  theta = [a + b for a, b in zip(sigma, psi, strict=True)]
  x = data['x'][~labelled].astype(np.float64)
  x = x[probabilities(theta, x).max(axis=1) >= threshold]
  assert len(x) > 1
  own = probabilities(theta, x)
  of_helpers = [probabilities(helper, x) for helper in helpers]
  votes = sum(
    np.eye(_CLASSES)[rows.argmax(axis=1)] for rows in [own, *of_helpers]
  )
  agreed = np.eye(_CLASSES)[votes.argmax(axis=1)]
  # KL(h || p) has the gradient p - h in the logits of p.
  terms = [
    lambda_a * g for g in backward(2 * x, probabilities(theta, 2 * x) - agreed)
  ]
  for rows in of_helpers:
    terms = [
      t + lambda_i * g / len(of_helpers)
      for t, g in zip(terms, backward(x, own - rows), strict=True)
    ]
  return sigma, psi_step(sigma, psi, terms, lambda_l2, lambda_l1)


@pytest.mark.parts
def test_without_psi_it_is_fedavg_on_the_labelled_examples(build):
  nothing = {
    'inter_client_weight': 0.0,
    'agreement_weight': 0.0,
    'sigma_psi_weight': 0.0,
    'l1_weight': 0.0,
  }
  process = build(
    supervised_weight=1.0,
    client_weighting='uniform',
    labelled_batch_size=3,
    local_steps=4,
    **nothing,
  )
  reference = federations.builder(
    'fedavg', federations.model(_FEATURES, _CLASSES), **_COMMON
  )(batch_size=3, local_steps=4, client_weighting='uniform')
  start = process.get_model_weights(process.initialize())
  theirs = reference.set_model_weights(reference.initialize(), start)
  clients = [client(0), client(1, 7), client(2, 1)]
  assert_close(
    federations.trained(process, clients, 3),
    federations.trained(reference, clients, 3, theirs),
    atol=1e-6,
  )


@pytest.mark.dear
def test_rounds_by_hand(build):
  lambdas, threshold = (2.0, 0.5, 0.7, 0.3, 0.01), 0.45
  names = ('supervised', 'inter_client', 'agreement', 'sigma_psi', 'l1')
  weights = {f'{n}_weight': v for n, v in zip(names, lambdas, strict=True)}
  process = build(threshold=threshold, labelled_batch_size=12, **weights)
  state = process.initialize()
  start = [w.astype(np.float64) for w in state.global_model_weights.trainable]
  sigma, psi = start[:2], start[2:]
  # Participants, and the helpers that they have by then: with three clients
  # known, both others.
  left = {}
  for participants, helpers_of in (
    ((0, 1), {0: (), 1: ()}),
    ((1, 2), {1: (0,), 2: ()}),
    ((0, 2), {0: (1, 2), 2: (0, 1)}),
  ):
    output = process.next(state, [client(i) for i in participants])
    new = {
      i: local_round(
        sigma,
        psi,
        arrays(i),
        [left[j] for j in helpers_of[i]],
        lambdas=lambdas,
        threshold=threshold,
      )
      for i in participants
    }
    for i, (own_sigma, own_psi) in new.items():
      left[i] = [a + b for a, b in zip(own_sigma, own_psi, strict=True)]
    sigma, psi = (
      [np.mean(values, axis=0) for values in zip(*part, strict=True)]
      for part in zip(*new.values(), strict=True)
    )
    state = output.state
    assert_close(
      state.global_model_weights.trainable, [*sigma, *psi], atol=1e-5
    )
    np.testing.assert_allclose(
      output.metrics['client_work']['train']['helpers'],
      np.mean([len(helpers_of[i]) for i in participants]),
    )
  assert_close(
    process.get_model_weights(state).trainable,
    [a + b for a, b in zip(sigma, psi, strict=True)],
    atol=1e-5,
  )


@pytest.mark.parts
def test_clients_that_lack_examples_or_a_row_in_the_table(build):
  process = build(threshold=0.0)
  state = process.initialize()
  before = state.global_model_weights.trainable
  sigma, psi = slice(2), slice(2, 4)
  for labelled, kept, moved in ((0, sigma, psi), (12, psi, sigma)):
    output = process.next(state, [client(0, labelled)])
    after = output.state.global_model_weights.trainable
    assert output.metrics['client_work']['clients']['participating'] == 1
    assert_same(after[kept], before[kept])
    assert not np.array_equal(after[moved][0], before[moved][0])
  # The table has 8 rows.
  alone = process.next(state, [client(0)])
  output = process.next(state, [client(0), client(8)])
  assert output.metrics['client_work']['clients']['invalid'] == 1
  assert_same(output.state, alone.state)


@tff.tensorflow.computation
def server_data():
  return tf.data.Dataset.from_tensors(arrays(99, labelled=12))


@pytest.fixture
def with_server(build):
  """No example is sure of itself: of psi, the terms of weights are left."""
  return build(
    'fedmatch_server',
    server_data=server_data,
    threshold=1.0,
    supervised_weight=2.0,
    sigma_psi_weight=0.3,
    l1_weight=0.01,
    server_optimizer=_SGD,
    server_batch_size=12,
    server_steps=1,
    # Halves its norm, far above that of all changes, in each round.
    model_aggregator=tff.aggregators.clipping_factory(
      tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
        initial_estimate=4096.0, target_quantile=0.0, learning_rate=math.log(2)
      ),
      tff.aggregators.MeanFactory(),
    ),
  )


@pytest.mark.dear
def test_server_and_clients_take_turns_and_the_server_begins(with_server):
  process = with_server
  state = process.initialize()
  start = [w.astype(np.float64) for w in state.global_model_weights.trainable]
  sigma, psi = start[:2], start[2:]
  labelled = arrays(99, labelled=12)
  for round_num in range(3):
    output = process.next(state, [client(0, 0), client(1, 0)])
    if round_num > 0:
      # On the sigma that the server left in the round before.
      psi = psi_step(sigma, psi, (0, 0), 0.3, 0.01)
    sigma = sigma_step(
      sigma, psi, labelled['x'].astype(np.float64), labelled['y'], 2.0
    )
    state = output.state
    assert_close(
      state.global_model_weights.trainable, [*sigma, *psi], atol=1e-6
    )
    # Who only waits in the first round helps nobody after it.
    helpers = output.metrics['client_work']['train']['helpers']
    assert helpers == (1 if round_num == 2 else 0)
    # The aggregator takes nothing from the zeros of the server's round.
    norm = output.metrics['aggregator']['clipping_norm']
    assert norm == pytest.approx(2048 if round_num == 2 else 4096)
  assert_close(
    process.get_model_weights(state).trainable,
    [a + b for a, b in zip(sigma, psi, strict=True)],
    atol=1e-6,
  )
  # Sigma does not go up.
  size = 4 * (_FEATURES * _CLASSES + _CLASSES)
  measured = metrics.measure_communication(process)
  assert 2 * size <= measured.down
  # Psi and a row in the table of 8 clients: its outputs, whose it is, whether
  # it counts. The rest are metrics and weights.
  table = 4 * 8 * (_CLASSES + 2)
  assert size + table <= measured.up <= size + table + 100
