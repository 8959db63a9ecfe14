"""Pseudo-labels on the server's labels, with a model that is a table."""

import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets.sources import source
from experiments.measuring import pseudo_labels
from experiments.measuring.evaluation import FinishedRound
from experiments.running import measurements
from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.objectives import consistency

_CLASSES = 4
_SIZE = 40
_LABELS = np.arange(_SIZE) % _CLASSES


class _OneHotModel:
  """Sure of class `x + shift`, but not of the class 3."""

  def predict(self, trainable, non_trainable, x, *, training):
    assert not training
    (shift,) = trainable
    index = (tf.cast(x[:, 0], tf.int32) + shift) % _CLASSES
    sure = tf.where(tf.equal(index, 3), 0.0, 10.0)
    return sure[:, tf.newaxis] * tf.one_hot(index, _CLASSES), non_trainable


class _MarkedViews(views.PlainViews):
  """Adds the classes in the weak view only, so that no other one will do."""

  def weak(self, examples, seed):
    return self.plain(examples) - 100


def _watch(told, threshold=0.95, **kwargs):
  split = source.Split(
    (_LABELS + 100).astype(np.float32)[:, np.newaxis], _LABELS.astype(np.int32)
  )
  return pseudo_labels.PseudoLabelWatch(
    _OneHotModel(),
    _MarkedViews(),
    split,
    select=consistency.passing(threshold),
    seed=0,
    tell=told.append,
    **kwargs,
  )


def _finished(number, shift, row):
  """Returns a round that was tested, whose model moves classes by `shift`."""
  weights = tff.learning.models.ModelWeights([np.int32(shift)], [])
  row = {'accuracy': 0.5, **row}
  return FinishedRound(number, weights, read_weights=lambda w: w, row=row)


def test_a_round_that_is_not_tested_is_not_watched():
  finished = FinishedRound(1, 0, read_weights=None, row={'mask_rate': 0.9})
  assert _watch([])(finished) == {}


def test_figures_by_hand():
  told = []
  measured = _watch(told)(_finished(1, 0, {'mask_rate': 0.9}))
  # Three classes of four pass, all of them right.
  assert measured == {
    'server_mask_rate': 0.75,
    'server_pseudo_label_accuracy': 1.0,
    'server_pseudo_label_top_share': pytest.approx(1 / 3),
    'is_collapsing': 0,
  }
  assert not told


def test_a_collapse_is_told_once():
  told = []
  watch = _watch(told)
  assert watch(_finished(20, 0, {'mask_rate': 0.9}))
  measured = watch(_finished(30, 1, {'mask_rate': 0.72}))
  assert measured['server_pseudo_label_accuracy'] == 0
  assert measured['is_collapsing'] == 1
  watch(_finished(40, 1, {'mask_rate': 0.72}))
  (text,) = told
  assert text.startswith("Warning: in round 30, 72% of the clients' examples")
  assert 'only 0% of such predictions are right' in text
  assert '\n' not in text


def _measured(watch, shift, **row):
  finished = _finished(30, shift, row)
  finished.row.update(watch(finished))
  return finished


def test_a_run_stops_when_it_collapses_only_if_it_is_to(refusal):
  collapsed, sound = 1, 0
  for on_collapse, shift in [('warn', collapsed), ('stop', sound)]:
    watch = _watch([], on_collapse=on_collapse)
    watch.check(_measured(watch, shift, mask_rate=0.72))
  watch = _watch([], on_collapse='stop')
  told = ('round 30 (--on_collapse=stop)', '72% of', '0% right: collapsing')
  with refusal(*told, error=pseudo_labels.CollapseError):
    watch.check(_measured(watch, collapsed, mask_rate=0.72))


def test_the_class_that_is_predicted_most():
  watch = _watch([], threshold=0)
  # All examples count, and the one of which the model is unsure gets class 0.
  row = _measured(watch, 0, mask_rate=0.5).row
  assert row['server_pseudo_label_top_share'] == pytest.approx(2 / 4)


def test_words_of_a_round():
  watch = _watch([])
  sound = _measured(watch, 0, mask_rate=0.61).row
  assert pseudo_labels.in_words(sound) == (
    '61% of examples, on the labels of the server 100% right'
  )
  assert pseudo_labels.in_words({'mask_rate': 0.61}) is None
  assert pseudo_labels.in_words({**sound, 'mask_rate': 0.0}) is None


@pytest.mark.parametrize('row', [{'mask_rate': 0.1}, {}])
def test_few_pseudo_labels_do_no_harm(row):
  told = []
  _watch(told)(_finished(30, 1, row))
  assert not told


def test_a_model_that_is_sure_of_nothing():
  told = []
  measured = _watch(told, threshold=1.01)(_finished(1, 1, {'mask_rate': 0.9}))
  assert measured == {'server_mask_rate': 0.0, 'is_collapsing': 0}
  assert not told


def _settings(**given):
  names = ('threshold', 'pseudo_label_rule', 'min_confidence', 'max_energy')
  return types.SimpleNamespace(**{**dict.fromkeys(names), **given})


def test_examples_are_selected_as_by_the_clients():
  logits = np.random.default_rng(0).normal(0, 2, (64, 5)).astype(np.float32)
  for given in (
    {'threshold': 0.9},
    {'pseudo_label_rule': 'self_adaptive', 'min_confidence': 0.7},
    {'pseudo_label_rule': 'gaussian', 'threshold': 0.9},
    {'pseudo_label_rule': 'client_adaptive'},
    {'pseudo_label_rule': 'energy', 'max_energy': -3.0},
  ):
    clients = objectives.ConsistencyRegularization(
      None, teacher='received', **given
    )
    select = pseudo_labels.selection_of(_settings(**given))
    np.testing.assert_array_equal(select(logits)[1], clients.select(logits)[1])


@pytest.mark.parametrize('threshold, has_server', [(None, True), (0.95, False)])
def test_runs_without_pseudo_labels_or_server_labels(threshold, has_server):
  opened = types.SimpleNamespace(
    settings=_settings(threshold=threshold),
    spec=types.SimpleNamespace(takes=lambda argument: has_server),
  )
  assert measurements.pseudo_label_watch(opened) is None
