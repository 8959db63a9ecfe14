"""Rounds of which clients drop out: the mean is that of the others."""

import collections
import contextlib
import functools
import types

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_federated as tff

from experiments.running import participants, round_loop, run_checkpoints
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.simulation import client_faults, client_reader, client_sampling
from tff_ssl.templates import client_data

_FEATURES, _CLASSES, _K = 3, 4, 12
_TEN_CLIENTS = {'num_clients': _K, 'clients_per_round': 10, 'num_groups': 1}
_RATE = 0.5
_RNG = np.random.default_rng(0)
# Client k has k + 1 of the examples.
_SIZES = np.arange(_K) + 1
_OWNERS = np.repeat(np.arange(_K, dtype=np.int32), _SIZES)
_X = _RNG.normal(size=[len(_OWNERS), _FEATURES]).astype(np.float32)
_Y = _RNG.integers(0, _CLASSES, len(_OWNERS)).astype(np.int32)


@pytest.fixture(scope='module')
def process(tff_context):
  """FedAvg with one step of plain SGD on all of a client's examples."""
  zeros = [
    np.zeros(shape, np.float32) for shape in ([_FEATURES, _CLASSES], _CLASSES)
  ]
  model = functional.from_keras(
    dense.dense((_FEATURES,), _CLASSES, hidden=()),
    initial_weights=tff.learning.models.ModelWeights(zeros, []),
  )
  elements = client_data.image_element_spec((_FEATURES,), dtype=tf.float32)

  @tff.tensorflow.computation(np.int32)
  def read(index):
    own = tf.equal(_OWNERS, index)
    examples = collections.OrderedDict(
      x=tf.boolean_mask(_X, own), y=tf.boolean_mask(_Y, own)
    )
    return tf.data.Dataset.from_tensors(examples)

  built = PROCESSES['fedavg'].build(
    model,
    data_spec=client_data.ClientDataSpec(elements, in_context=True),
    views=views.PlainViews(),
    client_optimizer=tff.learning.optimizers.build_sgdm(_RATE),
    batch_size=_K,
    local_epochs=1,
    local_steps=None,
  )
  return client_reader.compose_with_reader(built, read)


def _run(process, share, min_completion):
  """Returns the weights after a round, its row, and who reported."""
  reported, rows = [], []

  def note_and_go_on(state, keys):
    reported.append([int(key[0]) for key in keys])
    return process.next(state, keys)

  loop = round_loop.RoundLoop(
    types.SimpleNamespace(next=note_and_go_on),
    cohorts=participants.Cohorts(
      functools.partial(client_sampling.sample_keys, seed=2, **_TEN_CLIENTS),
      client_faults.ClientFaults(_K, 2, drop_out=share),
    ),
    checkpoints=run_checkpoints.RunCheckpoints(
      types.SimpleNamespace(save=lambda *unused, **files: None)
    ),
    total_rounds=1,
    rounds_per_checkpoint=1,
    read_weights=process.get_model_weights,
    min_completion=min_completion,
  )
  state = loop.run(
    process.initialize(),
    0,
    stop=types.SimpleNamespace(
      requested=False, droppable=contextlib.nullcontext
    ),
    measurements=[],
    logs=[lambda number, row: rows.append(row)],
    show=lambda *unused: None,
  )
  (row,), (clients,) = rows, reported
  return process.get_model_weights(state).trainable[0], row, clients


@pytest.mark.dear
@pytest.mark.parametrize('share', [0.0, 0.1, 0.3, 0.6])
def test_r13_the_mean_is_that_of_the_clients_that_report(process, share):
  weights, row, clients = _run(process, share, min_completion=0.2)
  mine = np.isin(_OWNERS, clients)
  # Clients weigh as much as they have examples: it is one step on all of them.
  error = scipy.special.softmax(np.zeros([mine.sum(), _CLASSES]), axis=1)
  error[np.arange(mine.sum()), _Y[mine]] -= 1
  expected = -_RATE * _X[mine].T @ error / mine.sum()
  np.testing.assert_allclose(weights, expected, atol=1e-6)
  assert row['clients_participating'] == len(clients)
  assert len(clients) + row.get('clients_dropped', 0) == 10
  assert len(clients) == {0.0: 10, 0.1: 9, 0.3: 7, 0.6: 5}[share]


def test_r13_a_round_of_which_all_drop_out_is_given_up(process):
  with pytest.raises(round_loop.GivenUpError, match='given up 5 times'):
    _run(process, 1.0, min_completion=0.5)
