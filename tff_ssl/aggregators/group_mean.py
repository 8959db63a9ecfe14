"""Means within groups of clients, for any number of groups in one aggregation.

Every client belongs to one of S groups and says so beside its value. The
factory scatters the float value into row g of S rows (all other rows zero),
aggregates the rows over clients with an inner aggregator, and sums the weights
per group apart from the values. So an inner aggregator sees float values only,
and never touches the weights' sums.

What may stand inside:

  * Clipping and zeroing around a weighted mean (`mean_factory`), such as
    `tff.learning.robust_aggregator()`. They see the norm of the client's own
    value, before its weight. Around a sum or an unweighted mean they are
    refused: there the weight comes first, and a client of large weight would
    be clipped to next to nothing, and its group with it.
  * Compression. It rounds all S rows of a client, those of other groups too.
    With `EncodedSumFactory.quantize_above_threshold` and b bits, a client moves
    each number of a tensor's sum by at most its weight times the range of its
    own tensor (from the least number to the largest, 0 included) / (2^b - 1).
    The mean of a group is the sum divided by the group's weight.
  * Secure sums. They hide each client's value, not the sums of each group. The
    weights are summed securely, too. The bounds of
    `tff.aggregators.SecureSumFactory` clip: as `value_sum_factory` they must
    exceed weight times value, as `weight_sum_factory` the weight.

  * Medians and their kin (`tff_ssl.MedianFactory`), as `mean_factory`. They are
    taken over the members of each group alone; the weight of a group is the
    number of its members that count. The server sees every client's value.

  * Differential privacy, as `mean_factory=PrivateMeanFactory(...)`, or one of
    TFF's factories with `clients_per_round`, C. A client's own value is clipped
    before it is scattered, noise is added to all S rows, and each row is
    divided by the public number C / S, whoever took part. So a client moves one
    row by at most the clipping norm, which is what the noise hides; nothing
    else of the groups is published. All clients weigh the same, and groups are
    as good as equal: the mean of a group with fewer members than C / S is too
    small.

Without `clients_per_round`, differential privacy is refused. TFF's factories
divide by a constant number of clients, where a group would need the number of
its own, which is not public.

Source: the grouping-based model averaging of Zhang et al., Improving
Semi-supervised Federated Learning by Reducing the Gradient Diversity of Models
(arXiv 2008.11364), Eq. 7, is a mean of this kind; see
`tff_ssl.algorithms.grouping`.

Who sees what: row g is a sum over the members of group g alone. A group of one
client shows that client's value to the server, under secure aggregation too.
`min_group_size` keeps such a value from the models and the measurements; the
server is kept from it by the least cohort of its platform alone. The weights of
the groups are among the measurements.
"""

import collections
import numbers

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks
from tff_ssl.aggregators import (
  inspection,
  private_mean,
  robust_means,
  value_types,
)

# TFF's factories of sums, which are no means.
_SUMS = (
  tff.aggregators.SumFactory,
  tff.aggregators.SecureSumFactory,
  tff.aggregators.EncodedSumFactory,
)
# The bound of weights that are summed securely, as in
# `tff.learning.secure_aggregator`: integers below it are exact.
_LARGEST_WEIGHT = float(2**20 - 1)


class GroupMeanFactory(tff.aggregators.WeightedAggregationFactory):
  """Weighted means of the clients' values within each of `num_groups` groups.

  The created `tff.templates.AggregationProcess` has the type

  ```
  initialize: ( -> S@SERVER)
  next: (<S@SERVER, {<value=V, group=int32>}@CLIENTS, {float32}@CLIENTS> ->
         <state=S@SERVER, result=<mean=V', weight=float32[S]>@SERVER,
          measurements=M@SERVER>)
  ```

  where V is a structure of float tensors and V' the same structure with a
  leading dimension S. `mean` is zero for a group whose weight is zero. A client
  whose group lies outside [0, S) contributes nothing.
  """

  def __init__(
    self,
    num_groups: int,
    value_sum_factory: tff.aggregators.UnweightedAggregationFactory
    | None = None,
    weight_sum_factory: tff.aggregators.UnweightedAggregationFactory
    | None = None,
    *,
    mean_factory: tff.aggregators.WeightedAggregationFactory
    | tff.aggregators.UnweightedAggregationFactory
    | None = None,
    clients_per_round: int | None = None,
    min_group_size: int = 1,
  ):
    """Initializes the factory.

    Args:
      num_groups: S >= 1.
      value_sum_factory: Sums the scattered, weighted values; by default
        `tff.aggregators.SumFactory()`.
      weight_sum_factory: Sums the weights per group, `float32 [S]`; by default
        a secure sum of weights below 2^20 where the values are summed securely,
        as in `tff.learning.secure_aggregator()`, and otherwise
        `tff.aggregators.SumFactory()`.
      mean_factory: Instead of `value_sum_factory`, an inner factory that gives
        a mean over all clients of the round. A weighted one (such as
        `tff.learning.robust_aggregator()`) gets the scattered values and the
        weights; its result is multiplied by the sum of the weights. An
        unweighted one (such as `tff.aggregators.UnweightedMeanFactory()`) gets
        the scattered, weighted values; its result is multiplied by the number
        of clients. One of this library's medians gets the values of each group
        apart.
      clients_per_round: C, at least `num_groups`, with a `mean_factory` that
        adds noise for differential privacy: the number that it divides by. A
        `PrivateMeanFactory` knows it itself.
      min_group_size: The fewest members of a group, of a weight above 0, whose
        mean is in the result. A group of fewer counts as one without members.
        Members are counted by a secure sum where the values are summed
        securely. Not with noise, which hides how many members there are.

    Raises:
      ValueError: If `num_groups` or `min_group_size` is below 1, both inner
        factories are given, there are fewer clients than groups, weights would
        be summed that nobody needs, or `min_group_size` would hide nobody or
        tell what noise hides.
      TypeError: If an inner factory is not a factory of its kind.
    """
    is_integer = isinstance(num_groups, numbers.Integral)
    if not is_integer or isinstance(num_groups, bool) or num_groups < 1:
      raise ValueError(
        f'num_groups must be an integer >= 1, but is {num_groups!r}.'
      )
    if value_sum_factory is not None and mean_factory is not None:
      raise ValueError(
        'Give value_sum_factory or mean_factory, not both: each of them '
        'aggregates the values.'
      )
    unweighted = tff.aggregators.UnweightedAggregationFactory
    weighted = tff.aggregators.WeightedAggregationFactory
    for name, factory in (
      ('value_sum_factory', value_sum_factory),
      ('weight_sum_factory', weight_sum_factory),
    ):
      if factory is not None and not isinstance(factory, unweighted):
        raise TypeError(
          f'{name} must be a tff.aggregators.UnweightedAggregationFactory, but '
          f'is {type(factory).__name__}: give a weighted mean as mean_factory.'
        )
    if mean_factory is not None and not isinstance(
      mean_factory, (weighted, unweighted)
    ):
      raise TypeError(
        'mean_factory must be an aggregation factory of tff.aggregators, but '
        f'is {type(mean_factory).__name__}.'
      )
    if isinstance(mean_factory, _SUMS):
      raise TypeError(
        f'mean_factory is a {type(mean_factory).__name__}, which gives no '
        'mean: give it as value_sum_factory.'
      )
    default = tff.aggregators.SumFactory()
    if isinstance(
      mean_factory, type(tff.aggregators.as_weighted_aggregator(default))
    ):
      raise TypeError(
        'mean_factory ignores the weights (as_weighted_aggregator made it), '
        'and its result would be taken for a weighted mean: give the '
        'unweighted factory itself.'
      )
    if isinstance(mean_factory, private_mean.PrivateMeanFactory):
      clients_per_round = mean_factory.clients_per_round
    if weight_sum_factory is not None and isinstance(
      mean_factory, robust_means.CollectingFactory
    ):
      raise ValueError(
        'weight_sum_factory has nothing to sum beside a '
        f'{type(mean_factory).__name__}, for which all clients count alike: '
        'leave it out.'
      )
    if clients_per_round is not None:
      _check_clients(clients_per_round, num_groups)
      if not isinstance(mean_factory, unweighted):
        raise TypeError(
          f'clients_per_round={clients_per_round} is for an unweighted '
          'mean_factory with noise, such as tff.learning.dp_aggregator(...): '
          'leave it out.'
        )
    checks.integers_at_least(1, min_group_size=min_group_size)
    if min_group_size > 1 and clients_per_round is not None:
      raise ValueError(
        f'min_group_size={min_group_size} does not fit a mean_factory with '
        'noise: whether a group has a result would tell, without noise, how '
        'many members it had. Leave it out.'
      )
    if min_group_size > 1 and isinstance(
      mean_factory, robust_means.CollectingFactory
    ):
      raise ValueError(
        f'min_group_size={min_group_size} hides nobody beside a '
        f'{type(mean_factory).__name__}, for which the server sees the value '
        'of each client: leave it out.'
      )
    self._min_group_size = min_group_size
    self._clients_per_round = clients_per_round
    self._num_groups = num_groups
    self._inner_is_mean = mean_factory is not None
    self._inner_is_weighted = isinstance(mean_factory, weighted)
    self._values = mean_factory or value_sum_factory or default
    self._weights = weight_sum_factory

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process (see the class).

    Args:
      value_type: `<value=V, group=int32>`, unplaced.
      weight_type: A scalar float type.

    Returns:
      A weighted `tff.templates.AggregationProcess`.

    Raises:
      TypeError: If the types are not of this form.
      ValueError: If the inner factory adds noise for differential privacy
        without `clients_per_round`, clips values to which the weights have
        been applied, or has a median inside.
    """
    value_types.check_grouped(
      value_type,
      'GroupMeanFactory aggregates <value=V, group=int32> with V a structure '
      'of float tensors',
    )
    value_types.check_weight(weight_type)
    process = self._create(value_type, weight_type)
    if self._min_group_size == 1:
      return process
    return _hide_small_groups(process, self._num_groups, self._min_group_size)

  @property
  def min_group_size(self) -> int:
    """The fewest members of a group whose mean is in the result."""
    return self._min_group_size

  def _create(self, value_type, weight_type):
    """Returns the process that shows the groups of all sizes."""
    if isinstance(self._values, robust_means.CollectingFactory):
      return self._values.create_within_groups(
        self._num_groups, value_type, weight_type
      )
    if self._clients_per_round is not None:
      return _create_private(
        self._values,
        self._num_groups,
        self._clients_per_round,
        value_type,
        weight_type,
      )
    num_groups = self._num_groups
    inner_is_mean = self._inner_is_mean
    inner_is_weighted = self._inner_is_weighted

    @tff.tensorflow.computation(value_type, weight_type)
    def scatter(member, weight):
      row = tf.one_hot(member['group'], num_groups, dtype=weight.dtype)

      def to_rows(value):
        shape = [num_groups] + [1] * value.shape.rank
        factor = row if inner_is_weighted else row * weight
        mask = tf.cast(tf.reshape(factor, shape), value.dtype)
        return mask * value[tf.newaxis]

      return (
        tf.nest.map_structure(to_rows, member['value']),
        row * weight,
        # What the inner factory's mean divides by, summed over clients.
        tf.reduce_sum(row * weight) if inner_is_weighted else tf.constant(1.0),
      )

    rows_type, weights_type, one_type = scatter.type_signature.result
    value_process = (
      self._values.create(rows_type, one_type)
      if inner_is_weighted
      else self._values.create(rows_type)
    )
    _check_inner(
      value_process,
      'mean_factory' if inner_is_mean else 'value_sum_factory',
      inner_is_weighted,
    )
    sum_weights = self._weights
    if sum_weights is None:
      sum_weights = (
        tff.aggregators.SecureSumFactory(_LARGEST_WEIGHT, 0.0)
        if inspection.has_secure_sums(value_process.next)
        else tff.aggregators.SumFactory()
      )
    weight_process = sum_weights.create(weights_type)
    count_process = sum_weights.create(one_type)
    if inspection.is_private(weight_process) or inspection.bounds_norms(
      weight_process
    ):
      raise ValueError(
        'weight_sum_factory changes the weights (it clips, zeroes or adds '
        'noise), and the values would be divided by other weights than theirs: '
        'use a plain or a secure sum.'
      )

    @tff.tensorflow.computation(
      value_process.next.type_signature.result.result.member,
      weight_process.next.type_signature.result.result.member,
      count_process.next.type_signature.result.result.member,
    )
    def divide(rows, weights, divisor):
      weights = tf.cast(weights, tf.float32)
      scale = tf.cast(divisor, tf.float32) if inner_is_mean else 1.0
      factors = tf.math.divide_no_nan(scale, weights)

      def to_mean(row):
        shape = [num_groups] + [1] * (row.shape.rank - 1)
        # TFF's weighted mean is NaN where all weights are zero.
        return tf.math.multiply_no_nan(
          row, tf.cast(tf.reshape(factors, shape), row.dtype)
        )

      return collections.OrderedDict(
        mean=tf.nest.map_structure(to_mean, rows), weight=weights
      )

    @tff.federated_computation
    def initialize():
      return tff.federated_zip(
        collections.OrderedDict(
          values=value_process.initialize(),
          weights=weight_process.initialize(),
          count=count_process.initialize(),
        )
      )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def aggregate(state, values, weights):
      scattered = tff.federated_map(scatter, (values, weights))
      own_weight = (scattered[2],) if inner_is_weighted else ()
      value_output = value_process.next(
        state['values'], scattered[0], *own_weight
      )
      weight_output = weight_process.next(state['weights'], scattered[1])
      count_output = count_process.next(state['count'], scattered[2])
      result = tff.federated_map(
        divide,
        (value_output.result, weight_output.result, count_output.result),
      )
      return tff.templates.MeasuredProcessOutput(
        state=tff.federated_zip(
          collections.OrderedDict(
            values=value_output.state,
            weights=weight_output.state,
            count=count_output.state,
          )
        ),
        result=result,
        measurements=tff.federated_zip(
          collections.OrderedDict(
            group_weights=weight_output.result,
            values=value_output.measurements,
          )
        ),
      )

    return tff.templates.AggregationProcess(initialize, aggregate)


def _hide_small_groups(
  process: tff.templates.AggregationProcess, num_groups: int, min_size: int
) -> tff.templates.AggregationProcess:
  """Makes groups of few members count as groups without any."""
  _, values, weights = process.next.type_signature.parameter
  output = process.next.type_signature.result

  @tff.tensorflow.computation(values.member, weights.member)
  def membership(member, weight):
    row = tf.one_hot(member['group'], num_groups, dtype=tf.int32)
    return row * tf.cast(weight > 0, tf.int32)

  @tff.tensorflow.computation(
    output.result.member, output.measurements.member, (np.int32, [num_groups])
  )
  def hide(result, measurements, members):
    is_shown = members >= min_size

    def shown(rows):
      mask = tf.reshape(is_shown, [-1] + [1] * (rows.shape.rank - 1))
      return tf.where(mask, rows, tf.zeros_like(rows))

    measurements['group_weights'] = shown(measurements['group_weights'])
    return tf.nest.map_structure(shown, result), measurements

  sum_members = (
    (lambda rows: tff.federated_secure_sum_bitwidth(rows, bitwidth=1))
    if inspection.has_secure_sums(process.next)
    else tff.federated_sum
  )

  @tff.federated_computation(
    process.initialize.type_signature.result, values, weights
  )
  def aggregate(state, values, weights):
    output = process.next(state, values, weights)
    members = sum_members(tff.federated_map(membership, (values, weights)))
    result, measurements = tff.federated_map(
      hide, (output.result, output.measurements, members)
    )
    return tff.templates.MeasuredProcessOutput(
      output.state, result, measurements
    )

  return tff.templates.AggregationProcess(process.initialize, aggregate)


def _check_clients(clients_per_round, num_groups: int) -> None:
  if (
    not isinstance(clients_per_round, numbers.Integral)
    or isinstance(clients_per_round, bool)
    or clients_per_round < num_groups
  ):
    raise ValueError(
      f'clients_per_round={clients_per_round!r} must be a whole number of at '
      f'least num_groups={num_groups}.'
    )


def _create_private(
  factory, num_groups: int, clients_per_round: int, value_type, weight_type
) -> tff.templates.AggregationProcess:
  """Creates the process with noise on all rows; see the module."""
  # Of each group, as far as anybody may know.
  members = clients_per_round / num_groups

  @tff.tensorflow.computation(value_type, weight_type)
  def scatter(member, weight):
    row = tf.one_hot(member['group'], num_groups)
    row *= tf.cast(weight > 0, tf.float32)

    def to_rows(value):
      shape = [num_groups] + [1] * value.shape.rank
      return tf.cast(tf.reshape(row, shape), value.dtype) * value[tf.newaxis]

    return tf.nest.map_structure(to_rows, member['value'])

  rows_type = scatter.type_signature.result
  process = factory.create(rows_type)
  if not inspection.is_private(process):
    raise ValueError(
      f'clients_per_round={clients_per_round} is for a mean_factory with '
      'noise, and this one has none: leave it out.'
    )

  @tff.tensorflow.computation(process.next.type_signature.result.result.member)
  def to_means(rows):
    # The inner factory has divided by all clients of a round.
    return collections.OrderedDict(
      mean=tf.nest.map_structure(
        lambda row: row * tf.cast(num_groups, row.dtype), rows
      ),
      weight=tf.fill([num_groups], tf.constant(members, tf.float32)),
    )

  @tff.federated_computation(
    process.initialize.type_signature.result,
    tff.FederatedType(value_type, tff.CLIENTS),
    tff.FederatedType(weight_type, tff.CLIENTS),
  )
  def aggregate(state, values, weights):
    output = process.next(state, tff.federated_map(scatter, (values, weights)))
    return tff.templates.MeasuredProcessOutput(
      output.state,
      tff.federated_map(to_means, output.result),
      output.measurements,
    )

  return tff.templates.AggregationProcess(process.initialize, aggregate)


def _check_inner(process, name: str, is_weighted: bool) -> None:
  """Raises `ValueError` where the means within groups would be wrong."""
  if inspection.collects_values(process):
    raise ValueError(
      f'{name} has a median or the like inside another factory, and would take '
      'it over the clients of all groups: give the inner factory itself. It '
      'needs no clipping around it.'
    )
  if inspection.is_private(process):
    raise ValueError(
      f'{name} adds noise for differential privacy, which divides by a '
      'constant number of clients, where each group needs the number of its '
      'own: give a tff_ssl.PrivateMeanFactory, which knows it, or '
      'tff_ssl.GroupMeanFactory(num_groups, mean_factory=..., '
      'clients_per_round=...).'
    )
  bounds = (
    inspection.bounds_norms_of_weighted_values
    if is_weighted
    else inspection.bounds_norms
  )
  if bounds(process):
    raise ValueError(
      f'{name} clips or zeroes values to which the weights have been applied '
      'already: a client with a large weight would be clipped to next to '
      'nothing, and its group with it. Clip before the weights: give a '
      'weighted mean, as mean_factory=tff.aggregators.clipping_factory(norm, '
      'tff.aggregators.MeanFactory()) or tff.learning.robust_aggregator().'
    )
