"""Softmax regression, in NumPy too: weights are a kernel and a bias."""

import numpy as np
import scipy.special
import tensorflow as tf

from tff_ssl.models import functional


def model(num_features, num_classes, initial_weights=None):
  """Returns the model x W + b, whose rounds can be worked out by hand."""
  specs = [
    tf.TensorSpec([num_features, num_classes]),
    tf.TensorSpec([num_classes]),
  ]
  return functional.FunctionalModel(
    initial_weights=initial_weights,
    predict=lambda trainable, non_trainable, x, *, training, seed=None: (
      tf.matmul(x, trainable[0]) + trainable[1],
      non_trainable,
    ),
    input_spec=tf.TensorSpec([None, num_features], tf.float32),
    weights_spec=functional.ModelWeights(specs, []),
    is_random=False,
  )


def probabilities(weights, x):
  """Returns those of each class, in float64."""
  kernel, bias = (np.asarray(leaf, np.float64) for leaf in weights)
  return scipy.special.softmax(x @ kernel + bias, axis=1)


def gradient(weights, x, y, mask=1.0):
  """Of the mean cross-entropy; where a mask is 0, an example counts as such."""
  errors = probabilities(weights, x)
  errors = (errors - np.eye(errors.shape[1])[y]) * np.reshape(mask, [-1, 1])
  return [x.T @ errors / len(x), errors.mean(axis=0)]


def step(weights, x, y, rate, mask=1.0):
  """Returns the weights after a step of gradient descent."""
  gradients = gradient(weights, x, y, mask)
  return [w - rate * g for w, g in zip(weights, gradients, strict=True)]
