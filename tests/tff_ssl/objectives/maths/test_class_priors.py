"""Rows of class priors, and counts of right classes."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.objectives.maths import class_priors

PRIORS = np.array([[0.2, 0.3, 0.5], [0, 1, 0], [0, 0, 0]], np.float32)
BATCH = collections.OrderedDict(
  y=tf.constant([1, 0, 1]), class_priors=tf.constant(PRIORS)
)


def test_rows_are_those_of_the_sets_and_nan_where_there_is_none():
  sets = tf.constant([1, 0, 2, 3, -1])
  rows = class_priors.of_sets(BATCH, sets, tf.zeros([5, 3]))
  np.testing.assert_allclose(rows[:2], PRIORS[[1, 0]])
  assert np.isnan(rows[2:]).all()
  # Model and priors must have the same classes.
  with pytest.raises(ValueError, match=r'priors_shape=\(3, 3\).* 4 outputs'):
    class_priors.of_sets(BATCH, BATCH['y'], tf.zeros([3, 4]))


def test_sets_are_no_classes():
  classes = tf.constant([1, 0, 1])
  assert class_priors.count_right(classes, BATCH) == (0, 0)
  known = collections.OrderedDict(BATCH, true_y=tf.constant([1, 2, -1]))
  assert class_priors.count_right(classes, known) == (1, 2)
  mask = tf.constant([0.0, 1.0, 1.0])
  assert class_priors.count_right(classes, known, mask) == (0, 1)
