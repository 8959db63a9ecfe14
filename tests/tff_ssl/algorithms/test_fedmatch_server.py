"""FedMatch with labels at the server: who trains what, and when."""

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
_RATE, _LAMBDA_S, _LAMBDA_L2, _LAMBDA_L1 = 0.05, 2.0, 0.3, 0.01


@pytest.fixture(scope='module')
def model():
  return functional.from_keras(
    lambda: dense.dense((_FEATURES,), _CLASSES, hidden=())
  )


def arrays(seed, size=12):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, _CLASSES, size).astype(np.int32)
  x = rng.normal(size=(size, _FEATURES)).astype(np.float32)
  return collections.OrderedDict(x=x, y=labels)


@tff.tensorflow.computation
def server_data():
  return tf.data.Dataset.from_tensors(arrays(99))


def client(index):
  examples = collections.OrderedDict(arrays(index), y=np.full(12, -1, np.int32))
  context = collections.OrderedDict(client=np.int32(index), group=np.int32(-1))
  return collections.OrderedDict(
    examples=tf.data.Dataset.from_tensors(examples),
    context=tf.data.Dataset.from_tensors(context),
  )


@pytest.fixture(scope='module')
def process(model, tmp_path_factory, tff_context):
  """No example is sure of itself: of psi, the terms of weights are left."""
  sgd = tff.learning.optimizers.build_sgdm(_RATE)
  return PROCESSES['fedmatch_server'].build(
    model,
    server_data=server_data,
    data_spec=_SPEC,
    views=views.PlainViews(),
    client_state_dir=str(tmp_path_factory.mktemp('states')),
    num_clients=8,
    helper_interval=1,
    threshold=1.0,
    supervised_weight=_LAMBDA_S,
    sigma_psi_weight=_LAMBDA_L2,
    l1_weight=_LAMBDA_L1,
    client_optimizer=sgd,
    server_optimizer=sgd,
    # One step on all examples: their order does not matter.
    batch_size=12,
    server_batch_size=12,
    server_steps=1,
    # Halves its norm, far above that of all changes, in each round.
    model_aggregator=tff.aggregators.clipping_factory(
      tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
        initial_estimate=4096.0, target_quantile=0.0, learning_rate=math.log(2)
      ),
      tff.aggregators.MeanFactory(),
    ),
    seed=3,
  )


def server_step(sigma, psi):
  data = arrays(99)
  x = data['x'].astype(np.float64)
  kernel, bias = (a + b for a, b in zip(sigma, psi, strict=True))
  error = scipy.special.softmax(x @ kernel + bias, axis=1)
  error -= np.eye(_CLASSES)[data['y']]
  gradients = [x.T @ error / len(x), error.mean(axis=0)]
  return [
    w - _RATE * _LAMBDA_S * g for w, g in zip(sigma, gradients, strict=True)
  ]


def client_step(sigma, psi):
  return [
    b - _RATE * (2 * _LAMBDA_L2 * (b - a) + _LAMBDA_L1 * np.sign(b))
    for a, b in zip(sigma, psi, strict=True)
  ]


def test_server_and_clients_take_turns_and_the_server_begins(process):
  state = process.initialize()
  start = [w.astype(np.float64) for w in state.global_model_weights.trainable]
  sigma, psi = start[:2], start[2:]
  for round_num in range(3):
    output = process.next(state, [client(0), client(1)])
    if round_num > 0:
      # On the sigma that the server left in the round before.
      psi = client_step(sigma, psi)
    sigma = server_step(sigma, psi)
    state = output.state
    for actual, expected in zip(
      state.global_model_weights.trainable, [*sigma, *psi], strict=True
    ):
      np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    # Who only waits in the first round helps nobody after it.
    helpers = output.metrics['client_work']['train']['helpers']
    assert helpers == (1 if round_num == 2 else 0)
    # The aggregator takes nothing from the zeros of the server's round.
    norm = output.metrics['aggregator']['clipping_norm']
    assert norm == pytest.approx(2048 if round_num == 2 else 4096)
  for actual, a, b in zip(
    process.get_model_weights(state).trainable, sigma, psi, strict=True
  ):
    np.testing.assert_allclose(actual, a + b, rtol=0, atol=1e-6)


def test_sigma_does_not_go_up(process):
  size = 4 * (_FEATURES * _CLASSES + _CLASSES)
  measured = metrics.measure_communication(process)
  assert 2 * size <= measured.down
  # Psi and a row in the table of 8 clients: its outputs, whose it is, whether
  # it counts. The rest are metrics and weights.
  table = 4 * 8 * (_CLASSES + 2)
  assert size + table <= measured.up < size + table + 100


def test_refusals(model):
  with pytest.raises(ValueError, match='server_warmup_rounds .*-1'):
    PROCESSES['fedmatch_server'].build(
      model,
      server_data=server_data,
      data_spec=_SPEC,
      views=views.PlainViews(),
      client_state_dir='/x',
      num_clients=3,
      server_warmup_rounds=-1,
    )
