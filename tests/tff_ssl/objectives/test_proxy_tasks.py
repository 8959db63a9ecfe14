"""Proxy tasks against numpy, scikit-learn and Keras; what trains by them."""

import collections
import re

import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import augmentation, models, objectives
from tff_ssl.augmentation import image_views, views
from tff_ssl.models import dense, functional, split
from tff_ssl.objectives import proxy_tasks
from tff_ssl.templates import local_training, prediction

layers = tf.keras.layers

_SHAPE = (4, 4, 1)
_SEED = tf.constant([1, 2])
_PLAIN = views.PlainViews()


def _images(size=3, shape=_SHAPE, seed=0):
  rng = np.random.default_rng(seed)
  return rng.uniform(size=(size, *shape)).astype(np.float32)


def _logits(size=3, shape=_SHAPE):
  rng = np.random.default_rng(1)
  return rng.normal(0, 3, (size, *shape)).astype(np.float32)


@pytest.fixture(scope='module')
def model():
  return models.build('dense_encoder', _SHAPE, 3, 'none')


class TestReconstruction:
  def test_cross_entropy_is_the_mean_over_pixels(self):
    images, logits = _images(shape=(2, 3, 2)), _logits(shape=(2, 3, 2))
    losses = proxy_tasks.Reconstruction().losses(
      tf.constant(logits), tf.constant(images)
    )
    p = scipy.special.expit(logits.astype(np.float64))
    entropies = -images * np.log(p) - (1 - images) * np.log(1 - p)
    np.testing.assert_allclose(losses, entropies.mean((1, 2, 3)), rtol=1e-5)
    # The paper's loss, as Keras has it, is the mean over the batch as well.
    keras = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    assert float(tf.reduce_mean(losses)) == pytest.approx(
      float(keras(images, logits)), rel=1e-5
    )

  def test_squared_error_of_features_equals_scikit_learn(self):
    """They may be any numbers."""
    outputs, targets = 2 * _images(), _logits()
    losses = proxy_tasks.Reconstruction('linear_mean_squared_error').losses(
      tf.constant(outputs), tf.constant(targets)
    )
    expected = [
      sklearn.metrics.mean_squared_error(x.ravel(), y.ravel())
      for x, y in zip(targets, outputs, strict=True)
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)

  @pytest.mark.parametrize('loss', proxy_tasks.RECONSTRUCTION_LOSSES)
  def test_the_best_outputs_leave_no_gradient(self, loss):
    task = proxy_tasks.Reconstruction(loss)
    images = tf.constant(_images())
    best = tf.constant(scipy.special.logit(_images()))
    if loss == 'linear_mean_squared_error':  # The outputs are no logits.
      best = images
    with tf.GradientTape() as tape:
      tape.watch(best)
      losses = task.losses(best, images)
    np.testing.assert_allclose(tape.gradient(losses, best), 0 * best, atol=1e-6)
    # A batch without examples.
    assert task.losses(best[:0], images[:0]).shape == (0,)

  def test_the_example_is_input_and_target(self):
    x = tf.constant(_images())
    inputs, targets = proxy_tasks.Reconstruction().make(x, _SEED)
    # The very tensor: that is how objectives know that one pass is enough.
    assert inputs is x
    assert targets is x

  def test_head_is_the_papers_decoder_and_other_losses_are_refused(self):
    head = proxy_tasks.Reconstruction().build_head(256, (28, 28, 1))
    assert head.count_params() == 256 * 784 + 784
    with pytest.raises(ValueError, match="loss must be .*'bce'"):
      proxy_tasks.Reconstruction('bce')


class TestRotation:
  @pytest.mark.parametrize('channels', [1, 3])
  def test_inputs_equal_numpy(self, channels):
    images = _images(5, (4, 4, channels))
    inputs, targets = proxy_tasks.Rotation().make(tf.constant(images), _SEED)
    for turn in range(4):
      block = slice(5 * turn, 5 * turn + 5)
      np.testing.assert_array_equal(
        inputs[block], np.rot90(images, turn, axes=(1, 2))
      )
      np.testing.assert_array_equal(targets[block], [turn] * 5)
    assert inputs.shape == (20, 4, 4, channels)
    assert targets.dtype == tf.int32

  def test_losses_equal_scikit_learn(self):
    logits = _logits(8, (4,))
    targets = np.repeat(np.arange(4, dtype=np.int32), 2)
    losses = proxy_tasks.Rotation().losses(
      tf.constant(logits), tf.constant(targets)
    )
    p = scipy.special.softmax(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(losses, -np.log(p[range(8), targets]), rtol=1e-5)
    assert float(tf.reduce_mean(losses)) == pytest.approx(
      sklearn.metrics.log_loss(targets, p), rel=1e-5
    )

  def test_head_and_its_refusal(self):
    task = proxy_tasks.Rotation()
    assert task.build_head(6, (8, 8, 3)).count_params() == 6 * 4 + 4
    for shape in ((4, 5, 1), (16,)):
      with pytest.raises(ValueError, match='needs square images') as refusal:
        task.build_head(6, shape)
      assert str(shape) in str(refusal.value)


def test_registry_has_a_name_for_each_choice():
  assert set(proxy_tasks.PROXY_TASKS) == set(proxy_tasks.PROXY_TASK.choices)
  by_name = proxy_tasks.PROXY_TASKS
  assert by_name['reconstruction'].loss == 'binary_crossentropy'
  assert isinstance(by_name['rotation'], proxy_tasks.Rotation)


class _Counting(proxy_tasks.ProxyTask):
  """Sums of pixels to predict; a task to vary."""

  def build_head(self, num_features, input_shape):
    return dense.linear_head(num_features, 1)

  def make(self, x, seed):
    return x, tf.reduce_sum(x, [1, 2])

  def losses(self, outputs, targets):
    return tf.square(outputs - targets)[:, 0]


class TestAddHead:
  @pytest.mark.parametrize(
    'name', sorted(proxy_tasks.PROXY_TASKS.keys() - {'words'})
  )
  def test_adds_a_head_behind_the_models_own(self, model, name):
    joint = proxy_tasks.add_head(model, proxy_tasks.PROXY_TASKS[name], _PLAIN)
    assert joint.encoder is model.encoder
    assert joint.heads[:-1] == model.heads
    size = 4 if name == 'rotation' else 16
    kernel, bias = joint.heads[-1].weights_spec.trainable
    assert (kernel.shape, bias.shape) == ((256, size), (size,))
    # The classifier starts as it does without the task.
    np.testing.assert_equal(
      model.initial_weights(3).trainable, joint.initial_weights(3).trainable[:4]
    )

  def test_words_need_the_numbers_of_words(self, model):
    with pytest.raises(ValueError, match='needs the numbers of words'):
      proxy_tasks.add_head(model, proxy_tasks.Words(), _PLAIN)
    encoder = models.build(
      'word_average_encoder', (6,), 3, 'none', num_tokens=9
    )
    joint = proxy_tasks.add_head(
      encoder, proxy_tasks.Words(8), augmentation.TokenViews()
    )
    assert joint.heads[-1].weights_spec.trainable[0].shape == (64, 8)

  def test_takes_a_task_of_ones_own(self, model):
    joint = proxy_tasks.add_head(model, _Counting(), _PLAIN)
    assert joint.heads[-1].weights_spec.trainable[0].shape == (256, 1)

  def test_what_views_may_do_hangs_on_the_loss(self, model):
    crops = image_views.ImageViews(mean=(0.0,), stddev=(1.0,))
    proxy_tasks.add_head(model, proxy_tasks.Reconstruction(), crops)
    # And anything at all where pixels are no targets.
    shifted = views.PlainViews(mean=0.5, stddev=0.25)
    proxy_tasks.add_head(model, proxy_tasks.Rotation(), shifted)
    # Or features of any size by their squared error.
    task = proxy_tasks.Reconstruction('linear_mean_squared_error')
    proxy_tasks.add_head(model, task, views.PlainViews(mean=-5.0))

  @pytest.mark.parametrize(
    'given, extremes',
    [
      # (0 - .3) / .4 and (1 - .3) / .4.
      (image_views.ImageViews(mean=(0.3,), stddev=(0.4,)), '-0.75 to 1.75'),
      (views.PlainViews(mean=-0.5), '0.50 to 1.50'),
    ],
  )
  def test_pixels_outside_the_unit_interval(self, model, given, extremes):
    task = proxy_tasks.Reconstruction()
    message = f'views give pixels from {extremes}, .*PlainViews'
    _assert_refused(ValueError, message, model, task, given)

  def test_models_that_do_not_fit(self):
    whole = functional.from_keras(dense.dense(_SHAPE, 3))
    message = r'model is a FunctionalModel .*tff_ssl\.join'
    _assert_refused(TypeError, message, whole, proxy_tasks.Rotation())
    # Features that are not flat.
    encoder = tf.keras.Sequential([layers.Input(_SHAPE), layers.Conv2D(2, 3)])
    head = tf.keras.Sequential(
      [layers.Input((2, 2, 2)), layers.Flatten(), layers.Dense(3)]
    )
    maps = split.join(*map(functional.from_keras, (encoder, head)))
    message = r'features of shape \(None, 2, 2, 2\): .*flattens'
    _assert_refused(ValueError, message, maps, proxy_tasks.Rotation())

  @pytest.mark.parametrize('task', ['rotation', proxy_tasks.Rotation, None])
  def test_no_proxy_task(self, model, task):
    message = f'proxy_task is {re.escape(repr(task))}: give a .*ProxyTask'
    _assert_refused(TypeError, message, model, task)

  @pytest.mark.parametrize('loss', proxy_tasks.RECONSTRUCTION_LOSSES)
  def test_head_for_images_of_another_shape(self, model, loss):
    class Coloured(proxy_tasks.Reconstruction):
      def build_head(self, num_features, input_shape):
        return dense.dense_decoder(num_features, (4, 4, 3))

    message = (
      r'proxy_task \(Coloured\) does not fit its head or the encoder: .*'
      r'shape \(4, 4, 3\), but examples have \(4, 4, 1\)'
    )
    _assert_refused(ValueError, message, model, Coloured(loss))

  @pytest.mark.parametrize(
    'methods, error, message',
    [
      # 7 outputs meet 2 targets.
      (
        {
          'build_head': lambda self, n, shape: dense.linear_head(n, 7),
          'make': lambda self, x, seed: (x, tf.zeros([tf.shape(x)[0], 2])),
        },
        ValueError,
        r'proxy_task \(Varied\) does not fit .*must be equal.*7 and 2',
      ),
      (
        {'build_head': lambda self, n, shape: dense.linear_head(7, 1)},
        ValueError,
        r'head takes .*\(None, 7\), but the encoder gives .*\(None, 256\)',
      ),
      (
        {'build_head': lambda self, n, shape: None},
        TypeError,
        r'proxy_task \(Varied\) builds a NoneType as its head',
      ),
      (
        {'make': lambda self, x, seed: (x[:, 1:], x)},
        ValueError,
        r'\(Varied\) does not fit .*x is float32\(7, 3, 4, 1\)',
      ),
      # Losses that are no vector.
      *(
        (
          {'losses': lambda self, outputs, _, of=of: of(outputs)},
          ValueError,
          rf'\(Varied\) gives losses {given} for inputs of shape',
        )
        for of, given in (
          (tf.reduce_mean, r'float32\(\)'),
          (tf.identity, r'float32\(7, 1\)'),
          # Of the batch, but not one for each input.
          (lambda outputs: outputs[1:, 0], r'float32\(6,\)'),
          (lambda outputs: tf.cast(outputs[:, 0], 'double'), r'float64\(7,\)'),
          (lambda outputs: None, 'NoneType'),
        )
      ),
    ],
  )
  def test_parts_that_do_not_fit(self, model, methods, error, message):
    varied = type('Varied', (_Counting,), methods)()
    _assert_refused(error, message, model, varied)


def _assert_refused(kind, message, model, task, given=_PLAIN):
  """Asserts that `add_head` raises, and in one sentence."""
  with pytest.raises(kind, match=message) as refusal:
    proxy_tasks.add_head(model, task, given)
  text = str(refusal.value)
  assert text.endswith('.')
  assert '\n' not in text
  assert '. ' not in text


def test_losses_of_words_by_hand():
  """Words 9 and 1 share the bucket 1 of eight; padding is no word."""
  task = proxy_tasks.Words(8)
  x = tf.constant([[9, 1, 2, 0], [0, 0, 0, 0]])
  inputs, targets = task.make(x, _SEED)
  np.testing.assert_array_equal(inputs, x)
  expected = np.zeros([2, 8], np.float32)
  expected[0, 1:3] = 2 / 3, 1 / 3
  np.testing.assert_allclose(targets, expected, rtol=1e-6)
  outputs = np.arange(16, dtype=np.float32).reshape(2, 8) / 4
  log_shares = outputs[0] - np.log(np.exp(outputs[0]).sum())
  loss = -(2 * log_shares[1] + log_shares[2]) / 3
  np.testing.assert_allclose(
    task.losses(tf.constant(outputs), targets), [loss, 0], rtol=1e-5
  )


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
