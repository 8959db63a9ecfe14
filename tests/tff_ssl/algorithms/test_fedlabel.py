"""FedLabel where it must meet FedAvg, and where its two models meet."""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import algorithms, optimizers
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import client_data

_FEATURES, _CLASSES, _STEPS = 5, 3, 4
_SPEC = client_data.ClientDataSpec(
  client_data.image_element_spec((_FEATURES,), dtype=tf.float32)
)

_IN_CONTEXT = dataclasses.replace(_SPEC, in_context=True)


def client(seed, labelled, size=9):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, _CLASSES, size).astype(np.int32)
  return collections.OrderedDict(
    x=rng.normal(size=(size, _FEATURES)).astype(np.float32),
    y=np.where(np.arange(size) < labelled, labels, -1).astype(np.int32),
  )


@pytest.fixture(scope='module')
def run(tff_context):
  models = {
    norm: functional.from_keras(
      lambda norm=norm: dense.dense((_FEATURES,), _CLASSES, norm, hidden=(4,))
    )
    for norm in ('none', 'batch')
  }

  def run_rounds(
    builder, clients, *, norm='none', rounds=2, data_spec=_SPEC, **arguments
  ):
    process = builder(
      models[norm],
      data_spec=data_spec,
      views=views.PlainViews(),
      client_optimizer=optimizers.build_nesterov_sgd(0.3),
      batch_size=4,
      seed=5,
      **arguments,
    )
    state = process.initialize()
    start = process.get_model_weights(state)
    data = clients
    if data_spec is _SPEC:
      data = [tf.data.Dataset.from_tensors(c) for c in clients]
    for _ in range(rounds):
      output = process.next(state, data)
      state = output.state
    return start, process.get_model_weights(state), output.metrics

  return run_rounds


def require_equal(weights, others):
  np.testing.assert_equal(tf.nest.flatten(weights), tf.nest.flatten(others))


def supervised(run, clients, **arguments):
  return run(
    PROCESSES['fedavg'].build, clients, local_steps=_STEPS, **arguments
  )


def label(run, clients, **arguments):
  return run(
    PROCESSES['fedlabel'].build, clients, labelled_steps=_STEPS, **arguments
  )


def in_context(run, arrays, **arguments):
  """As `label`, for one client whose randomness does not hang on its data."""
  context = collections.OrderedDict(client=np.int32(4), group=np.int32(-1))
  data = collections.OrderedDict(
    examples=tf.data.Dataset.from_tensors(arrays),
    context=tf.data.Dataset.from_tensors(context),
  )
  return label(run, [data], data_spec=_IN_CONTEXT, **arguments)


CLIENTS = [client(0, 3), client(1, 6)]


def test_without_pseudo_labels_it_is_fedavg_on_the_labels(run):
  _, expected, _ = supervised(run, CLIENTS)
  _, actual, metrics = label(run, CLIENTS, threshold=1.0)
  require_equal(actual, expected)
  train = metrics['client_work']['train']
  assert train['mask_rate'] == 0 and np.isnan(train['pseudo_label_accuracy'])


@pytest.mark.parametrize('norm', ['none', 'batch'])
def test_without_unlabelled_examples_it_is_fedavg(run, norm):
  clients = [client(0, 9), client(1, 9)]
  _, expected, _ = supervised(run, clients, norm=norm)
  require_equal(label(run, clients, norm=norm, threshold=0.0)[1], expected)


def test_a_client_without_labels_learns_from_the_global_model(run):
  clients = [client(0, 0)]
  start, end, metrics = label(run, clients, threshold=0.0, rounds=1)
  assert not np.array_equal(start.trainable[0], end.trainable[0])
  train = metrics['client_work']['train']
  # Local and global model are one; ties are the global one's.
  assert train['local_expert_rate'] == 0 and train['agreement_rate'] == 1
  assert metrics['client_work']['clients']['participating'] == 1


def test_the_update_is_the_sum_of_both_changes(run):
  """With the global expert alone, neither change depends on the other."""
  arguments = {'rounds': 1, 'experts': 'global'}
  whole = CLIENTS[0]
  rows = {
    kind: collections.OrderedDict(
      (key, value[(whole['y'] >= 0) == (kind == 'labelled')])
      for key, value in whole.items()
    )
    for kind in ('labelled', 'unlabelled')
  }
  start, both, _ = in_context(run, whole, threshold=0.0, **arguments)
  changes = [
    in_context(run, rows[kind], threshold=0.0, **arguments)[1].trainable
    for kind in rows
  ]
  for w, end, a, b in zip(
    start.trainable, both.trainable, *changes, strict=True
  ):
    assert not np.allclose(a, w) and not np.allclose(b, w)
    np.testing.assert_allclose(end - w, (a - w) + (b - w), atol=1e-6)


def test_a_server_rate_of_one_half_takes_the_mean_of_both_changes(run):
  build = functools.partial(
    algorithms.PROCESSES['fedlabel'].build,
    labelled_steps=_STEPS,
    threshold=0.4,
  )
  start, whole, _ = run(build, CLIENTS, rounds=1)
  _, half, _ = run(build, CLIENTS, rounds=1, server_learning_rate=0.5)
  for w, full, mean in zip(
    start.trainable, whole.trainable, half.trainable, strict=True
  ):
    np.testing.assert_allclose(mean - w, (full - w) / 2, atol=1e-6)


def test_the_weight_of_an_update_counts_what_passed(run):
  """Two clients by hand from rounds of each alone."""
  alone = [label(run, [c], threshold=0.4, rounds=1) for c in CLIENTS]
  start, together, _ = label(run, CLIENTS, threshold=0.4, rounds=1)
  weights = [
    # Labelled examples used, and those of the unlabelled that passed.
    _STEPS * 4 * (1 + metrics['client_work']['train']['mask_rate'])
    for _, _, metrics in alone
  ]
  assert weights[0] != weights[1]
  for i, initial in enumerate(start.trainable):
    changes = [end.trainable[i] - initial for _, end, _ in alone]
    mean = np.average(changes, axis=0, weights=weights)
    np.testing.assert_allclose(together.trainable[i] - initial, mean, atol=1e-6)


def test_moving_variances_stay_positive(run):
  """Each of the two trainings shrinks them by more than half."""
  clients = [client(0, 5)]
  clients[0]['x'] *= 0.01
  _, end, _ = label(
    run, clients, norm='batch', threshold=0.0, rounds=1, unlabelled_steps=100
  )
  _, variance = end.non_trainable
  assert (variance > 0).all() and (variance < 0.9).all()
