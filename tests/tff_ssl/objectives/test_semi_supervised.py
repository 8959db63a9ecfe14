"""The two-term loss against its terms, each worked in numpy."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
from federations import ShiftedViews

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.models import convolutional, functional
from tff_ssl.templates import prediction

_SEED = tf.constant([1, 2])


def _batch(num_labelled=3):
  rng = np.random.default_rng(0)

  def part(size):
    return collections.OrderedDict(
      x=tf.constant(rng.normal(size=(size, 4)), tf.float32),
      y=tf.constant(rng.integers(0, 3, size), tf.int32),
    )

  batch = part(8)
  batch['labelled'] = part(num_labelled)
  return batch


@pytest.fixture(scope='module')
def model():
  return federations.model(4, 3)


def _predictor(model):
  return prediction.Predictor(
    model, *(list(map(tf.constant, w)) for w in model.initial_weights(5))
  )


def _log_probabilities(model, x):
  weights = model.initial_weights(5).trainable
  return np.log(softmax_regression.probabilities(weights, x))


def _terms(model, batch, threshold):
  """L_s, and L_u of Eq. 4 and of self-training on both views."""
  labelled = batch['labelled']
  rows = np.arange(len(labelled['y']))
  of_labels = _log_probabilities(model, labelled['x'])
  supervised = -of_labels[rows, labelled['y']].mean()
  weak = _log_probabilities(model, batch['x'])
  strong = _log_probabilities(model, batch['x'] + 1)

  def pseudo(teacher, student):
    passed = np.exp(teacher.max(1)) >= threshold
    loss = -student[np.arange(8), teacher.argmax(1)]
    assert 0 < passed.sum() < 8
    return (passed * loss).mean()

  both = (pseudo(weak, weak) + pseudo(strong, strong)) / 2
  return supervised, {'crl': pseudo(weak, strong), 'self_training': both}


@pytest.mark.parametrize('unlabelled_loss', ['crl', 'self_training'])
@pytest.mark.parametrize('weight', [1.0, 0.25])
def test_loss_is_the_sum_of_both_terms(model, unlabelled_loss, weight):
  objective = objectives.SemiSupervised(
    ShiftedViews(), 0.6, unlabelled_loss, weight
  )
  batch = _batch()
  loss, metrics = objective(_predictor(model), batch, None, _SEED)
  supervised, both = _terms(model, batch, 0.6)
  unlabelled = both[unlabelled_loss]
  for value, expected in (
    (loss, supervised + weight * unlabelled),
    (tf.divide(*metrics['loss']), supervised),
    (tf.divide(*metrics['unlabelled_loss']), unlabelled),
  ):
    assert float(value) == pytest.approx(expected, rel=1e-5)
  assert set(metrics) == set(objective.metric_names)


def test_weights_of_classes_are_those_of_labelled_examples(model):
  weights, batch = (0.5, 2.0, 4.0), _batch()
  losses = [
    float(objective(_predictor(model), batch, None, _SEED)[0])
    for objective in (
      objectives.SemiSupervised(ShiftedViews(), 0.6),
      objectives.SemiSupervised(ShiftedViews(), 0.6, class_weights=weights),
    )
  ]
  labels = np.asarray(batch['labelled']['y'])
  logs = _log_probabilities(model, batch['labelled']['x'])[range(3), labels]
  more = -((np.array(weights)[labels] - 1) * logs).mean()
  assert losses[1] - losses[0] == pytest.approx(more, rel=1e-4)
  with pytest.raises(ValueError, match='a positive number for each class'):
    objectives.SemiSupervised(ShiftedViews(), class_weights=(1.0, -1.0, 1.0))


def test_without_labels_the_supervised_term_is_zero(model):
  batch = _batch(num_labelled=0)
  objective = objectives.SemiSupervised(ShiftedViews(), 0.0)
  loss, metrics = objective(_predictor(model), batch, None, _SEED)
  unlabelled = tf.divide(*metrics['unlabelled_loss'])
  assert float(loss) == pytest.approx(float(unlabelled))
  assert [float(v) for v in metrics['loss']] == [0.0, 0.0]


@pytest.mark.parametrize(
  'kind', [objectives.SemiSupervised, objectives.ConsistencyRegularization]
)
def test_separate_views_do_not_fit_batch_normalisation(kind):
  normalised = federations.model(4, 3, 'batch', hidden=(5,))
  objective = kind(ShiftedViews(), views_forward='separate')
  with pytest.raises(ValueError, match="views_forward='separate'"):
    objective(_predictor(normalised), _batch(), None, _SEED)


@pytest.mark.parametrize('loss', ['crl', 'self_training', 'uda'])
@pytest.mark.parts
def test_convolutions_of_a_client_without_labels(loss):
  """The labelled minibatch turns out empty when the graph runs."""
  model = functional.from_keras(convolutional.small_cnn((8, 8, 1), 3))
  objective = objectives.SemiSupervised(
    views.PlainViews(), threshold=0.0, unlabelled_loss=loss
  )
  x = tf.random.stateless_uniform([4, 8, 8, 1], _SEED)

  @tf.function(autograph=False)
  def gradient(num_labelled):
    batch = collections.OrderedDict(x=x, y=tf.fill([4], -1))
    batch['labelled'] = collections.OrderedDict(
      x=tf.zeros([num_labelled, 8, 8, 1]), y=tf.zeros([num_labelled], tf.int32)
    )
    predict = _predictor(model)
    with tf.GradientTape() as tape:
      tape.watch(predict.trainable)
      value, metrics = objective(predict, batch, None, _SEED)
    return tape.gradient(value, predict.trainable), metrics

  found, metrics = gradient(tf.constant(0))
  assert metrics['loss'] == (0, 0)
  assert np.abs(found[0]).max() > 0 and np.isfinite(found[0]).all()
  # Of 2 labels, known when the graph runs or when it is built.
  some, metrics = gradient(tf.constant(2))
  same, _ = gradient(2)
  assert metrics['loss'][1] == 2
  np.testing.assert_allclose(some[0], same[0], rtol=1e-5)
