"""Structures of arrays, compared leaf by leaf."""

import numpy as np
import tensorflow as tf


def assert_close(actual, expected, **tolerance):
  """`np.testing.assert_allclose` for each pair of leaves."""
  for a, b in _pairs(actual, expected):
    np.testing.assert_allclose(a, b, **tolerance)


def assert_same(actual, expected):
  """`np.testing.assert_array_equal` for each pair of leaves."""
  for a, b in _pairs(actual, expected):
    np.testing.assert_array_equal(a, b)


def are_equal(one, other):
  """Returns of each pair of leaves whether they are equal."""
  return [bool(np.array_equal(a, b)) for a, b in _pairs(one, other)]


def largest_differences(one, other):
  """Returns the largest difference of each pair of leaves."""
  return [np.abs(a - b).max() for a, b in _pairs(one, other)]


def _pairs(one, other):
  """Pairs of leaves of structures that agree, whatever the containers are."""
  tf.nest.assert_same_structure(one, other, check_types=False)
  return zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
