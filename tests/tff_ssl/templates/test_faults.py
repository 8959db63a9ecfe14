"""What is finite, and what happens to what is not."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import faults

ModelWeights = tff.learning.models.ModelWeights


class TestAllFinite:
  @pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
  def test_one_number_anywhere_is_enough(self, bad):
    values = np.zeros([4, 5], np.float32)
    structure = {'a': [tf.constant(values)], 'b': tf.constant(1.0)}
    assert bool(faults.all_finite(structure))
    values[2, 3] = bad
    structure['a'] = [tf.constant(values)]
    assert not bool(faults.all_finite(structure))

  def test_integers_and_empty_tensors_are_finite(self):
    structure = [tf.constant(2**31 - 1), tf.zeros([0]), tf.constant(0.5)]
    assert bool(faults.all_finite(structure))
    assert bool(faults.all_finite(ModelWeights([tf.constant(1.0)], [])))
    # In double and half precision NaN is not.
    for dtype in (tf.float64, tf.float16, tf.bfloat16):
      assert not bool(faults.all_finite([tf.cast(np.nan, dtype)]))


@pytest.mark.parametrize(
  'largest, is_finite',
  [(1.7e19, True), (1.9e19, False), (np.inf, False), (np.nan, False)],
)
def test_a_norm_is_finite_where_float32_holds_its_square(largest, is_finite):
  delta = ModelWeights([tf.constant([1.0, largest])], [tf.constant(7)])
  with np.errstate(over='ignore'):
    assert np.isfinite(np.square(np.float32(largest))) == is_finite
  assert bool(faults.has_finite_norm(delta)) == is_finite


def test_if_finite_keeps_all_of_the_old_structure():
  old = [tf.constant([1.0, 2.0]), tf.constant(3)]
  new = [tf.constant([4.0, 5.0]), tf.constant(6)]
  broken = [tf.constant([4.0, np.nan]), tf.constant(6)]
  for given, expected in ((new, new), (broken, old)):
    actual = faults.if_finite(given, old)
    tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)


@pytest.mark.parametrize('counts', [True, False])
def test_zero_unless(counts):
  values = (tf.constant([np.nan, 2.0]), tf.constant(3))
  kept = faults.zero_unless(tf.constant(counts), values)
  expected = values if counts else (np.zeros(2), 0)
  tf.nest.map_structure(np.testing.assert_array_equal, kept, expected)
