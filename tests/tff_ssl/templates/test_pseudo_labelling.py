"""Labels of many examples at once, against numpy."""

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf

from tff_ssl.augmentation import views
from tff_ssl.templates import pseudo_labelling


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
    return pseudo_labelling.label(
      model,
      weights,
      x,
      views=_Shifted(),
      view=view,
      threshold=threshold,
      seed=seed,
    )

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
    label(model, weights, x, 'weak', seed=seed).labels.numpy()
    for seed in ((0, 1), (0, 1), (0, 2))
  )
  np.testing.assert_array_equal(first, again)
  assert np.any(first != other)
  assert np.any(first != label(model, weights, x).labels.numpy())
