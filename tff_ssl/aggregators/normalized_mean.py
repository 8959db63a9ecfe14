"""The normalised averaging of FedNova, around any mean of model deltas.

Source: Wang et al., Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization (arXiv 2007.07481), Eq. 6 and Theorem 1's
choice of tau_eff: for clients with weights p_i, deltas delta_i and effective
steps a_i,

```math
(sum_i p_i a_i) * sum_i p_i delta_i / a_i
```

The division happens at the client, before the inner aggregator, so that one
that clips, adds noise or compresses sees a delta of the size of one step. The
weights and the numbers of steps are summed apart, securely where the inner
aggregator's sums are secure. Differential privacy is refused. Where the inner
aggregator is one of `tff_ssl.aggregators.robust_means`, so is the mean of
steps: one client could claim any number of them.
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat
from tff_ssl.aggregators import inspection, robust_means, wrapping

# Bounds of secure sums. That of weights is as in TFF's own aggregator. Steps
# times weights are rounded to steps of 2^-8.
_LARGEST_WEIGHT = float(2**20 - 1)
_LARGEST_WEIGHTED_STEPS = float(2**24)


class NormalizedMeanFactory(tff.aggregators.WeightedAggregationFactory):
  """A weighted mean of the deltas per effective step, times the mean of steps.

  The created `tff.templates.AggregationProcess` has the type

  ```
  initialize: ( -> S@SERVER)
  next: (<S@SERVER, {<value=W, steps=float32>}@CLIENTS, {float32}@CLIENTS> ->
         <state=S@SERVER, result=W@SERVER,
          measurements=<effective_steps=float32, deltas=M>@SERVER>)
  ```

  where W are `ModelWeights`. The non-trainable ones (moving statistics) are no
  sums over steps, and averaged as they are. A client with 0 steps counts in the
  mean of steps; its delta counts as 0.
  """

  def __init__(self, mean_factory: tff.aggregators.WeightedAggregationFactory):
    """Initializes the factory.

    Args:
      mean_factory: The inner aggregator, a weighted mean over clients.

    Raises:
      TypeError: If it is not a weighted aggregation factory.
    """
    if not isinstance(mean_factory, tff.aggregators.WeightedAggregationFactory):
      raise TypeError(
        'mean_factory must be a tff.aggregators.WeightedAggregationFactory, '
        f'but is {type(mean_factory).__name__}: wrap an unweighted one in '
        'tff.aggregators.as_weighted_aggregator.'
      )
    self._mean = mean_factory

  def create(
    self, value_type: compat.Type, weight_type: compat.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process (see the class).

    Args:
      value_type: `<value=ModelWeights, steps=float32>`, unplaced.
      weight_type: A scalar float type.

    Raises:
      ValueError: If the inner aggregator has a median inside another one, or
        adds noise for differential privacy.
    """

    @tff.tensorflow.computation(value_type, weight_type)
    def split(member, weight):
      steps = member['steps']
      delta = _scale(
        member['value'], lambda leaf: tf.math.divide_no_nan(leaf, steps)
      )
      return collections.OrderedDict(
        deltas=(delta, weight),
        steps=(tf.where(weight > 0, steps, 0.0), weight),
      )

    def join(results, measurements):
      steps = results['steps']
      result = _scale(results['deltas'], lambda leaf: steps * leaf)
      return result, collections.OrderedDict(
        effective_steps=steps, deltas=measurements['deltas']
      )

    mean = self._mean.create(value_type['value'], weight_type)
    mean_of_steps = self._factory_of_steps(mean).create(
      value_type['steps'], weight_type
    )
    return wrapping.wrap_aggregation(
      collections.OrderedDict(deltas=mean, steps=mean_of_steps),
      split,
      join,
      value_type,
      weight_type,
    )

  def _factory_of_steps(self, mean):
    """Returns the factory of the mean of steps, beside the mean of deltas."""
    if isinstance(self._mean, robust_means.CollectingFactory):
      return self._mean
    if inspection.collects_values(mean):
      raise ValueError(
        'mean_factory has a median or the like inside another factory, and the '
        'steps would be taken by their mean, which one client can move: give '
        'the inner factory itself. It needs no clipping around it.'
      )
    if inspection.is_private(mean):
      raise ValueError(
        'mean_factory adds noise for differential privacy, and the mean is '
        'multiplied by a mean of steps that gets none: one client moves it '
        'farther than the noise hides. Take another aggregator, or '
        'build_fed_avg.'
      )
    if not inspection.has_secure_sums(mean.next):
      return tff.aggregators.MeanFactory(no_nan_division=True)
    secure = tff.aggregators.SecureSumFactory
    return tff.aggregators.MeanFactory(
      value_sum_factory=secure(_LARGEST_WEIGHTED_STEPS, 0.0),
      weight_sum_factory=secure(_LARGEST_WEIGHT, 0.0),
      no_nan_division=True,
    )


def _scale(weights, scale):
  """Returns `ModelWeights` with the trainable ones scaled."""
  return tff.learning.models.ModelWeights(
    tf.nest.map_structure(scale, weights.trainable), weights.non_trainable
  )
