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
  * Secure sums. They hide each client's value, not the sums of each group. The
    weights are summed securely, too, below 2^20 as in
    `tff.learning.secure_aggregator()`. The bounds of a
    `tff.aggregators.SecureSumFactory` clip: those of a mean's values must
    exceed weight times value.
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

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, compat, stacks
from tff_ssl.aggregators import (
  inspection,
  private_mean,
  robust_means,
  wrapping,
)

# TFF's factories of sums, which are no means.
_SUMS = (
  tff.aggregators.SumFactory,
  tff.aggregators.SecureSumFactory,
  compat.EncodedSumFactory,
)
_UNWEIGHTED = tff.aggregators.UnweightedAggregationFactory
_WEIGHTED = tff.aggregators.WeightedAggregationFactory
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

  Attributes:
    min_group_size: The fewest members of a group whose mean is in the result.
  """

  def __init__(
    self,
    num_groups: int,
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
      mean_factory: An inner factory that gives a mean over all clients of the
        round; by default, the weighted values are summed. A weighted one (such
        as `tff.learning.robust_aggregator()`) gets the scattered values and the
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
      ValueError: If `num_groups` or `min_group_size` is below 1, there are
        fewer clients than groups, or `min_group_size` would hide nobody or tell
        what noise hides.
      TypeError: If the inner factory gives no mean.
    """
    checks.integers_at_least(1, num_groups=num_groups)
    if mean_factory is not None:
      _check_mean(mean_factory)
    if isinstance(mean_factory, private_mean.PrivateMeanFactory):
      clients_per_round = mean_factory.clients_per_round
    if clients_per_round is not None:
      _check_clients(clients_per_round, num_groups, mean_factory)
    checks.integers_at_least(1, min_group_size=min_group_size)
    if min_group_size > 1 and clients_per_round is not None:
      raise ValueError(
        f'min_group_size={min_group_size} does not fit a mean_factory with '
        'noise: whether a group has a result would tell, without noise, how '
        'many members it had. Leave it out.'
      )
    is_median = isinstance(mean_factory, robust_means.CollectingFactory)
    if is_median and min_group_size > 1:
      raise ValueError(
        f'min_group_size={min_group_size} hides nobody beside a '
        f'{type(mean_factory).__name__}, for which the server sees the value '
        'of each client: leave it out.'
      )
    self.min_group_size = min_group_size
    self._clients_per_round = clients_per_round
    self._num_groups = num_groups
    self._inner_is_mean = mean_factory is not None
    self._inner_is_weighted = isinstance(mean_factory, _WEIGHTED)
    self._values = mean_factory or tff.aggregators.SumFactory()

  def create(
    self, value_type: compat.Type, weight_type: compat.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process (see the class).

    Args:
      value_type: `<value=V, group=int32>`, unplaced.
      weight_type: A scalar float type.

    Raises:
      TypeError: If the types are not of this form.
      ValueError: If the inner factory adds noise for differential privacy
        without `clients_per_round`, clips values to which the weights have
        been applied, or has a median inside.
    """
    wrapping.check_grouped(
      value_type,
      'GroupMeanFactory aggregates <value=V, group=int32> with V a structure '
      'of float tensors',
    )
    wrapping.check_weight(weight_type)
    if isinstance(self._values, robust_means.CollectingFactory):
      return self._values.create_within_groups(
        self._num_groups, value_type, weight_type
      )
    if self._clients_per_round is not None:
      return self._create_private(value_type, weight_type)
    return self._create_means(value_type, weight_type)

  def _create_means(self, value_type, weight_type):
    """Creates the process of sums, or of a mean without noise."""
    is_weighted = self._inner_is_weighted

    @tff.tensorflow.computation(value_type, weight_type)
    def split(member, weight):
      group = member['group']
      row = tf.one_hot(group, self._num_groups, dtype=weight.dtype)
      weights = row * weight
      # What the inner factory's mean divides by, summed over clients.
      count = tf.reduce_sum(weights) if is_weighted else tf.constant(1.0)
      rows = stacks.to_rows(member['value'], row if is_weighted else weights)
      parts = collections.OrderedDict(
        values=(rows, count) if is_weighted else (rows,),
        weights=(weights,),
        count=(count,),
      )
      if self.min_group_size > 1:
        members = tf.one_hot(group, self._num_groups, dtype=tf.int32)
        parts['members'] = (members * tf.cast(weight > 0, tf.int32),)
      return parts

    # The inner processes are made for the types that the scattered parts have.
    types = split.type_signature.result
    values = self._values.create(*types['values'])
    _check_inner(values, is_weighted)
    is_secure = inspection.has_secure_sums(values.next)
    weights = _sum_below(_LARGEST_WEIGHT, is_secure)
    processes = collections.OrderedDict(
      values=values,
      weights=weights.create(*types['weights']),
      count=weights.create(*types['count']),
    )
    if self.min_group_size > 1:
      processes['members'] = _sum_below(1, is_secure).create(*types['members'])
    return wrapping.wrap_aggregation(
      processes, split, self._divide, value_type, weight_type
    )

  def _divide(self, results, measurements):
    """Returns the means within groups from the sums or the mean over all."""
    weights = tf.cast(results['weights'], tf.float32)
    scale = (
      tf.cast(results['count'], tf.float32) if self._inner_is_mean else 1.0
    )
    factors = tf.math.divide_no_nan(scale, weights)
    means = tf.nest.map_structure(
      # TFF's weighted mean is NaN where all weights are zero.
      lambda row: tf.math.multiply_no_nan(
        row, tf.cast(stacks.per_row(factors, row), row.dtype)
      ),
      results['values'],
    )
    result = collections.OrderedDict(mean=means, weight=weights)
    measured = collections.OrderedDict(
      group_weights=results['weights'], values=measurements['values']
    )
    if self.min_group_size == 1:
      return result, measured
    is_shown = results['members'] >= self.min_group_size

    def shown(rows):
      mask = stacks.per_row(is_shown, rows)
      return tf.where(mask, rows, tf.zeros_like(rows))

    measured['group_weights'] = shown(measured['group_weights'])
    return tf.nest.map_structure(shown, result), measured

  def _create_private(self, value_type, weight_type):
    """Creates the process with noise on all rows; see the module."""
    num_groups = self._num_groups
    # Of each group, as far as anybody may know.
    members = self._clients_per_round / num_groups

    @tff.tensorflow.computation(value_type, weight_type)
    def split(member, weight):
      row = tf.one_hot(member['group'], num_groups)
      row *= tf.cast(weight > 0, tf.float32)
      rows = stacks.to_rows(member['value'], row)
      return collections.OrderedDict(values=(rows,))

    process = self._values.create(*split.type_signature.result['values'])
    if not inspection.is_private(process):
      raise ValueError(
        f'clients_per_round={self._clients_per_round} is for a mean_factory '
        'with noise, and this one has none: leave it out.'
      )

    def join(results, measurements):
      # The inner factory has divided by all clients of a round.
      means = tf.nest.map_structure(
        lambda row: row * tf.cast(num_groups, row.dtype), results['values']
      )
      result = collections.OrderedDict(
        mean=means,
        weight=tf.fill([num_groups], tf.constant(members, tf.float32)),
      )
      return result, measurements['values']

    return wrapping.wrap_aggregation(
      collections.OrderedDict(values=process),
      split,
      join,
      value_type,
      weight_type,
    )


def _sum_below(bound, is_secure: bool):
  """Returns the factory of a sum of numbers in [0, bound]."""
  if is_secure:
    # TFF takes bounds of one type alone.
    return tff.aggregators.SecureSumFactory(bound, type(bound)(0))
  return tff.aggregators.SumFactory()


def _check_mean(factory) -> None:
  """Raises `TypeError` unless this is a factory of means over clients."""
  if not isinstance(factory, (_WEIGHTED, _UNWEIGHTED)):
    raise TypeError(
      'mean_factory must be an aggregation factory of tff.aggregators, but '
      f'is {type(factory).__name__}.'
    )
  if isinstance(factory, _SUMS):
    raise TypeError(
      f'mean_factory is a {type(factory).__name__}, which gives no mean: give '
      'one over it, such as tff.aggregators.MeanFactory(...).'
    )
  # TFF has no public name for the class of what this returns.
  made_weighted = tff.aggregators.as_weighted_aggregator(
    tff.aggregators.SumFactory()
  )
  if isinstance(factory, type(made_weighted)):
    raise TypeError(
      'mean_factory ignores the weights (as_weighted_aggregator made it), '
      'and its result would be taken for a weighted mean: give the '
      'unweighted factory itself.'
    )


def _check_clients(clients_per_round, num_groups: int, mean_factory) -> None:
  """Raises an error unless a private mean may divide by this number."""
  if (
    not isinstance(clients_per_round, numbers.Integral)
    or isinstance(clients_per_round, bool)
    or clients_per_round < num_groups
  ):
    raise ValueError(
      f'clients_per_round={clients_per_round!r} must be a whole number of at '
      f'least num_groups={num_groups}.'
    )
  if not isinstance(mean_factory, _UNWEIGHTED):
    raise TypeError(
      f'clients_per_round={clients_per_round} is for an unweighted '
      'mean_factory with noise, such as tff.learning.dp_aggregator(...): '
      'leave it out.'
    )


def _check_inner(process, is_weighted: bool) -> None:
  """Raises `ValueError` where the means within groups would be wrong."""
  if inspection.collects_values(process):
    raise ValueError(
      'mean_factory has a median or the like inside another factory, and would '
      'take it over the clients of all groups: give the inner factory itself. '
      'It needs no clipping around it.'
    )
  if inspection.is_private(process):
    raise ValueError(
      'mean_factory adds noise for differential privacy, which divides by a '
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
      'mean_factory clips or zeroes values to which the weights have been '
      'applied already: a client with a large weight would be clipped to next '
      'to nothing, and its group with it. Clip before the weights: give a '
      'weighted mean, as mean_factory=tff.aggregators.clipping_factory(norm, '
      'tff.aggregators.MeanFactory()) or tff.learning.robust_aggregator().'
    )
