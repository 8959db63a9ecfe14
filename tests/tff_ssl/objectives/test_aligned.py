"""How a client's labels move pseudo-labels, against numbers worked by hand."""

import collections

import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import objectives, plans
from tff_ssl.augmentation import views
from tff_ssl.objectives import aligned
from tff_ssl.templates import local_training

_SEED = tf.constant([3, 4])
# Mean .6, .3, .1.
_PROBABILITIES = np.float32([[0.8, 0.1, 0.1], [0.4, 0.5, 0.1]])


@pytest.mark.parametrize(
  'labels, strength, shares',
  [
    # (0 + 2 * .6) / 4, (1 + 2 * .3) / 4, (1 + 2 * .1) / 4.
    ([1, 2], 2.0, [0.3, 0.4, 0.3]),
    ([2, 2], 1e-6, [0.0, 0.0, 1.0]),
    ([1, 2], 1e9, [0.6, 0.3, 0.1]),
    ([-1, -1], 2.0, [0.6, 0.3, 0.1]),
  ],
)
def test_shares_of_classes_by_hand(labels, strength, shares):
  found = aligned.log_alignment(
    tf.constant(_PROBABILITIES), tf.constant(labels), strength
  )
  np.testing.assert_allclose(np.exp(found) * [0.6, 0.3, 0.1], shares, atol=1e-5)


def test_labels_that_the_model_finds_as_often_change_nothing():
  labels = [0] * 6 + [1] * 3 + [2]
  found = aligned.log_alignment(
    tf.constant(np.repeat(_PROBABILITIES, 5, axis=0)), tf.constant(labels), 3.0
  )
  np.testing.assert_allclose(found, np.zeros(3), atol=1e-6)


def test_a_class_that_is_found_nowhere_and_a_client_without_examples():
  nowhere = tf.constant([[1.0, 0.0], [1.0, 0.0]])
  found = aligned.log_alignment(nowhere, tf.constant([1, -1]), 1.0)
  # (0 + 1) / 2 of 1; (1 + 1e-6) / 2 of 1e-6.
  np.testing.assert_allclose(np.exp(found), [0.5, 5e5], rtol=1e-4)
  empty = aligned.log_alignment(tf.zeros([0, 2]), tf.zeros([0], tf.int32), 1.0)
  assert np.isfinite(empty).all()


def _trained(objective, y, labelled_batch_size=2, batch_size=8):
  """Returns what a step gives on examples whose true class is 2."""
  training = local_training.LocalTraining(
    federations.model(4, 3),
    objective,
    plans.TrainingPlan(
      tff.learning.optimizers.build_sgdm(0.1),
      batch_size=batch_size,
      labelled_batch_size=labelled_batch_size,
      steps=1,
    ),
  )
  x = np.float32(np.random.default_rng(1).normal(size=(8, 4)))
  examples = collections.OrderedDict(
    x=tf.constant(x), y=tf.constant(y), true_y=tf.fill([8], 2)
  )
  start = tf.nest.map_structure(tf.constant, training.model.initial_weights(5))

  @tf.function(autograph=False)
  def train():
    return training.run(start, examples, seed=_SEED, round_num=tf.constant(0))

  return train()


def test_a_client_whose_labels_say_everything_gives_its_class_to_all():
  metrics = [
    _trained(
      objectives.AlignedLabels(
        views.PlainViews(), prior_strength=strength, min_confidence=0.0
      ),
      [2, 2] + [-1] * 6,
    ).metrics['pseudo_label_accuracy']
    for strength in (1e-9, 1e9)
  ]
  right, counted = metrics[0]
  assert right == counted > 0
  assert metrics[1][0] < metrics[1][1]


@pytest.mark.parametrize('rule', ['self_adaptive', 'client_adaptive', 'fixed'])
def test_without_alignment_it_is_crl_beside_labels(rule):
  """Two others add up to it then, where a step takes half of the examples."""
  selected = {'pseudo_label_rule': rule, 'threshold': 0.4}
  y = [0, 1] + [-1] * 6
  both = _trained(
    objectives.AlignedLabels(
      federations.ShiftedViews(),
      prior_strength=1e9,
      min_confidence=0.2,
      unlabelled_weight=0.5,
      **selected,
    ),
    y,
    batch_size=4,
  )
  unlabelled = _trained(
    objectives.ConsistencyRegularization(
      federations.ShiftedViews(),
      teacher='received',
      min_confidence=0.2,
      **selected,
    ),
    y,
    labelled_batch_size=None,
    batch_size=4,
  )
  supervised = _trained(
    objectives.Supervised(federations.ShiftedViews()), y, None
  )
  start = federations.model(4, 3).initial_weights(5).trainable
  for w, found, one, other in zip(
    start,
    *(r.weights.trainable for r in (both, supervised, unlabelled)),
    strict=True,
  ):
    np.testing.assert_allclose(
      found - w, (one - w) + 0.5 * (other - w), atol=1e-6
    )
  assert np.abs(unlabelled.weights.trainable[0] - start[0]).max() > 1e-4


def test_refusals():
  for name, value in (('prior_strength', 0.0), ('min_confidence', 1.5)):
    with pytest.raises(ValueError, match=f'{name} must be .*{value}'):
      objectives.AlignedLabels(views.PlainViews(), **{name: value})
