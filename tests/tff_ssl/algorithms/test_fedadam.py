"""FedAdam: Adam at the server against numpy, from FedAvg's own deltas."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import algorithms
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import client_data

_FEATURES, _CLASSES = 4, 3
_BETA_1, _BETA_2, _TAU = 0.9, 0.99, 1e-3
_RATE = 0.05


def client(index):
  rng = np.random.default_rng(index)
  size = 5 + index
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(
      x=rng.normal(size=(size, _FEATURES)).astype(np.float32),
      y=rng.integers(0, _CLASSES, size).astype(np.int32),
    )
  )


def test_rounds_equal_adam_on_fedavgs_changes(tff_context):
  def build(name, **settings):
    return algorithms.PROCESSES[name].build(
      functional.from_keras(
        lambda: dense.dense((_FEATURES,), _CLASSES, hidden=())
      ),
      data_spec=client_data.ClientDataSpec(
        client_data.image_element_spec((_FEATURES,), dtype=tf.float32)
      ),
      views=views.PlainViews(),
      client_optimizer=tff.learning.optimizers.build_sgdm(0.3),
      batch_size=16,
      local_epochs=2,
      **settings,
    )

  adam = build('fedadam', server_learning_rate=_RATE)
  average = build('fedavg')
  state, reference = adam.initialize(), average.initialize()
  moments = [(0.0, 0.0)] * 2
  for step in range(1, 4):
    clients = [client(step), client(step + 3)]
    start = adam.get_model_weights(state)
    reference = average.next(
      average.set_model_weights(reference, start), clients
    ).state
    state = adam.next(state, clients).state
    ends = average.get_model_weights(reference).trainable
    actual = adam.get_model_weights(state).trainable
    for leaf, (w, end) in enumerate(zip(start.trainable, ends, strict=True)):
      change = np.float64(end) - w
      m, v = moments[leaf]
      m = _BETA_1 * m + (1 - _BETA_1) * change
      v = _BETA_2 * v + (1 - _BETA_2) * change**2
      moments[leaf] = m, v
      # TFF's correction for the start, which multiplies the rate.
      rate = _RATE * np.sqrt(1 - _BETA_2**step) / (1 - _BETA_1**step)
      expected = w + rate * m / (np.sqrt(v) + _TAU)
      np.testing.assert_allclose(actual[leaf], expected, atol=1e-5)
