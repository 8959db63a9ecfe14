"""What the deeper networks share: each trains through the door, in any norm."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import objectives, optimizers, plans
from tff_ssl.augmentation import views
from tff_ssl.models import MODELS, functional
from tff_ssl.templates import local_training

_NAMES = ('resnet9', 'resnet18', 'vgg11')
_CASES = [
  *((name, norm) for name in _NAMES for norm in ('none', 'batch', 'group')),
  # They take long: once.
  ('resnet50', 'none'),
  ('wide_resnet28_2', 'batch'),
]
_SHAPE = (8, 8, 3)


def _examples():
  rng = np.random.default_rng(0)
  return collections.OrderedDict(
    x=tf.constant(rng.normal(size=(4, *_SHAPE)), tf.float32),
    y=tf.constant([7, 1, 4, 1]),
  )


@pytest.mark.parts
@pytest.mark.parametrize('name, norm', _CASES)
def test_two_steps_of_training(name, norm):
  model = functional.from_keras(
    lambda: MODELS[name].build(_SHAPE, num_classes=10, norm=norm)
  )
  training = local_training.LocalTraining(
    model,
    objectives.Supervised(views.PlainViews()),
    plans.TrainingPlan(
      optimizers.build_nesterov_sgd(0.01, 0.9), batch_size=4, steps=1
    ),
  )
  examples = _examples()

  @tf.function(autograph=False)
  def step(weights):
    return training.run(
      weights, examples, seed=tf.constant([1, 2]), round_num=tf.constant(0)
    )

  start = tf.nest.map_structure(tf.constant, model.initial_weights(3))
  # In the second step all is reached, what lies below weights of 0 as well.
  first = step(start)
  second = step(first.weights)
  # Both steps see the same four examples: the loss before, and after a step.
  before, after = (
    float(total / count)
    for total, count in (first.metrics['loss'], second.metrics['loss'])
  )
  # An untrained network is sure of nothing: log(10) = 2.30.
  assert before == pytest.approx(np.log(10), abs=1.0)
  assert np.isfinite(after) and abs(after - before) > 1e-4
  for old, new in zip(start.trainable, second.weights.trainable, strict=True):
    assert np.isfinite(new).all() and not np.array_equal(old, new)
  # Moving averages are batch normalisation's alone, and move.
  moving = list(
    zip(start.non_trainable, second.weights.non_trainable, strict=True)
  )
  assert bool(moving) == (norm == 'batch')
  for old, new in moving:
    assert np.isfinite(new).all() and not np.array_equal(old, new)


@pytest.mark.parts
@pytest.mark.parametrize('name', _NAMES)
def test_initial_weights_are_the_seeds(name):
  model = functional.from_keras(lambda: MODELS[name].build(_SHAPE, 10, 'none'))
  first, again, other = (model.initial_weights(s).trainable for s in (3, 3, 4))
  is_drawn = [w.ndim > 1 and w.any() for w in first]
  assert any(is_drawn)
  for a, b, c, drawn in zip(first, again, other, is_drawn, strict=True):
    np.testing.assert_array_equal(a, b)
    assert np.array_equal(a, c) != drawn
