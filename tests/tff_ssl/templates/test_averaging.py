"""The mean of clients' changes: by weights that clients claim, and a cap."""

import collections

import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.models import functional
from tff_ssl.templates import averaging, client_task, local_training

ModelWeights = tff.learning.models.ModelWeights

_CLAIM = 1e12


def _train(task):
  """Changes the weights by the mean of x; a label of 9 is a false claim."""
  x, y = task.examples['x'], task.examples['y']
  size = tf.cast(tf.shape(y)[0], tf.float32)
  weights = ModelWeights(
    [task.weights.trainable[0] + tf.reduce_mean(x, axis=0)], []
  )
  return client_task.TrainingResult(
    weights,
    (),
    collections.OrderedDict(),
    tf.where(tf.reduce_any(tf.equal(y, 9)), _CLAIM, size),
    tf.stack([size, size]),
  )


def _mean(deltas, sizes, liar, **wired):
  """Returns the mean change of clients, one of which lies about its size."""
  specs = ModelWeights([tf.TensorSpec([2], tf.float32)], [])
  model = functional.FunctionalModel(
    initial_weights=lambda seed: ModelWeights([np.zeros(2, np.float32)], []),
    predict=None,
    input_spec=tf.TensorSpec([None, 2], tf.float32),
    weights_spec=specs,
    is_random=False,
  )
  process = averaging.compose(
    local_training.LocalTraining(
      model,
      objectives.Supervised(views.PlainViews()),
      tff_ssl.TrainingPlan(
        tff.learning.optimizers.build_sgdm(0.1), batch_size=1, steps=1
      ),
    ),
    train=_train,
    data_spec=federations.data_spec((2,)),
    client_weighting='examples',
    wiring=tff_ssl.Wiring(**wired),
  )
  clients = [
    tf.data.Dataset.from_tensors(
      collections.OrderedDict(
        x=np.tile(np.float32(delta), [size, 1]),
        y=np.full(size, 9 if k == liar else 0, np.int32),
      )
    )
    for k, (delta, size) in enumerate(zip(deltas, sizes, strict=True))
  ]
  output = process.next(process.initialize(), clients)
  assert output.metrics['client_work']['clients']['participating'] == len(sizes)
  return process.get_model_weights(output.state).trainable[0]


def test_a4_a_claim_of_many_examples_counts_no_more_than_the_cap(tff_context):
  deltas = np.array([[1, 2], [-3, 1], [0.5, -1]], np.float32)
  sizes = [4, 30, 8]
  cap = 10.0
  # The second client has more than the cap, and the third one only says so.
  expected = np.average(deltas, axis=0, weights=[4, cap, cap])
  actual = _mean(deltas, sizes, 2, max_client_weight=cap)
  np.testing.assert_allclose(actual, expected, atol=1e-6)
  # It cannot move the mean of the others by more than its share of weights.
  others = np.average(deltas[:2], axis=0, weights=[4, cap])
  np.testing.assert_allclose(
    actual - others, cap / (4 + 2 * cap) * (deltas[2] - others), atol=1e-6
  )
  # Without a cap it is the mean.
  np.testing.assert_allclose(_mean(deltas, sizes, 2), deltas[2], atol=1e-6)


@pytest.mark.parametrize('cap', [0.0, -1.0, float('nan'), 'many'])
def test_a_cap_out_of_range(cap):
  with pytest.raises(ValueError, match='max_client_weight must be'):
    tff_ssl.Wiring(max_client_weight=cap)
