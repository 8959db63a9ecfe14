"""Losses with the examples that they take, against those with all of them."""

import collections

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
from comparing import assert_close

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.objectives.maths import selected
from tff_ssl.templates import prediction

_SEED = tf.constant([1, 2])
_SIZE = 40


class ReversedViews(views.PlainViews):
  """The strong view is the reverse of the weak one, so that the two differ."""

  def strong(self, examples, seed):
    return self.plain(examples)[:, ::-1]


class Everything(prediction.Predictor):
  """Lets all examples through, as where batch normalisation needs them."""

  has_moving_state = True


def build(norm='none'):
  return federations.model(4, 3, norm, hidden=(6,))


@pytest.fixture(scope='module')
def model():
  return build()


def weights(model, seed):
  """Weights large enough for confident predictions on some examples."""
  return tf.nest.map_structure(
    lambda value: tf.constant(3 * value), model.initial_weights(seed)
  )


def examples(size, seed=0):
  rng = np.random.default_rng(seed)
  return collections.OrderedDict(
    x=tf.constant(rng.normal(size=(size, 4)), tf.float32),
    y=tf.constant(rng.integers(0, 3, size), tf.int32),
  )


def differentiate(kind, model, objective):
  """Returns loss, gradients, metrics and the sizes of all forward passes."""
  student = weights(model, 1)
  batch = examples(_SIZE)
  batch['labelled'] = examples(5, seed=1)
  anchors = objectives.Experts(weights(model, 2), weights(model, 3))
  with tf.GradientTape() as tape:
    tape.watch(student.trainable)
    predict = kind(model, student.trainable, [])
    loss, metrics = objective(predict, batch, anchors, _SEED)
  gradients = tape.gradient(loss, student.trainable)
  sizes = [int(tf.shape(outputs)[0]) for outputs in predict.outputs]
  return loss, gradients, metrics, sizes


@pytest.mark.parametrize(
  'objective, takes',
  [
    (objectives.ConsistencyRegularization(ReversedViews(), 0.9), ['mask_rate']),
    (objectives.SemiSupervised(ReversedViews(), 0.9), ['mask_rate']),
    (
      objectives.SemiSupervised(ReversedViews(), 0.9, unlabelled_loss='uda'),
      ['mask_rate'],
    ),
    (
      objectives.TwoExperts(ReversedViews(), 0.9),
      ['mask_rate', 'agreement_rate'],
    ),
    (
      objectives.TwoExperts(ReversedViews(), 0.9, consistency_view='strong'),
      ['mask_rate'],
    ),
  ],
)
@pytest.mark.parametrize('norm', costs.rest_in('parts', ['none', 'group']))
def test_loss_and_gradient_are_those_of_all_examples(norm, objective, takes):
  model = build(norm)
  loss, gradients, metrics, sizes = differentiate(
    prediction.Predictor, model, objective
  )
  whole, expected, whole_metrics, _ = differentiate(
    Everything, model, objective
  )
  np.testing.assert_allclose(loss, whole, rtol=1e-5)
  assert float(loss) > 0
  assert_close(gradients, expected, atol=1e-6)
  for name, pair in whole_metrics.items():
    np.testing.assert_allclose(metrics[name], pair, rtol=1e-5, err_msg=name)
  taken = [int(metrics[name][0]) for name in takes]
  assert all(0 < number < _SIZE for number in taken)
  assert len(set(taken)) == len(taken)
  assert sizes[-len(taken) :] == taken


def test_nothing_selected_has_no_gradient(model):
  student, x = weights(model, 1), examples(_SIZE)['x']

  # As in training: without a graph, a branch not taken has no gradient at all.
  @tf.function(autograph=False)
  def differentiate_none():
    with tf.GradientTape() as tape:
      tape.watch(student.trainable)
      predict = prediction.Predictor(model, student.trainable, [])
      logits = selected.predict_selected(
        predict, x, tf.zeros([_SIZE]), _SEED, like=tf.zeros([_SIZE, 3])
      )
    return logits, tape.gradient(logits, student.trainable)

  logits, gradients = differentiate_none()
  np.testing.assert_array_equal(logits, np.zeros([_SIZE, 3]))
  for gradient, value in zip(gradients, student.trainable, strict=True):
    np.testing.assert_array_equal(gradient, np.zeros(value.shape))


def test_predictions_that_are_no_numbers_show_in_the_loss(model):
  """Nothing is sure of them, and yet their client must be left out."""
  student = tf.nest.map_structure(
    lambda value: value * np.float32(1e30), weights(model, 1)
  )
  predict = prediction.Predictor(model, student.trainable, [])
  objective = objectives.ConsistencyRegularization(ReversedViews(), 0.9)
  loss, _ = objective(predict, examples(_SIZE), None, _SEED)
  assert not np.isfinite(float(loss))
