"""SemiFL's rounds against numpy: softmax regression on a few examples."""

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from labelled_rounds import (
  RATE,
  SERVER,
  SIZE,
  arrays,
  assert_weights,
  begin,
  builder,
  client,
  start,
  step,
)

from tff_ssl.algorithms import semifl
from tff_ssl.augmentation import views

_THRESHOLD = 0.6

build = builder(
  'semifl',
  threshold=_THRESHOLD,
  mixup_weight=0.0,
  # Fresh each round, and so without effect on the one step of a round.
  server_optimizer=tff.learning.optimizers.build_sgdm(RATE, 0.9),
)


def pseudo_labels(weights, x):
  """Returns labels, and which of them are confident."""
  found = softmax_regression.probabilities(weights, x)
  return found.argmax(1), found.max(1) >= _THRESHOLD


def local(weights, x):
  labels, confident = pseudo_labels(weights, x)
  return step(weights, x[confident], labels[confident])


@pytest.mark.dear
def test_two_rounds_by_hand(tff_context):
  """Clients, their mean with momentum, then the server, from the average."""
  process = build(global_momentum=0.5)
  weights = start()
  state = begin(process, weights)
  velocity = [0.0, 0.0]
  # A model without much of a bias is sure of nothing where all is nearly 0.
  unsure = client(9, scale=1e-3)
  for participants in ((0, 1), (2, 3)):
    state, metrics = process.next(state, [*map(client, participants), unsure])
    assert not pseudo_labels(weights, arrays(9, scale=1e-3)[0])[1].any()
    models = [local(weights, arrays(index)[0]) for index in participants]
    velocity = [
      0.5 * v + w - (a + b) / 2
      for v, w, a, b in zip(velocity, weights, *models, strict=True)
    ]
    averaged = [w - v for w, v in zip(weights, velocity, strict=True)]
    beside = step(weights, *SERVER)[0] - velocity[0]
    weights = step(averaged, *SERVER)
    # Not the server's step from the model of the round before.
    assert np.abs(weights[0] - beside).max() > 1e-3
    assert_weights(process, state, weights)
    assert metrics['client_work']['clients']['participating'] == 2


@pytest.mark.parts
def test_who_has_learnt_least_weighs_most(tff_context):
  process = build(client_weighting='learning_status', threshold=0.0)
  weights = start()
  parts = [arrays(index)[0] for index in (0, 1)]
  found = [softmax_regression.probabilities(weights, x) for x in parts]
  models = [
    step(weights, x, of_x.argmax(1))
    for x, of_x in zip(parts, found, strict=True)
  ]
  shares = [1 - of_x.max(1).mean() for of_x in found]
  assert abs(shares[0] - shares[1]) > 0.01
  averaged = [
    np.average(both, axis=0, weights=shares)
    for both in zip(*models, strict=True)
  ]
  state = process.next(begin(process, weights), [client(0), client(1)]).state
  # The velocity of the first round is the change itself.
  assert_weights(process, state, step(averaged, *SERVER))


@pytest.mark.parts
def test_labels_are_those_of_the_received_model(tff_context):
  """Also when the local model has come to label otherwise."""
  process = build(local_epochs=4)
  weights = start()
  x, labels = arrays(5)
  found, confident = pseudo_labels(weights, x)
  assert 0 < confident.sum() < SIZE
  fixed = moving = weights
  for _ in range(4):
    fixed = step(fixed, x[confident], found[confident])
    now, sure = pseudo_labels(moving, x)
    moving = step(moving, x[sure], now[sure])
  assert np.abs(fixed[0] - moving[0]).max() > 1e-3
  output = process.next(begin(process, weights), [client(5)])
  assert_weights(process, output.state, step(fixed, *SERVER))
  train = output.metrics['client_work']['train']
  assert train['mask_rate'] == pytest.approx(confident.mean())
  right = (found == labels)[confident]
  assert train['pseudo_label_accuracy'] == pytest.approx(right.mean())


@pytest.mark.parts
def test_above_a_threshold_of_1_clients_change_nothing(tff_context):
  process = build(
    threshold=1.01, server_optimizer=tff.learning.optimizers.build_sgdm(0.0)
  )
  weights = start()
  output = process.next(begin(process, weights), [client(0), client(1)])
  assert_weights(process, output.state, weights, tolerance=0)
  assert output.metrics['client_work']['clients']['participating'] == 0


@pytest.mark.parts
def test_statistics_are_those_of_the_server_s_examples(tff_context):
  """Whatever the aggregator does to them: here it adds noise."""
  private = tff.aggregators.DifferentiallyPrivateFactory
  process = build(
    norm='batch',
    threshold=0.0,
    mixup_weight=1.0,
    model_aggregator=private.gaussian_fixed(1.0, 2.0, clip=1.0),
  )
  state = process.initialize()
  output = process.next(state, [client(0), client(1)])
  mean, variance = process.get_model_weights(output.state).non_trainable
  np.testing.assert_allclose(mean, SERVER[0].mean(0), rtol=1e-3, atol=1e-4)
  np.testing.assert_allclose(variance, SERVER[0].var(0), rtol=1e-3)


@pytest.mark.parts
def test_the_default_optimizer_is_the_authors(tff_context):
  """One step along a long gradient, cut to norm 1."""
  process = build(client_optimizer=None, threshold=0.0)
  weights = [10 * w for w in start()]
  x = arrays(0)[0]
  labels = softmax_regression.probabilities(weights, x).argmax(1)
  gradient = softmax_regression.gradient(weights, x, labels)
  norm = np.sqrt(sum(np.square(g).sum() for g in gradient))
  # Nesterov's first step is 1 + 0.9 of the rate.
  local_weights = [
    w - 0.03 * 1.9 * (g / max(norm, 1) + 5e-4 * w)
    for w, g in zip(weights, gradient, strict=True)
  ]
  output = process.next(begin(process, weights), [client(0)])
  assert_weights(process, output.state, step(local_weights, *SERVER), 1e-4)


def test_a_schedule_of_steps_is_refused():
  with pytest.raises(ValueError, match='A schedule counts steps'):
    build(schedule=lambda time: 1.0)


class _Shifted(views.PlainViews):
  """Views whose weak one is noisy."""

  def weak(self, examples, seed):
    noise = tf.random.stateless_normal(tf.shape(examples), seed, stddev=3.0)
    return self.plain(examples) + noise


@pytest.fixture(scope='module')
def model():
  return federations.model(5, 3)


def label(model, weights, x, view='plain', threshold=0.5, seed=(0, 1)):
  # In a graph, as clients have it.
  @tf.function(autograph=False)
  def run(weights, x, seed):
    found, passes = semifl.predict(
      model, weights, x, views=_Shifted(), view=view, seed=seed
    )
    labelling = semifl.from_threshold(found, threshold)
    return labelling.labels, labelling.mask, passes

  return run(weights, tf.constant(x), tf.constant(seed))


# Below, at and above the examples of one forward pass.
@pytest.mark.parametrize('size', [1, 256, 600])
def test_labels_and_confidence_equal_numpy(model, size):
  weights = model.initial_weights(1)
  x = np.random.default_rng(0).uniform(size=(size, 5)).astype(np.float32)
  found = softmax_regression.probabilities(weights.trainable, x)
  threshold = float(np.median(found.max(1))) - 1e-4
  labels, confident, passes = label(model, weights, x, threshold=threshold)
  np.testing.assert_array_equal(labels, found.argmax(1))
  near = np.abs(found.max(1) - threshold) < 1e-5
  np.testing.assert_array_equal(
    confident.numpy()[~near], (found.max(1) >= threshold)[~near]
  )
  assert labels.dtype == tf.int32 and confident.dtype == tf.float32
  assert passes.numpy().tolist() == [len(x), 0]


def test_no_examples(model):
  empty = np.zeros((0, 5), np.float32)
  labels, confident, passes = label(model, model.initial_weights(1), empty)
  assert labels.shape == confident.shape == (0,)
  assert passes.numpy().tolist() == [0, 0]


def test_the_weak_view_is_the_seed_s(model):
  weights = model.initial_weights(1)
  x = np.random.default_rng(0).uniform(size=(50, 5)).astype(np.float32)
  first, again, other = (
    label(model, weights, x, 'weak', seed=seed)[0].numpy()
    for seed in ((0, 1), (0, 1), (0, 2))
  )
  np.testing.assert_array_equal(first, again)
  assert np.any(first != other)
  assert np.any(first != label(model, weights, x)[0].numpy())
