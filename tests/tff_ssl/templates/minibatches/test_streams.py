"""Examples by set, against numpy."""

import numpy as np
import tensorflow as tf

from tff_ssl.templates.minibatches import streams


def test_members_are_those_that_numpy_finds():
  labels = np.random.default_rng(0).integers(-1, 9, 60).astype(np.int32)
  # A set without examples, and examples without a set.
  labels[labels == 4] = -1
  rows = streams.sets_of(tf.constant(labels)).to_list()
  expected = [np.flatnonzero(labels == m).tolist() for m in range(9) if m != 4]
  assert rows == expected
  # No examples make no set.
  for labels in ([], [-1, -1]):
    assert streams.sets_of(tf.constant(labels, tf.int32)).nrows() == 0
