"""The proxy loss on a test split and its pictures, against numpy and PIL."""

import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from PIL import Image

from datasets.sources.source import Split
from experiments.measuring import proxy_evaluation
from experiments.measuring.evaluation import FinishedRound
from tff_ssl import augmentation, models, objectives
from tff_ssl.objectives import proxy_tasks

SHAPE = (4, 4, 1)
CLASSES = 3
VIEWS = augmentation.PlainViews()


@pytest.fixture(scope='module')
def model():
  return models.build('dense_encoder', SHAPE, CLASSES, 'none')


def split(num_examples, classes=CLASSES):
  rng = np.random.default_rng(num_examples)
  return Split(
    rng.integers(0, 256, (num_examples, *SHAPE), dtype=np.uint8),
    rng.integers(0, classes, num_examples).astype(np.int32),
  )


def task_test(model, data, name='reconstruction'):
  task = objectives.PROXY_TASKS[name]
  return proxy_evaluation.ProxyTest(model, task, VIEWS, data)


def weights_of(model, name='reconstruction'):
  """Returns seeded weights of the model with the task's head."""
  task = objectives.PROXY_TASKS[name]
  return proxy_tasks.add_head(model, task, VIEWS).initial_weights(5)


def zeros(weights):
  return tf.nest.map_structure(np.zeros_like, weights)


def numpy_outputs(weights, images):
  """Returns x and the decoder's logits; the classifier is left out."""
  kernel, bias, _, _, decoder, decoder_bias = weights.trainable
  x = images.reshape(len(images), -1) / 255
  return x, np.maximum(x @ kernel + bias, 0) @ decoder + decoder_bias


# Less than a batch of 512, and two of them with a rest.
@pytest.mark.parametrize('num_examples', [7, 1100])
def test_reconstruction_loss_equals_numpy(model, num_examples):
  data, weights = split(num_examples), weights_of(model)
  x, logits = numpy_outputs(weights, data.examples)
  p = 1 / (1 + np.exp(-logits))
  right = -np.mean(x * np.log(p) + (1 - x) * np.log(1 - p))
  found = task_test(model, data).loss(weights)
  assert found == pytest.approx(right, rel=1e-5)
  squared = task_test(model, data, 'reconstruction_of_features').loss(weights)
  assert squared == pytest.approx(np.mean((logits - x) ** 2), rel=1e-5)


@pytest.mark.parts
def test_losses_of_a_head_that_knows_nothing(model):
  """All outputs are 0: pixels of one half, and four turns equally likely."""
  data = Split(np.full((3, *SHAPE), 255, np.uint8), np.zeros(3, np.int32))
  losses = {'reconstruction': np.log(2), 'rotation': np.log(4)}
  for name, right in losses.items():
    found = task_test(model, data, name).loss(zeros(weights_of(model, name)))
    assert found == pytest.approx(right, rel=1e-6)


class Noise(proxy_tasks.Reconstruction):
  """To give back noise, other noise for every seed."""

  def make(self, x, seed):
    return x, tf.random.stateless_uniform(tf.shape(x), seed)


def test_what_a_task_draws_is_the_same_each_time_and_differs_by_batch(model):
  weights = weights_of(model)
  seeds = []

  class Recorded(Noise):
    def losses(self, outputs, targets):
      tf.numpy_function(lambda t: seeds.append(t[0].tobytes()), [targets], [])
      return super().losses(outputs, targets)

  test = proxy_evaluation.ProxyTest(model, Recorded(), VIEWS, split(600))
  assert test.loss(weights) == test.loss(weights)
  assert seeds[:2] == seeds[2:] and len(set(seeds)) == 2


def test_reconstructions_are_of_the_first_example_of_each_class(model):
  data, weights = split(40), weights_of(model)
  images, found = task_test(model, data).reconstruct(weights)
  first = [data.labels.tolist().index(label) for label in range(CLASSES)]
  np.testing.assert_allclose(images, data.examples[first] / 255, rtol=1e-6)
  _, logits = numpy_outputs(weights, data.examples[first])
  right = (1 / (1 + np.exp(-logits))).reshape(images.shape)
  np.testing.assert_allclose(found, right, rtol=1e-4)


def test_ten_classes_are_shown_at_most(model):
  data = split(500, classes=40)
  images, _ = task_test(model, data).reconstruct(weights_of(model))
  assert len(images) == 10


class Task:
  """In the place of a `ProxyTest`: one number is the weights."""

  can_reconstruct = True

  def loss(self, weights):
    return weights / 2

  def reconstruct(self, weights):
    image = np.full((1, *SHAPE), weights / 10, np.float32)
    return image, image


def observe(folder, task, **changed):
  observer = proxy_evaluation.ProxyObserver(
    task, folder, title='a run', total_rounds=5, **changed
  )
  rows = []
  for number in range(1, 6):
    state = types.SimpleNamespace(global_model_weights=number)
    row = {} if number % 2 else {'accuracy': 0.5}
    rows.append(observer(FinishedRound(number, state, None, row)))
  return rows


def test_rows_get_the_loss_where_test_metrics_are_due(tmp_path):
  rows = observe(tmp_path, Task())
  loss = 'test_proxy_loss'
  assert rows == [{}, {loss: 1.0}, {}, {loss: 2.0}, {}]
  assert [path.name for path in tmp_path.iterdir()] == ['reconstructions.png']


def test_each_stage_leaves_a_picture_of_its_end(tmp_path):
  rows = observe(tmp_path, Task(), pretraining_rounds=3)
  # Beside the pictures, the loss of each stage's end.
  losses = [row.get('test_proxy_loss') for row in rows]
  assert losses == [None, 1.0, 1.5, 2.0, None]
  shades = {}
  for name in ('reconstructions', 'reconstructions_pretraining'):
    with Image.open(tmp_path / f'{name}.png') as picture:
      pixels = np.asarray(picture.convert('L'))
    # The middle of the upper image; a gray level of weights / 10.
    shades[name] = pixels[pixels.shape[0] // 3, pixels.shape[1] // 2]
  assert shades == {
    'reconstructions': pytest.approx(255 * 0.5, abs=2),
    'reconstructions_pretraining': pytest.approx(255 * 0.3, abs=2),
  }


def test_a_task_without_pictures_draws_none(tmp_path, model):
  assert not task_test(model, split(5), 'rotation').can_reconstruct
  task = Task()
  task.can_reconstruct = False
  observe(tmp_path, task, pretraining_rounds=3)
  assert not list(tmp_path.iterdir())


def test_figures_are_the_last_loss_and_that_at_the_end_of_pretraining():
  table = pd.DataFrame({'test_proxy_loss': [0.75, 0.5, 0.25, np.nan]})
  table['round'] = [1, 2, 3, 4]
  figures = {'test_proxy_loss': 0.25}
  assert proxy_evaluation.loss_figures(table) == figures
  figures['pretraining_test_proxy_loss'] = 0.5
  assert proxy_evaluation.loss_figures(table, 2) == figures
  # Runs without a proxy task have none.
  without = table.drop(columns='test_proxy_loss').assign(accuracy=0.5)
  assert proxy_evaluation.loss_figures(without) == {}


def test_weights_may_be_tensors_of_a_process_state(model):
  data, weights = split(7), weights_of(model)
  tensors = tff.learning.models.ModelWeights(
    [tf.constant(value) for value in weights.trainable], []
  )
  test = task_test(model, data)
  assert test.loss(tensors) == test.loss(weights)
