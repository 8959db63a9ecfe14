"""The proxy task's gradients, alone and beside the classifier's."""

import collections

import numpy as np
import pytest
import scipy.special
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import models, objectives
from tff_ssl.augmentation import views
from tff_ssl.models import split
from tff_ssl.objectives import proxy_tasks
from tff_ssl.templates import local_training, prediction

_SHAPE = (4, 4, 1)
_SEED = tf.constant([1, 2])
_VIEWS = views.PlainViews()
_TASKS = [objectives.Reconstruction(), objectives.Rotation()]
_ENCODER, _CLASSIFIER, _PROXY = range(3)


def _build(task, norm='none'):
  model = models.build('dense_encoder', _SHAPE, 3, norm)
  return proxy_tasks.add_head(model, task, _VIEWS)


@pytest.fixture(scope='module', params=_TASKS, ids=['same', 'rotated'])
def task(request):
  return request.param


@pytest.fixture(scope='module')
def joint(task):
  return _build(task)


def _weights(model):
  return tf.nest.map_structure(tf.constant, model.initial_weights(5))


def _batch(labels):
  rng = np.random.default_rng(0)
  x = rng.uniform(size=(len(labels), *_SHAPE)).astype(np.float32)
  return collections.OrderedDict(
    x=tf.constant(x), y=tf.constant(labels, tf.int32)
  )


_UNLABELLED = [-1, -1, -1, -1]
_LABELLED = [2, 0, 1, 1]
_SOME = [2, -1, 1, -1]


def _gradient(joint, objective, labels, parts=None):
  """Returns the gradient of each part of the joint model, and the metrics.

  Where parts are given, the objective sees a model of these alone.
  """
  chosen = parts or list(range(len(joint.parts)))
  model = split.join(*(joint.parts[part] for part in chosen))
  gradient, metrics, *_ = local_training.objective_gradient(
    model,
    objective,
    joint.take(_weights(joint), chosen),
    _batch(labels),
    None,
    _SEED,
  )
  whole = tff.learning.models.ModelWeights(gradient, [])
  return {
    part: np.concatenate(
      [g.numpy().ravel() for g in model.take(whole, [place]).trainable]
    )
    for place, part in enumerate(chosen)
  }, metrics


def _proxy_gradient(joint, task, labels):
  objective = objectives.SelfSupervised(_VIEWS, task)
  return _gradient(joint, objective, labels, [_ENCODER, _PROXY])


def _by_hand(task):
  """Returns the joint model, its gradient and metrics, and the images."""
  joint = _build(task)
  images = _batch(_UNLABELLED)['x'].numpy()
  return joint, _proxy_gradient(joint, task, _UNLABELLED), images


def _supervised_gradient(joint, labels):
  objective = objectives.Supervised(_VIEWS)
  return _gradient(joint, objective, labels, [_ENCODER, _CLASSIFIER])


def _mean(pair):
  return float(pair[0]) / float(pair[1])


class TestSelfSupervised:
  def test_reconstruction_by_hand(self):
    joint, (gradient, metrics), images = _by_hand(_TASKS[0])
    w, b, _, _, u, d = joint.initial_weights(5).trainable
    x = images.reshape(4, 16)
    features = np.maximum(x @ w + b, 0)
    p = scipy.special.expit(features @ u + d)
    entropies = -x * np.log(p) - (1 - x) * np.log(1 - p)
    total, count = metrics['proxy_loss']
    assert float(count) == 4
    assert float(total) == pytest.approx(entropies.mean(1).sum(), rel=1e-5)
    # The loss is the mean over pixels and images.
    decoder = np.append(features.T @ (p - x), (p - x).sum(0)) / (4 * 16)
    np.testing.assert_allclose(gradient[_PROXY], decoder, atol=1e-6)
    hidden = (p - x) @ u.T * (features > 0)
    encoder = np.append(x.T @ hidden, hidden.sum(0)) / (4 * 16)
    np.testing.assert_allclose(gradient[_ENCODER], encoder, atol=1e-6)

  @pytest.mark.parts
  def test_rotation_by_hand(self):
    joint, (gradient, metrics), images = _by_hand(_TASKS[1])
    w, b, _, _, *head = joint.initial_weights(5).trainable
    x = np.concatenate([np.rot90(images, k, axes=(1, 2)) for k in range(4)])
    features = np.maximum(x.reshape(16, 16) @ w + b, 0)
    turns = np.repeat(np.arange(4), 4)
    p = softmax_regression.probabilities(head, features)
    total, count = metrics['proxy_loss']
    # Four copies of four images.
    assert float(count) == 16
    assert float(total) == pytest.approx(
      -np.log(p[range(16), turns]).sum(), rel=1e-5
    )
    of_head = softmax_regression.gradient(head, features, turns)
    np.testing.assert_allclose(gradient[_PROXY], np.append(*of_head), atol=1e-6)

  def test_labels_are_not_read(self, joint, task):
    labelled, _ = _proxy_gradient(joint, task, _LABELLED)
    unlabelled, _ = _proxy_gradient(joint, task, _UNLABELLED)
    for part in (_ENCODER, _PROXY):
      np.testing.assert_array_equal(labelled[part], unlabelled[part])

  def test_learns_from_the_weak_view(self, joint, task):
    class Doubled(views.PlainViews):
      def weak(self, examples, seed):
        return 2 * self.plain(examples)

    seen = []

    def predict(x, *, seed):
      seen.append(x)
      outputs, _ = joint.predict(
        _weights(joint).trainable, [], x, training=False
      )
      return outputs[-1]

    objective = objectives.SelfSupervised(Doubled(), task)
    batch = _batch(_UNLABELLED)
    loss, metrics = objective(predict, batch, None, _SEED)
    inputs, _ = task.make(2 * batch['x'], _SEED)
    np.testing.assert_array_equal(seen[0], inputs)
    total, count = metrics['proxy_loss']
    # Of all inputs: four copies of each image, where it is rotated.
    assert float(count) == len(inputs)
    assert float(total) == pytest.approx(float(loss) * len(inputs))

  def test_a_batch_without_examples(self, joint, task):
    gradient, metrics = _proxy_gradient(joint, task, [])
    for part in (_ENCODER, _PROXY):
      np.testing.assert_array_equal(gradient[part], 0 * gradient[part])
    assert [float(v) for v in metrics['proxy_loss']] == [0.0, 0.0]


class TestJointlyOptimized:
  @pytest.mark.parametrize('weight', [1.0, 0.3])
  def test_unlabelled_minibatch_is_the_tasks_alone(self, joint, task, weight):
    objective = objectives.JointlyOptimized(_VIEWS, task, weight)
    gradient, metrics = _gradient(joint, objective, _UNLABELLED)
    proxy, proxy_metrics = _proxy_gradient(joint, task, _UNLABELLED)
    np.testing.assert_array_equal(gradient[_CLASSIFIER], np.zeros(256 * 3 + 3))
    for part in (_ENCODER, _PROXY):
      assert np.abs(proxy[part]).max() > 1e-3
      np.testing.assert_allclose(
        gradient[part], weight * proxy[part], rtol=1e-5, atol=1e-7
      )
    assert [float(v) for v in metrics['loss']] == [0.0, 0.0]
    assert [float(v) for v in metrics['accuracy']] == [0.0, 0.0]
    # The metric is the task's loss itself, whatever its weight.
    assert _mean(metrics['proxy_loss']) == pytest.approx(
      _mean(proxy_metrics['proxy_loss']), rel=1e-6
    )
    assert tuple(metrics) == objective.metric_names

  @pytest.mark.parametrize('labels', [_LABELLED, _SOME], ids=['all', 'some'])
  @pytest.mark.parametrize('weight', [1.0, 0.3])
  def test_labelled_minibatch_is_the_sum(self, joint, task, weight, labels):
    objective = objectives.JointlyOptimized(_VIEWS, task, weight)
    gradient, metrics = _gradient(joint, objective, labels)
    proxy, proxy_metrics = _proxy_gradient(joint, task, labels)
    supervised, supervised_metrics = _supervised_gradient(joint, labels)
    expected = {
      _ENCODER: supervised[_ENCODER] + weight * proxy[_ENCODER],
      _CLASSIFIER: supervised[_CLASSIFIER],
      _PROXY: weight * proxy[_PROXY],
    }
    for part, want in expected.items():
      np.testing.assert_allclose(gradient[part], want, rtol=1e-4, atol=1e-6)
    for name, pair in {**supervised_metrics, **proxy_metrics}.items():
      np.testing.assert_allclose(metrics[name], pair, rtol=1e-5)

  def test_weight_zero_is_supervised(self, joint, task):
    objective = objectives.JointlyOptimized(_VIEWS, task, 0)
    gradient, _ = _gradient(joint, objective, _LABELLED)
    supervised, _ = _supervised_gradient(joint, _LABELLED)
    for part, expected in supervised.items():
      np.testing.assert_allclose(gradient[part], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(gradient[_PROXY], 0 * gradient[_PROXY])

  @pytest.mark.parametrize(
    'task, sizes', zip(_TASKS, ([4], [4, 16]), strict=True)
  )
  @pytest.mark.parts
  def test_number_of_forward_passes(self, task, sizes):
    joint = _build(task)
    weights = _weights(joint)
    predictor = prediction.Predictor(joint, weights.trainable, [])
    calls = []

    def predict(x, *, seed):
      calls.append((x.shape[0], tuple(seed.numpy())))
      return predictor(x, seed=seed)

    objective = objectives.JointlyOptimized(_VIEWS, task)
    objective(predict, _batch(_LABELLED), None, _SEED)
    assert [size for size, _ in calls] == sizes
    # Passes draw dropout of their own.
    assert len({seed for _, seed in calls}) == len(sizes)

  @pytest.mark.parts
  def test_moving_statistics_follow_every_pass(self):
    task = objectives.Rotation()
    joint = _build(task, 'batch')
    weights = _weights(joint)
    batch = _batch(_LABELLED)
    _, _, state, _ = local_training.objective_gradient(
      joint,
      objectives.JointlyOptimized(_VIEWS, task),
      weights,
      batch,
      None,
      _SEED,
    )
    x = batch['x'].numpy()
    turned = np.concatenate([np.rot90(x, k, axes=(1, 2)) for k in range(4)])
    kernel, bias = (w.numpy() for w in weights.trainable[:2])
    expected = np.zeros(256)
    for inputs in (x, turned):
      hidden = inputs.reshape(len(inputs), 16) @ kernel + bias
      expected = 0.9 * expected + 0.1 * hidden.mean(0)
    np.testing.assert_allclose(state[0], expected, rtol=1e-4, atol=1e-6)
