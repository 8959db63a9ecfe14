"""Pseudo-labels by class, with a model that is a table."""

import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from datasets.sources import source
from experiments.artifacts import csv_files
from experiments.config.command_line import UsageError
from experiments.measuring import pseudo_labels
from experiments.measuring.evaluation import FinishedRound
from experiments.preparing import run_data
from tff_ssl.augmentation import views
from tff_ssl.objectives import consistency

_NAMES = ('a', 'b', 'c', 'd')
# Classes 0 to 3 have 300, 200, 100 and 0 examples: more than one batch.
_LABELS = np.repeat([0, 1, 2], [300, 200, 100]).astype(np.int32)


class _TableModel:
  """Takes class 1 for 2, is half sure of class 0, and else is right."""

  def predict(self, trainable, non_trainable, x, *, training):
    assert not training
    (half_sure,) = trainable
    label = tf.cast(x[:, 0], tf.int32)
    guess = tf.where(tf.equal(label, 1), 2, label)
    sure = tf.where(tf.equal(label, 0), half_sure, 10.0)
    return sure[:, tf.newaxis] * tf.one_hot(guess, 4), non_trainable


class _MarkedViews(views.PlainViews):
  """Adds the classes in the weak view only, so that no other one will do."""

  def weak(self, examples, seed):
    return self.plain(examples) - 100


def _counts():
  split = source.Split(
    (_LABELS + 100).astype(np.float32)[:, np.newaxis], _LABELS
  )
  return pseudo_labels.PseudoLabelsByClass(
    _TableModel(),
    _MarkedViews(),
    split,
    _NAMES,
    select=consistency.passing(0.95),
    seed=0,
  )


def _finished(number, half_sure=0.0, row=None):
  weights = tff.learning.models.ModelWeights([np.float32(half_sure)], [])
  row = {'accuracy': 0.5} if row is None else row
  return FinishedRound(number, weights, read_weights=lambda w: w, row=row)


def _run(folder, rounds, first_round=1, counts=None, stored=None):
  """Counts in some rounds, as a run that begins or goes on does.

  Returns what its last checkpoint keeps of the tables.
  """
  counts = counts or _counts()
  with (
    csv_files.MetricLog(folder / 'metrics.csv', first_round, stored) as log,
    log.beside('pseudo_labels.csv', is_wanted=True) as counts.log,
  ):
    for finished in rounds:
      log.append(finished.number, {**finished.row, **counts(finished)})
    return log.digests(100)


def test_counts_by_hand(tmp_path):
  _run(tmp_path, [_finished(2), _finished(4, half_sure=10.0)])
  table = pd.read_csv(tmp_path / 'pseudo_labels.csv')
  assert list(table['round']) == [2] * 4 + [4] * 4
  assert list(table['name']) == list(_NAMES) * 2
  assert list(table['examples']) == [300, 200, 100, 0] * 2
  # Nothing is sure of class 0 at first.
  assert list(table['labelled']) == [0, 200, 100, 0, 300, 200, 100, 0]
  assert list(table['right']) == [0, 0, 100, 0, 300, 0, 100, 0]
  assert list(table['named']) == [0, 0, 300, 0, 300, 0, 300, 0]
  metrics = pd.read_csv(tmp_path / 'metrics.csv')
  assert list(metrics['pseudo_label_classes']) == [1, 2]


def test_a_round_that_is_not_tested_is_not_counted(tmp_path):
  _run(tmp_path, [_finished(1, row={'loss': 0.5})])
  assert pd.read_csv(tmp_path / 'pseudo_labels.csv').empty


def test_a_resumed_run_repeats_rounds_and_misses_none(tmp_path):
  path = tmp_path / 'pseudo_labels.csv'
  _run(tmp_path, [_finished(1), _finished(2)])
  whole = path.read_bytes()
  stored = _run(tmp_path, [_finished(2)], first_round=2)
  assert path.read_bytes() == whole
  path.write_bytes(whole.replace(b'1,3,d,0,0.0,0.0,0.0\n', b''))
  with pytest.raises(csv_files.MetricLogError, match='or is missing'):
    _run(tmp_path, [], first_round=3, stored=stored)


def _data(labels, labels_at, labelled=(), redrawn_ratio=None):
  labels = np.asarray(labels, np.int32)
  return run_data.RunData(
    source=types.SimpleNamespace(
      training=source.Split(np.arange(len(labels))[:, np.newaxis], labels)
    ),
    partition=types.SimpleNamespace(
      examples=np.arange(2, len(labels)),
      labelled_indices=np.asarray(labelled, np.int64),
    ),
    store=None,
    counts=None,
    labels_at=labels_at,
    redrawn_ratio=redrawn_ratio,
  )


@pytest.mark.parametrize(
  ('data', 'expected'),
  [
    # The server has the first two; of the clients' one label is not known.
    (_data([0, 1, 0, -1, 1, 0], 'server'), [2, 4, 5]),
    (_data([0, 1, 0, -1, 1, 0], 'dealt', [4]), [2, 5]),
    (_data([0, 1, 0, 1], 'clients', redrawn_ratio=0.5), [2, 3]),
  ],
)
def test_unlabelled_examples_with_a_known_label_are_drawn(data, expected):
  drawn = pseudo_labels.draw(data, 100, seed=0)
  assert sorted(drawn.examples[:, 0]) == expected
  np.testing.assert_array_equal(
    drawn.labels, data.source.training.labels[drawn.examples[:, 0]]
  )
  few = pseudo_labels.draw(data, 1, seed=0)
  assert len(few.labels) == 1 and few.examples[0, 0] in expected


def test_the_seed_decides_which_and_in_which_order():
  # In the order of classes, as folders of images are.
  data = _data(np.arange(1000) // 100, 'server')
  one, same, other = (
    pseudo_labels.draw(data, 50, seed).examples[:, 0] for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(one, same)
  assert set(one) != set(other)
  assert list(one) != sorted(one)


def test_examples_without_a_known_label_are_an_error():
  data = _data([0, 1, -1, -1], 'server')
  with pytest.raises(UsageError, match='--pseudo_label_examples=9 needs unlab'):
    pseudo_labels.draw(data, 9, seed=0)
