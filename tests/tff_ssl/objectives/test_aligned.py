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
  means, found, _ = aligned.class_shares(
    tf.constant(_PROBABILITIES), tf.constant(labels), strength
  )
  np.testing.assert_allclose(means, [0.6, 0.3, 0.1], atol=1e-6)
  np.testing.assert_allclose(found, shares, atol=1e-5)


def test_labels_that_the_model_finds_as_often_change_nothing():
  labels = [0] * 6 + [1] * 3 + [2]
  means, shares, _ = aligned.class_shares(
    tf.constant(np.repeat(_PROBABILITIES, 5, axis=0)), tf.constant(labels), 3.0
  )
  np.testing.assert_allclose(means, shares, atol=1e-6)


def test_a_class_that_is_found_nowhere_and_a_client_without_examples():
  nowhere = tf.constant([[1.0, 0.0], [1.0, 0.0]])
  means, shares, _ = aligned.class_shares(nowhere, tf.constant([1, -1]), 1.0)
  # (0 + 1) / 2 of 1; (1 + 1e-6) / 2 of 1e-6.
  np.testing.assert_allclose(shares / means, [0.5, 5e5], rtol=1e-4)
  empty = aligned.class_shares(tf.zeros([0, 2]), tf.zeros([0], tf.int32), 1.0)
  for part in empty:
    assert np.isfinite(np.log(part)).all()


@pytest.mark.parametrize(
  'shares, labels, strength, covered',
  [
    # Without labels 1 / (4 sum pi^2): all, half, a quarter of four classes.
    ([0.25, 0.25, 0.25, 0.25], [-1], 1.0, 1.0),
    ([0.5, 0.5, 0.0, 0.0], [-1], 1.0, 0.5),
    ([0.0, 0.0, 1.0, 0.0], [-1], 1.0, 0.25),
    # By labels alone: 2 of 6 pairs are of one class; all; none.
    ([0.25, 0.25, 0.25, 0.25], [0, 0, 3, 3], 1e-6, 0.75),
    ([0.25, 0.25, 0.25, 0.25], [1, 1, 1], 1e-6, 0.25),
    ([0.25, 0.25, 0.25, 0.25], [0, 1, 2], 1e-6, 1.0),
    # One label tells nothing, by itself.
    ([0.25, 0.25, 0.25, 0.25], [2], 1e-6, 1.0),
    # pi = (3, 1, 1, 1) / 6 and v = 2 / 36: (12 / 36 - v) / (1 - v) = 10 / 34.
    ([0.25, 0.25, 0.25, 0.25], [0, 0], 4.0, 0.85),
  ],
)
def test_coverage_by_hand(shares, labels, strength, covered):
  probabilities = np.float32([shares] * len(labels))
  *_, found = aligned.class_shares(
    tf.constant(probabilities), tf.constant(labels), strength
  )
  np.testing.assert_allclose(found, covered, rtol=1e-3)


@pytest.mark.parametrize('classes, held', [(10, 1), (47, 5), (47, 47)])
def test_few_labels_are_not_few_classes(classes, held):
  """Ten labels of equally frequent classes, over many draws."""
  rng = np.random.default_rng(0)
  frequent = np.float32(np.arange(classes) < held) / held
  found = [
    aligned.class_shares(
      tf.constant(np.repeat(frequent[None], 10, axis=0)),
      tf.constant(rng.integers(0, held, 10), tf.int32),
      10.0,
    )[2]
    for _ in range(200)
  ]
  np.testing.assert_allclose(np.mean(found), held / classes, atol=0.1)


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
        views.PlainViews(),
        prior_strength=strength,
        min_confidence=0.0,
        min_coverage=0.0,
      ),
      [2, 2] + [-1] * 6,
    ).metrics['pseudo_label_accuracy']
    for strength in (1e-9, 1e9)
  ]
  right, counted = metrics[0]
  assert right == counted > 0
  assert metrics[1][0] < metrics[1][1]


@pytest.mark.parametrize('rule', ['self_adaptive', 'client_adaptive', 'fixed'])
@pytest.mark.parametrize('label', [0, 1])
def test_a_client_of_few_classes_trains_on_its_labels_alone(rule, label):
  """Almost all of pi is one class of three, so that a third is covered."""
  y = [label, label] + [-1] * 6
  found, all_of_it = (
    _trained(
      objectives.AlignedLabels(
        federations.ShiftedViews(),
        threshold=0.0,
        pseudo_label_rule=rule,
        prior_strength=0.1,
        min_confidence=0.0,
        min_coverage=least,
      ),
      y,
    )
    for least in (0.5, 0.3)
  )
  labels = _trained(objectives.Supervised(federations.ShiftedViews()), y, None)
  for one, other in zip(
    found.weights.trainable, labels.weights.trainable, strict=True
  ):
    np.testing.assert_allclose(one, other, atol=1e-6)
  assert found.metrics['mask_rate'][0] == 0
  assert all_of_it.metrics['mask_rate'][0] > 0


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
      min_coverage=0.0,
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


def test_a_client_without_labels_makes_pseudo_labels():
  objective = objectives.AlignedLabels(
    views.PlainViews(), min_confidence=0.0, min_coverage=1.0
  )
  trained = _trained(objective, [-1] * 8)
  assert trained.metrics['mask_rate'][0] > 0


def test_refusals():
  for name, value in (
    ('prior_strength', 0.0),
    ('min_confidence', 1.5),
    ('min_coverage', 1.1),
  ):
    with pytest.raises(ValueError, match=f'{name} must be .*{value}'):
      objectives.AlignedLabels(views.PlainViews(), **{name: value})
