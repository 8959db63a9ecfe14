"""FedLabel where it must meet FedAvg, and where its two models meet."""

import collections

import federations
import numpy as np
import pytest
import tensorflow as tf
from comparing import assert_close, assert_same

from tff_ssl import optimizers

_FEATURES, _CLASSES, _STEPS = 5, 3, 4


def client(seed, labelled):
  return federations.examples(seed, 9, (_FEATURES,), _CLASSES, labelled)


@pytest.fixture(scope='module')
def build(tff_context):
  build_process = federations.builder(
    'fedlabel',
    lambda norm: federations.model(_FEATURES, _CLASSES, norm, hidden=(4,)),
    data_spec=federations.data_spec((_FEATURES,)),
    client_optimizer=optimizers.build_nesterov_sgd(0.3),
    batch_size=4,
    seed=5,
  )

  def build(name='fedlabel', norm='none', **changes):
    steps = 'labelled_steps' if name == 'fedlabel' else 'local_steps'
    return build_process(name, norm, **{steps: _STEPS, **changes})

  return build


def run(process, clients, rounds=2):
  """Returns the weights before and after rounds, and the last metrics."""
  state = process.initialize()
  start = process.get_model_weights(state)
  data = [tf.data.Dataset.from_tensors(arrays) for arrays in clients]
  for _ in range(rounds):
    state, metrics = process.next(state, data)
  return start, process.get_model_weights(state), metrics


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
  assert_same(actual, expected)
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
  process = build(
    data_spec=federations.data_spec((_FEATURES,), in_context=True),
    threshold=0.0,
    experts='global',
  )

  def after(examples):
    # A client whose randomness does not hang on its data.
    data = federations.in_context(examples, client=4)
    return federations.trained(process, [data])

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
  start, whole, _ = run(build(threshold=0.6), CLIENTS, 1)
  _, half, _ = run(build(threshold=0.6, server_learning_rate=0.5), CLIENTS, 1)
  means = tf.nest.map_structure(lambda w, full: (w + full) / 2, start, whole)
  assert_close(half, means, atol=1e-6)


@pytest.mark.parts
def test_the_weight_of_an_update_counts_what_passed(build):
  """Two clients by hand from rounds of each alone."""
  process = build(threshold=0.6)
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
