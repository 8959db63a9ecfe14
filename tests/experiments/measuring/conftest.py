"""What tests of measurements share: a small network, and numpy's numbers."""

import numpy as np
import pytest


@pytest.fixture(scope='session')
def model():
  """For images of 4 x 4 pixels and three classes, with five hidden units."""
  from tff_ssl.models import dense, functional

  return functional.from_keras(dense.dense((4, 4, 1), 3, hidden=(5,)))


@pytest.fixture(scope='session')
def image_views():
  from tff_ssl import augmentation

  return augmentation.ImageViews(mean=(0.25,), stddev=(0.5,), fill=0)


@pytest.fixture(scope='session')
def log_probabilities():
  """What `model` says of images as `image_views` shows them, by numpy."""

  def compute(images, weights):
    kernel1, bias1, kernel2, bias2 = weights.trainable
    x = (images.reshape(len(images), -1) / 255 - 0.25) / 0.5
    logits = np.maximum(x @ kernel1 + bias1, 0) @ kernel2 + bias2
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

  return compute
