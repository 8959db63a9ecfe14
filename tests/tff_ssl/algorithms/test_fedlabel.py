"""FedLabel where it must meet FedAvg, and where its two models meet."""

import collections
import dataclasses

import costs
import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import client_data

_FEATURES, _CLASSES, _STEPS = 5, 3, 4
_SPEC = client_data.ClientDataSpec(
  client_data.image_element_spec((_FEATURES,), dtype=tf.float32)
)
_SGD = optimizers.build_nesterov_sgd(0.3)


def client(seed, labelled, size=9):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, _CLASSES, size).astype(np.int32)
  return collections.OrderedDict(
    x=rng.normal(size=(size, _FEATURES)).astype(np.float32),
    y=np.where(np.arange(size) < labelled, labels, -1).astype(np.int32),
  )


@pytest.fixture(scope='module')
def build(tff_context):
  @costs.shared
  def build_process(name='fedlabel', norm='none', in_context=False, **changes):
    steps = 'labelled_steps' if name == 'fedlabel' else 'local_steps'
    return PROCESSES[name].build(
      functional.from_keras(
        lambda: dense.dense((_FEATURES,), _CLASSES, norm, hidden=(4,))
      ),
      data_spec=dataclasses.replace(_SPEC, in_context=in_context),
      views=views.PlainViews(),
      client_optimizer=_SGD,
      batch_size=4,
      seed=5,
      **{steps: _STEPS, **changes},
    )

  return build_process


def run(process, clients, rounds=2):
  """Returns the weights before and after rounds, and the last metrics."""
  state = process.initialize()
  start = process.get_model_weights(state)
  data = [tf.data.Dataset.from_tensors(arrays) for arrays in clients]
  for _ in range(rounds):
    output = process.next(state, data)
    state = output.state
  return start, process.get_model_weights(state), output.metrics


CLIENTS = [client(0, 3), client(1, 6)]


@pytest.mark.parts
@pytest.mark.parametrize(
  'norm, clients, threshold',
  [
    # Without pseudo-labels, on the labels.
    ('none', CLIENTS, 1.0),
    # Without unlabelled examples.
    ('none', [client(0, 9), client(1, 9)], 0.0),
    ('batch', [client(0, 9), client(1, 9)], 0.0),
  ],
)
def test_with_labels_alone_it_is_fedavg(build, norm, clients, threshold):
  _, expected, _ = run(build('fedavg', norm), clients)
  _, actual, metrics = run(build(norm=norm, threshold=threshold), clients)
  np.testing.assert_equal(tf.nest.flatten(actual), tf.nest.flatten(expected))
  if threshold == 1:
    train = metrics['client_work']['train']
    assert train['mask_rate'] == 0 and np.isnan(train['pseudo_label_accuracy'])


@pytest.mark.parts
def test_a_client_without_labels_learns_from_the_global_model(build):
  start, end, metrics = run(build(threshold=0.0), [client(0, 0)], rounds=1)
  assert not np.array_equal(start.trainable[0], end.trainable[0])
  train = metrics['client_work']['train']
  # Local and global model are one; ties are the global one's.
  assert train['local_expert_rate'] == 0 and train['agreement_rate'] == 1
  assert metrics['client_work']['clients']['participating'] == 1


@pytest.mark.dear
def test_the_update_is_the_sum_of_both_changes(build):
  """With the global expert alone, neither change depends on the other."""
  process = build(in_context=True, threshold=0.0, experts='global')

  def after(examples):
    # A client whose randomness does not hang on its data.
    context = collections.OrderedDict(client=np.int32(4), group=np.int32(-1))
    data = collections.OrderedDict(
      examples=tf.data.Dataset.from_tensors(examples),
      context=tf.data.Dataset.from_tensors(context),
    )
    state = process.next(process.initialize(), [data]).state
    return process.get_model_weights(state).trainable

  whole = CLIENTS[0]
  is_labelled = whole['y'] >= 0
  start = process.get_model_weights(process.initialize()).trainable
  both, *changes = (
    after(collections.OrderedDict((k, v[rows]) for k, v in whole.items()))
    for rows in (slice(None), is_labelled, ~is_labelled)
  )
  for w, end, a, b in zip(start, both, *changes, strict=True):
    assert not np.allclose(a, w) and not np.allclose(b, w)
    np.testing.assert_allclose(end - w, (a - w) + (b - w), atol=1e-6)


@pytest.mark.parts
def test_a_server_rate_of_one_half_takes_the_mean_of_both_changes(build):
  start, whole, _ = run(build(threshold=0.4), CLIENTS, 1)
  _, half, _ = run(build(threshold=0.4, server_learning_rate=0.5), CLIENTS, 1)
  for w, full, mean in zip(
    start.trainable, whole.trainable, half.trainable, strict=True
  ):
    np.testing.assert_allclose(mean - w, (full - w) / 2, atol=1e-6)


@pytest.mark.parts
def test_the_weight_of_an_update_counts_what_passed(build):
  """Two clients by hand from rounds of each alone."""
  process = build(threshold=0.4)
  alone = [run(process, [c], rounds=1) for c in CLIENTS]
  start, together, _ = run(process, CLIENTS, rounds=1)
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


@pytest.mark.parts
def test_moving_variances_stay_positive(build):
  """Each of the two trainings shrinks them by more than half."""
  clients = [client(0, 5)]
  clients[0]['x'] *= 0.01
  process = build(norm='batch', threshold=0.0, unlabelled_steps=100)
  _, end, _ = run(process, clients, rounds=1)
  _, variance = end.non_trainable
  assert (variance > 0).all() and (variance < 0.9).all()
