"""Softmax regression in NumPy: weights are a kernel and a bias."""

import numpy as np
import scipy.special


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
