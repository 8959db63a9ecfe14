"""FedMatch, with labels at clients or at the server: its rounds by hand."""

import collections
import math

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import metrics
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import client_data

_FEATURES, _CLASSES = 5, 3
_SPEC = client_data.ClientDataSpec(
  client_data.image_element_spec((_FEATURES,), dtype=tf.float32),
  in_context=True,
)
_RATE = 0.05
_SGD = tff.learning.optimizers.build_sgdm(_RATE)


class TwiceAsStrong(views.PlainViews):
  """A strong view without randomness."""

  def strong(self, examples, seed):
    return self.plain(examples) * 2


@pytest.fixture(scope='module')
def model():
  return functional.from_keras(
    lambda: dense.dense((_FEATURES,), _CLASSES, hidden=())
  )


def arrays(seed, labelled=4, size=12):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, _CLASSES, size).astype(np.int32)
  x = rng.normal(size=(size, _FEATURES)).astype(np.float32)
  # Classes that can be told apart.
  x[:, 0] += 3 * labels
  return collections.OrderedDict(
    x=x, y=np.where(np.arange(size) < labelled, labels, -1).astype(np.int32)
  )


def client(index, labelled=4, size=12):
  context = collections.OrderedDict(client=np.int32(index), group=np.int32(-1))
  return collections.OrderedDict(
    examples=tf.data.Dataset.from_tensors(arrays(index, labelled, size)),
    context=tf.data.Dataset.from_tensors(context),
  )


@pytest.fixture
def build(model, tmp_path, tff_context):
  def build_process(name='fedmatch', **arguments):
    defaults = {
      'num_clients': 8,
      'helper_interval': 1,
      'client_optimizer': _SGD,
      # One step on all examples of a kind: their order does not matter.
      'batch_size': 12,
      'seed': 3,
    }
    return PROCESSES[name].build(
      model,
      data_spec=_SPEC,
      views=TwiceAsStrong(),
      client_state_dir=str(tmp_path / 'states'),
      **{**defaults, **arguments},
    )

  return build_process


def assert_close(actual, expected, tolerance=1e-6):
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def probabilities(theta, x):
  kernel, bias = (np.asarray(w, np.float64) for w in theta)
  return scipy.special.softmax(x @ kernel + bias, axis=1)


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
def test_without_psi_it_is_fedavg_on_the_labelled_examples(build, model):
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
  reference = PROCESSES['fedavg'].build(
    model,
    data_spec=_SPEC,
    views=TwiceAsStrong(),
    client_optimizer=_SGD,
    batch_size=3,
    local_steps=4,
    client_weighting='uniform',
    seed=3,
  )
  ours, theirs = process.initialize(), reference.initialize()
  theirs = reference.set_model_weights(theirs, process.get_model_weights(ours))
  for _ in range(3):
    clients = [client(0), client(1, 7), client(2, 1)]
    ours = process.next(ours, clients).state
    theirs = reference.next(theirs, clients).state
  assert_close(
    process.get_model_weights(ours).trainable,
    reference.get_model_weights(theirs).trainable,
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
      state.global_model_weights.trainable, [*sigma, *psi], tolerance=1e-5
    )
    np.testing.assert_allclose(
      output.metrics['client_work']['train']['helpers'],
      np.mean([len(helpers_of[i]) for i in participants]),
    )
  assert_close(
    process.get_model_weights(state).trainable,
    [a + b for a, b in zip(sigma, psi, strict=True)],
    tolerance=1e-5,
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
    tf.nest.map_structure(
      np.testing.assert_array_equal, after[kept], before[kept]
    )
    assert not np.array_equal(after[moved][0], before[moved][0])
  # The table has 8 rows.
  alone = process.next(state, [client(0)])
  output = process.next(state, [client(0), client(8)])
  assert output.metrics['client_work']['clients']['invalid'] == 1
  tf.nest.map_structure(
    np.testing.assert_array_equal, output.state, alone.state
  )


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
    assert_close(state.global_model_weights.trainable, [*sigma, *psi])
    # Who only waits in the first round helps nobody after it.
    helpers = output.metrics['client_work']['train']['helpers']
    assert helpers == (1 if round_num == 2 else 0)
    # The aggregator takes nothing from the zeros of the server's round.
    norm = output.metrics['aggregator']['clipping_norm']
    assert norm == pytest.approx(2048 if round_num == 2 else 4096)
  assert_close(
    process.get_model_weights(state).trainable,
    [a + b for a, b in zip(sigma, psi, strict=True)],
  )
  # Sigma does not go up.
  size = 4 * (_FEATURES * _CLASSES + _CLASSES)
  measured = metrics.measure_communication(process)
  assert 2 * size <= measured.down
  # Psi and a row in the table of 8 clients: its outputs, whose it is, whether
  # it counts. The rest are metrics and weights.
  table = 4 * 8 * (_CLASSES + 2)
  assert size + table <= measured.up < size + table + 100
