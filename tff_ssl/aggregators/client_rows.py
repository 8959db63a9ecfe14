"""The clients' values side by side at the server: a row for each client.

TFF adds up the clients of a round one after the other
(`tff.federated_aggregate`) and keeps what it has after each of them until the
round ends. A matrix that grows by a row would be copied n times for n clients,
n^2 / 2 rows in all. So rows wait in 16 places. The next one moves those before
it along, which copies nothing. Once the places are full, they become one block,
which waits in 16 places of its own. So up to 272 clients, each row is copied
once on its way, and once more for the matrix at the end.
"""

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat

# Places of each level; a level's block is what the next one takes in. The last
# one has a single place, whose block grows.
_PLACES = (16, 16, 1)


def collect(
  members: compat.Value, report: Callable[[tf.Tensor, tf.Tensor], Any]
) -> compat.Value:
  """Collects a row of each client; part of a `tff.federated_computation`.

  Where a round is divided among workers, the rows are in the order of the
  parts. The rows of clients that do not count, and those whose sum of squares
  is not a finite double, are left out.

  Args:
    members: `<row=R, tag=int32, counts=bool>@CLIENTS` with R a float tensor of
      known shape.
    report: What becomes of the rows, a float tensor `[n, ...]`, and of their
      tags, `int32 [n]`, at the server, in TensorFlow.
  """
  member_type = members.type_signature.member
  row_type = member_type['row']
  dtype, shape = tf.as_dtype(row_type.dtype), tuple(row_type.shape)
  block_type = compat.TensorType(row_type.dtype, [None, *shape])
  rows_type = compat.to_type(
    collections.OrderedDict(
      levels=[[block_type] * places for places in _PLACES],
      tags=compat.TensorType(member_type['tag'].dtype, [None]),
    )
  )

  def rows_of(levels, tags):
    return collections.OrderedDict(levels=levels, tags=tags)

  @tff.tensorflow.computation
  def nobody():
    empty = tf.zeros([0, *shape], dtype)
    levels = [[empty] * places for places in _PLACES]
    return rows_of(levels, tf.zeros([0], tf.int32))

  @tff.tensorflow.computation(rows_type, member_type)
  def accumulate(rows, member):
    row, tag = member['row'], member['tag']
    # The client says whether it counts; this is for what it does not say.
    size = tf.reduce_sum(tf.square(tf.cast(row, tf.float64)))
    return tf.cond(
      member['counts'] & tf.math.is_finite(size),
      lambda: rows_of(
        _push(rows['levels'], row[tf.newaxis]),
        tf.concat([rows['tags'], tag[tf.newaxis]], 0),
      ),
      lambda: rows,
    )

  @tff.tensorflow.computation(rows_type, rows_type)
  def merge(rows, others):
    both = [_matrix(rows['levels']), _matrix(others['levels'])]
    emptied = [[b[:0] for b in places] for places in rows['levels'][:-1]]
    return rows_of(
      [*emptied, [tf.concat(both, 0)]],
      tf.concat([rows['tags'], others['tags']], 0),
    )

  @tff.tensorflow.computation(rows_type)
  def finish(rows):
    return report(_matrix(rows['levels']), rows['tags'])

  return compat.federated_aggregate(
    members, nobody(), accumulate, merge, finish
  )


def _push(levels, block):
  """Returns the levels with one more block in the first of them."""
  places, *others = levels
  if not others:
    return [[tf.concat([*places, block], 0)]]
  empty = [place[:0] for place in places[1:]]
  return tf.cond(
    tf.shape(places[-1])[0] > 0,
    lambda: [[block, *empty], *_push(others, tf.concat(places[::-1], 0))],
    lambda: [[block, *places[:-1]], *others],
  )


def _matrix(levels):
  """Returns all rows, the first client's first."""
  blocks = [block for places in levels for block in places]
  return tf.concat(blocks[::-1], 0)
