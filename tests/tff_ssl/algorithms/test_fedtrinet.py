"""FedTriNet's second phase, step by step, and what stays with a client."""

import federations
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close

from tff_ssl.algorithms import fedtrinet
from tff_ssl.models import dense, functional, split

_FEATURES, _CLASSES = 5, 3
_COMMON = {
  'data_spec': federations.data_spec((_FEATURES,), in_context=True),
  'client_optimizer': tff.learning.optimizers.build_sgdm(0.3),
  # One step on all labelled examples: their order does not matter.
  'batch_size': 12,
  'local_epochs': 1,
  'seed': 3,
}


@pytest.fixture(scope='module')
def model():
  return split.join(
    functional.from_keras(dense.dense_encoder((_FEATURES,), features=4)),
    functional.from_keras(dense.linear_head(4, _CLASSES)),
  )


def arrays(seed, labelled):
  return federations.separable_examples(
    seed, 12, (_FEATURES,), _CLASSES, labelled
  )


def client(index, labelled=4):
  return federations.in_context(arrays(index, labelled), index)


@pytest.fixture(scope='module')
def build(model, tmp_path_factory, tff_context):
  build = federations.builder('fedtrinet', model, **_COMMON)
  folder = tmp_path_factory.mktemp('states')
  return lambda rounds: build(
    supervised_rounds=rounds, client_state_dir=str(folder / str(rounds))
  )


def probabilities(weights, x):
  w1, b1, w2, b2 = (np.asarray(w, np.float64) for w in weights)
  return scipy.special.softmax(np.maximum(x @ w1 + b1, 0) @ w2 + b2, axis=1)


def step(model, weights, x, y, frozen=False):
  """Returns the weights after one step of SGD, by TensorFlow's gradients."""
  tensors = [tf.constant(w) for w in weights]
  with tf.GradientTape() as tape:
    tape.watch(tensors)
    logits, _ = model.predict(tensors, [], x, training=True, seed=None)
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
    )
  gradients = tape.gradient(loss, tensors)
  new = [(w - 0.3 * g).numpy() for w, g in zip(tensors, gradients, strict=True)]
  return [*map(np.asarray, weights[:2]), *new[2:]] if frozen else new


@pytest.mark.parts
def test_the_first_phase_is_fedavg(build, model):
  clients = [client(0), client(1, 7)]
  reference = federations.builder('fedavg', model, **_COMMON)()
  assert_close(
    federations.trained(build(3), clients, 2),
    federations.trained(reference, clients, 2),
    atol=1e-6,
  )


@pytest.mark.dear
def test_a_round_of_the_second_phase_by_hand(build, model):
  process = build(1)
  data, labels = arrays(0, 4)['x'], arrays(0, 4)['y']
  x, y = data[:4], labels[:4]
  state = process.initialize()
  start = process.get_model_weights(state).trainable
  first = process.next(state, [client(0)])
  broad = process.get_model_weights(first.state).trainable
  # Alone in the round, the client's model is the global one, and its old one.
  assert_close(broad, step(model, start, x, y), atol=1e-6)
  second = process.next(first.state, [client(0)])

  new = step(model, broad, x, y, frozen=True)
  mean = (2 * probabilities(broad, data) + probabilities(new, data)) / 3
  threshold = 1.1 * probabilities(broad, data[4:]).max(axis=1).mean()
  passes = mean[4:].max(axis=1) >= threshold
  assert 0 < passes.sum() < 8
  chosen = np.concatenate([np.full(4, True), passes])
  joined = np.concatenate([y, mean[4:].argmax(axis=1)])[chosen]
  expected = step(model, new, data[chosen], joined.astype(np.int32))
  actual = process.get_model_weights(second.state).trainable
  assert_close(actual, expected, atol=1e-5)
  train = second.metrics['client_work']['train']
  np.testing.assert_allclose(train['mask_rate'], passes.mean(), rtol=1e-6)


def rounds(process, state, participants):
  for client_indices in participants:
    state = process.next(state, [client(i) for i in client_indices]).state
  return state


@pytest.mark.parts
def test_a_client_goes_on_with_its_own_old_model(build):
  """With another past of client 1 alone, its next round is another."""
  process, ends = build(0), []
  for past in ([[0, 1]], [[0, 1], [0, 1]]):
    state = rounds(process, process.initialize(), past)
    # The same global weights and round for both.
    fresh = process.initialize()
    state = process.set_model_weights(state, process.get_model_weights(fresh))
    state = state._replace(
      distributor=rounds(process, fresh, [[7], [7], [7]]).distributor
    )
    end = rounds(process, state, [[1]])
    ends.append(process.get_model_weights(end).trainable[0])
  assert not np.array_equal(*ends)


def test_an_empty_client_changes_nothing_in_the_second_phase(build):
  process = build(1)
  state = rounds(process, process.initialize(), [[0, 1]])
  clients = [client(0), client(1)]
  nobody = client(2)
  nobody['examples'] = nobody['examples'].map(
    lambda arrays: tf.nest.map_structure(lambda value: value[:0], arrays)
  )
  alone = process.next(state, clients)
  together = process.next(state, [*clients, nobody])
  assert together.metrics['client_work']['clients']['empty'] == 1
  assert_close(
    process.get_model_weights(alone.state).trainable,
    process.get_model_weights(together.state).trainable,
    atol=1e-6,
  )


@pytest.mark.parametrize(
  'round_num, threshold_rounds, share',
  [
    *((n, 35, x) for n, x in ((0, 1), (10, 1), (22.5, 0.75), (35, 0.5))),
    (60, 35, 0.5),
    # A fifth of the rounds: the same shape.
    *((n, 7, x) for n, x in ((2, 1), (4.5, 0.75), (7, 0.5))),
    *((0, 1, 1), (1, 1, 0.5)),
  ],
)
def test_the_threshold_falls_to_half(round_num, threshold_rounds, share):
  found = fedtrinet._share(round_num, threshold_rounds)
  np.testing.assert_allclose(found, share, rtol=1e-6)
