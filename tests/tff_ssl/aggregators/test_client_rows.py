"""Rows of clients at the server: all of them, once, in order."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.aggregators import client_rows
from tff_ssl.simulation.divided_context import DividedContext


@pytest.fixture(scope='module')
def collect(tff_context):
  """Collects numbers as rows of two; every third client does not count.

  With few places, so that a dozen clients go through all levels.
  """

  @tff.tensorflow.computation(np.int32)
  def to_member(number):
    return collections.OrderedDict(
      row=tf.cast(number, tf.float32) + [0.0, 0.5],
      tag=number,
      counts=tf.not_equal(number % 3, 1),
    )

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(client_rows, '_PLACES', (2, 2, 1))

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def collect(numbers):
      return client_rows.collect(
        tff.federated_map(to_member, numbers), lambda rows, tags: (rows, tags)
      )

  return collect


def _assert_all_are_there(result, n):
  rows, tags = result
  expected = np.array([i for i in range(n) if i % 3 != 1], np.int32)
  np.testing.assert_array_equal(tags, expected)
  np.testing.assert_array_equal(rows, expected[:, np.newaxis] + [[0.0, 0.5]])


@pytest.mark.parametrize('n', [*range(9), 20, 21])
def test_through_all_levels(collect, n):
  _assert_all_are_there(collect(list(range(n))), n)


@pytest.mark.parametrize('n', [0, 1, 7, 20])
def test_a_round_that_is_divided_into_parts(collect, n):
  context = tff.framework.get_context_stack().current
  divided = DividedContext(
    context, lambda comp, parts: [context.invoke(comp, x) for x in parts], 3
  )
  with tff.framework.get_context_stack().install(divided):
    _assert_all_are_there(collect(list(range(n))), n)


def test_a_row_is_copied_once_before_it_is_in_the_matrix():
  """Of 100 clients, in the real places; the graphs say what is joined."""
  block = tf.zeros([1, 1])
  levels = [[block[:0]] * places for places in client_rows._PLACES]
  joined = []

  def concat(blocks, axis):
    joined.append(sum(len(b) for b in blocks))
    return np.concatenate(blocks, axis)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(client_rows.tf, 'concat', concat)
    for _ in range(100):
      levels = client_rows._push(levels, block)
  assert joined == [16] * 6


def test_values_that_are_not_finite_are_left_out(tff_context):
  @tff.federated_computation(tff.FederatedType(np.float64, tff.CLIENTS))
  def collect(numbers):
    to_member = tff.tensorflow.computation(
      lambda x: collections.OrderedDict(row=x, tag=0, counts=True),
      np.float64,
    )
    return client_rows.collect(
      tff.federated_map(to_member, numbers), lambda rows, _: rows
    )

  # The square of the last but one is no double any more.
  found = collect([1.0, np.inf, -np.inf, np.nan, 1e200, 1e100])
  np.testing.assert_array_equal(found, [1.0, 1e100])
