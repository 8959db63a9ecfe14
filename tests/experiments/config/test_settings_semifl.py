"""Flags of SemiFL, and of clipped gradients."""

import types

import pytest
import tensorflow as tf

from experiments.config import flags, settings
from experiments.parts import optimizers


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


def make(**given):
  return settings.make({'process': 'semifl', 'dataset': 'digits', **given})


def refusal(**given):
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  return str(caught.value)


def test_semifl_runs_as_its_authors_ran_it():
  made = make()
  assert (made.learning_rate, made.momentum, made.nesterov) == (0.03, 0.9, True)
  assert (made.weight_decay, made.client_clip_norm) == (5e-4, 1.0)
  assert (made.batch_size, made.local_epochs, made.local_steps) == (10, 5, None)
  assert (made.threshold, made.mixup_concentration) == (0.95, 0.75)
  assert (made.server_epochs, made.server_clip_norm) == (5, 1.0)
  assert made.client_weighting == 'uniform'
  assert made.server_steps is made.server_warmup_rounds is None


@pytest.mark.parametrize(
  'given, expected',
  [
    ({}, 10),
    ({'server_examples': 250}, 10),
    ({'server_examples': 251}, 250),
    ({'dataset': 'cifar10'}, 250),
    ({'server_examples': 251, 'server_batch_size': 7}, 7),
  ],
)
def test_the_server_s_minibatch_grows_with_its_examples(given, expected):
  assert make(**given).server_batch_size == expected


def test_gradients_are_clipped_where_it_is_asked():
  assert make(process='fedavg').client_clip_norm is None
  assert make(process='grouping', client_clip_norm=2.0).server_clip_norm == 2.0
  made = make(process='grouping', client_clip_norm=2.0, server_clip_norm=3.0)
  assert (made.client_clip_norm, made.server_clip_norm) == (2.0, 3.0)
  made = make(process='fedavg', client_clip_norm=2.0)
  assert made.server_clip_norm is None


@pytest.mark.parametrize(
  'given, text',
  [
    (
      {'process': 'server_only', 'client_clip_norm': 1.0},
      '--client_clip_norm=1.0 has no effect',
    ),
    (
      {'process': 'fedavg', 'server_clip_norm': 1.0},
      '--server_clip_norm=1.0 has no effect',
    ),
    ({'client_clip_norm': 0.0}, '--client_clip_norm=0.0 must be a number > 0'),
    (
      {'global_momentum': 1.0},
      '--global_momentum=1.0 must be a number between',
    ),
    (
      {'mixup_concentration': 0.0},
      '--mixup_concentration=0.0 must be a number > 0',
    ),
    ({'mixup_weight': -1.0}, '--mixup_weight=-1.0 must be a number >= 0'),
    (
      {'mixup_weight': 0.0, 'mixup_concentration': 1.0},
      '--mixup_concentration=1.0 has no effect: --mixup_weight=0',
    ),
    ({'server_epochs': 0}, '--server_epochs=0 must be an integer between 1'),
    ({'server_steps': 5}, '--server_steps=5 has no effect'),
    ({'process': 'grouping', 'server_epochs': 5}, '--server_epochs=5 has no'),
    ({'pseudo_label_view': 'strong'}, '--pseudo_label_view=strong is unknown'),
  ],
)
def test_refusals(given, text):
  assert text in refusal(**given)


@pytest.mark.parametrize('norm, moved', [(None, 30.0), (2.0, 2.0)])
def test_the_norm_reaches_the_optimizer(norm, moved):
  given = types.SimpleNamespace(
    client_optimizer='sgd', momentum=0.0, nesterov=None, weight_decay=0.0
  )
  optimizer = optimizers.build(given, 1.0, norm)
  state = optimizer.initialize(tf.TensorSpec([], tf.float32))
  _, weight = optimizer.next(state, tf.constant(0.0), tf.constant(30.0))
  assert float(weight) == pytest.approx(-moved)
