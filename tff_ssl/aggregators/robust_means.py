"""Means that a minority of clients cannot move far: medians and their kin.

One client moves the mean as far as it likes. Clipping bounds by how much; what
stands here depends, in each round, on the bulk of the clients:

  * `MedianFactory`: the median of each coordinate (Yin et al., Byzantine-Robust
    Distributed Learning: Towards Optimal Statistical Rates, arXiv 1803.01498,
    Definition 1). It holds while fewer than half of the clients are bad.
  * `TrimmedMeanFactory`: the mean of each coordinate without its smallest and
    largest values (Yin et al., Definition 2). It holds while no more clients
    are bad than values are left out on each side.

All clients count alike, whatever their weights: a client may claim any weight,
and a bad one would claim a large one. A weight says only whether a client
counts. One whose weight is zero (it dropped out, had no examples, or its
training failed) is left out, and so is one whose value is not finite. With
nobody left, the result is zero.

**The server sees the value of every client.** It cannot take a median of a sum.
So these factories do not go with secure sums or differential privacy.

The server holds the values of all clients of a round, n times the model, two to
three times over. Processes compile to TFF's `MapReduceForm`, and not to its
`DistributeAggregateForm`.
"""

import abc
import collections
import fractions
import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, compat
from tff_ssl.aggregators import client_rows, inspection, wrapping

# Coordinates that are sorted at once. All at once would take as much memory
# again as all values, three times.
_BLOCK = 2**14

_EXPECTED = 'aggregates V, a structure of float tensors of known shapes'


class CollectingFactory(tff.aggregators.WeightedAggregationFactory):
  """Aggregates what the server sees of all clients; see the module.

  The created `tff.templates.AggregationProcess` has the type

  ```
  initialize: ( -> <collected_values=<>>@SERVER)
  next: (<<collected_values=<>>@SERVER, {V}@CLIENTS, {float32}@CLIENTS> ->
         <state=<collected_values=<>>@SERVER, result=V@SERVER,
          measurements=<>@SERVER>)
  ```

  where V is a structure of float tensors. A subclass says in `of_sorted` what
  becomes of the values of a coordinate.
  """

  @abc.abstractmethod
  def of_sorted(self, values: tf.Tensor) -> tf.Tensor:
    """Returns one number for each row of `[coordinates, n]`, ascending."""

  def create(
    self, value_type: compat.Type, weight_type: compat.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process (see the class).

    Args:
      value_type: V, unplaced.
      weight_type: A scalar float type.

    Raises:
      TypeError: If the types are not of this form.
    """
    wrapping.check_floats(value_type, f'{type(self).__name__} {_EXPECTED}')
    layout = _Layout(value_type)

    def to_member(value, weight):
      return layout.pack(value), tf.constant(0), weight > 0

    def report(rows, tags):
      del tags
      return layout.unpack(self._reduce(rows))

    return _create(
      to_member,
      report,
      value_type,
      weight_type,
      lambda result: compat.federated_value((), compat.SERVER),
    )

  def create_within_groups(
    self, num_groups: int, value_type: compat.Type, weight_type: compat.Type
  ) -> tff.templates.AggregationProcess:
    """Creates a process that aggregates within S groups, each apart.

    It is as `GroupMeanFactory` creates it; `weight` is the number of clients of
    each group that count.
    """
    wrapping.check_grouped(value_type, f'{type(self).__name__} {_EXPECTED}')
    layout = _Layout(value_type['value'])

    def to_member(value, weight):
      group = value['group']
      exists = (group >= 0) & (group < num_groups)
      return layout.pack(value['value']), group, (weight > 0) & exists

    def report(rows, groups):
      means = tf.map_fn(
        lambda group: self._reduce(
          tf.boolean_mask(rows, tf.equal(groups, group))
        ),
        tf.range(num_groups),
        fn_output_signature=tf.TensorSpec(rows.shape[1:], rows.dtype),
        parallel_iterations=1,
      )
      members = tf.math.bincount(
        groups, minlength=num_groups, maxlength=num_groups, dtype=tf.float32
      )
      return collections.OrderedDict(
        mean=layout.unpack(means, num_groups),
        weight=tf.ensure_shape(members, [num_groups]),
      )

    return _create(
      to_member,
      report,
      value_type,
      weight_type,
      lambda result: compat.federated_zip(
        collections.OrderedDict(group_weights=result['weight'])
      ),
    )

  def _reduce(self, rows):
    """Returns one value, `[blocks, width]`, for those of several clients.

    It is zero where there are none. Of the rows, `[n, blocks, width]`, each is
    a client's value as a matrix, which may end in zeros that belong to no
    coordinate.
    """
    shape = rows.shape[1:]

    def reduce():
      return tf.map_fn(
        lambda block: self.of_sorted(tf.sort(tf.transpose(rows[:, block]))),
        tf.range(rows.shape[1]),
        fn_output_signature=tf.TensorSpec(rows.shape[2:], rows.dtype),
        parallel_iterations=1,
      )

    return tf.cond(
      tf.shape(rows)[0] > 0,
      lambda: tf.ensure_shape(reduce(), shape),
      lambda: tf.zeros(shape, rows.dtype),
    )


class MedianFactory(CollectingFactory):
  """The median of each coordinate over the clients of a round.

  Of an even number of values it is the mean of the middle two. What it shows
  and whom it counts stand in the module; its type, in `CollectingFactory`.

  Source: Yin et al. (arXiv 1803.01498), Definition 1.
  """

  def of_sorted(self, values: tf.Tensor) -> tf.Tensor:
    n = tf.shape(values)[1]
    # Halved first: the sum of two large numbers may not be finite.
    return 0.5 * values[:, (n - 1) // 2] + 0.5 * values[:, n // 2]


class TrimmedMeanFactory(CollectingFactory):
  """The mean of each coordinate without its smallest and largest values.

  Of n clients, the floor(`trimmed_share` n) smallest and as many largest values
  of each coordinate are left out. So many clients may be bad; below
  1 / `trimmed_share` clients it is the plain mean, which protects from nobody.
  What it shows and whom it counts stand in the module; its type, in
  `CollectingFactory`.

  Source: Yin et al. (arXiv 1803.01498), Definition 2.
  """

  _trimmed_share: fractions.Fraction

  def __init__(self, trimmed_share: float = 0.1):
    """Initializes the factory.

    Args:
      trimmed_share: Share of the clients that is left out on each side, in
        [0, 0.5); beta in the paper.

    Raises:
      ValueError: If it is out of range.
    """
    if (
      not isinstance(trimmed_share, numbers.Real)
      or isinstance(trimmed_share, bool)
      or not 0 <= trimmed_share < 0.5
      or 2 * checks.exact(trimmed_share) == 1
    ):
      raise ValueError(
        'trimmed_share must be a number in [0, 0.5), but is '
        f'{trimmed_share!r}: it is left out on each side, and somebody must be '
        'left.'
      )
    self._trimmed_share = checks.exact(trimmed_share)

  def of_sorted(self, values: tf.Tensor) -> tf.Tensor:
    n = tf.shape(values)[1]
    share = self._trimmed_share
    cut = share.numerator * tf.cast(n, tf.int64) // share.denominator
    cut = tf.cast(cut, tf.int32)
    return tf.reduce_mean(values[:, cut : n - cut], axis=1)


class _Layout:
  """How a structure of float tensors lies in a matrix, and back.

  Types of less than 32 bits lie in `float32`, which holds all their numbers.
  """

  def __init__(self, value_type: compat.Type):
    self._specs = compat.type_to_tf_tensor_specs(value_type)
    leaves = tf.nest.flatten(self._specs)
    self._sizes = [spec.shape.num_elements() for spec in leaves]
    if None in self._sizes:
      raise TypeError(f'V must have tensors of known shapes: {value_type}.')
    is_double = any(spec.dtype == tf.float64 for spec in leaves)
    self._dtype = tf.float64 if is_double else tf.float32
    total = sum(self._sizes)
    self._blocks = max(1, math.ceil(total / _BLOCK))
    self._width = math.ceil(total / self._blocks)

  def pack(self, value):
    """Returns a value as a matrix, `[blocks, width]`, with zeros at its end."""
    flat = tf.concat(
      [
        tf.cast(tf.reshape(leaf, [-1]), self._dtype)
        for leaf in tf.nest.flatten(value)
      ],
      axis=0,
    )
    missing = self._blocks * self._width - sum(self._sizes)
    return tf.reshape(tf.pad(flat, [[0, missing]]), [self._blocks, self._width])

  def unpack(self, rows, *num_rows: int):
    """Returns what `[*num_rows, blocks, width]` holds: a value, or a stack."""
    flat = tf.reshape(rows, [*num_rows, self._blocks * self._width])
    parts = tf.split(
      flat[..., : sum(self._sizes)], self._sizes, axis=len(num_rows)
    )
    return tf.nest.pack_sequence_as(
      self._specs,
      [
        tf.cast(tf.reshape(part, [*num_rows, *spec.shape]), spec.dtype)
        for part, spec in zip(parts, tf.nest.flatten(self._specs), strict=True)
      ],
    )


def _create(
  to_member: Callable[..., Any],
  report: Callable[..., Any],
  value_type: compat.Type,
  weight_type: compat.Type,
  measure: Callable[[compat.Value], compat.Value],
) -> tff.templates.AggregationProcess:
  """Creates a process that collects the clients' values.

  Args:
    to_member: A client's part, in TensorFlow: from value and weight to a row,
      its tag, and whether it counts.
    report: The server's part, in TensorFlow; see `client_rows.collect`.
    value_type: Of a client's value.
    weight_type: Of its weight.
    measure: From the result to the measurements, both at the server.
  """
  wrapping.check_weight(weight_type)

  @tff.tensorflow.computation(value_type, weight_type)
  def pack(value, weight):
    row, tag, counts = to_member(value, weight)
    return collections.OrderedDict(row=row, tag=tag, counts=counts)

  # What there is to see of the process once others are around it.
  state = collections.OrderedDict([(inspection.OF_COLLECTED_VALUES, ())])

  @compat.federated_computation
  def initialize():
    return compat.federated_value(state, compat.SERVER)

  @compat.federated_computation(
    initialize.type_signature.result,
    compat.FederatedType(value_type, compat.CLIENTS),
    compat.FederatedType(weight_type, compat.CLIENTS),
  )
  def aggregate(state, values, weights):
    result = client_rows.collect(
      compat.federated_map(pack, (values, weights)), report
    )
    return tff.templates.MeasuredProcessOutput(state, result, measure(result))

  return tff.templates.AggregationProcess(initialize, aggregate)
