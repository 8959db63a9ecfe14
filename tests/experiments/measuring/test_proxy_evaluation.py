"""The proxy loss on a test split, against numpy."""

import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

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


def split(num_examples):
  rng = np.random.default_rng(num_examples)
  return Split(
    rng.integers(0, 256, (num_examples, *SHAPE), dtype=np.uint8),
    rng.integers(0, CLASSES, num_examples).astype(np.int32),
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


@pytest.mark.parametrize('pretraining, third', [(None, None), (3, 1.5)])
def test_rows_get_the_loss_where_test_metrics_are_due(
  model, monkeypatch, pretraining, third
):
  """And at the end of pre-training."""
  test = proxy_evaluation.ProxyTest(
    model, objectives.PROXY_TASKS['rotation'], VIEWS, split(5), pretraining
  )
  monkeypatch.setattr(test, 'loss', lambda weights: weights / 2)
  found = []
  for number in range(1, 6):
    state = types.SimpleNamespace(global_model_weights=number)
    row = {} if number % 2 else {'accuracy': 0.5}
    measured = test(FinishedRound(number, state, None, row))
    found.append(measured.get('test_proxy_loss'))
  assert found == [None, 1.0, third, 2.0, None]


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
