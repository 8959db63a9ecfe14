"""A mean with noise for differential privacy, which knows its cohort.

Source: McMahan et al., Learning Differentially Private Recurrent Language
Models (arXiv 1710.06963), Algorithm 1 with the estimator of a fixed
denominator: each client's model delta is clipped to a norm c, the clipped
deltas are summed, normal noise of standard deviation z c is added to the sum,
and the sum is divided by the public number C of clients in a round. The clients
weigh the same. Where c adapts, it follows a quantile of the norms, by Andrew et
al. (arXiv 1905.03871); TFF raises the noise of the sum so that z covers the
release of that quantile, too.

TensorFlow Privacy draws the noise without a seed, so that two runs of the same
seed differ.
"""

import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_ssl import checks, compat


class PrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """`tff.aggregators.DifferentiallyPrivateFactory`, with its cohort's size.

  Processes with groups need that size: see `GroupMeanFactory`, which takes it
  from here.

  Attributes:
    clients_per_round: C, what the sum is divided by.
  """

  def __init__(
    self,
    noise_multiplier: float,
    clients_per_round: int,
    *,
    clip_norm: float | None = None,
    secure: bool = False,
  ):
    """Initializes the factory.

    Args:
      noise_multiplier: z >= 0, the standard deviation of the noise by the
        clipping norm.
      clients_per_round: C >= 1. A round of fewer clients is divided by it, too.
      clip_norm: c > 0, the largest norm of a client's delta, over all its
        tensors. `None`: it begins at .1 and follows the median of the norms.
      secure: Whether the clipped deltas are summed by
        `tff.aggregators.SecureSumFactory`, within [-c, c]. The noise is added
        by the server, which has to be trusted with the exact sum.

    Raises:
      ValueError: If a number is out of range, sums are secure without a
        `clip_norm`, or the cohort is too small to adapt the norm.
    """
    checks.integers_at_least(1, clients_per_round=clients_per_round)
    checks.numbers_at_least(0, noise_multiplier=noise_multiplier)
    if clip_norm is not None:
      checks.numbers_at_least(0, above=True, clip_norm=clip_norm)
    elif secure:
      raise ValueError(
        'clip_norm is missing: secure sums need bounds that are known before '
        'the first round. Give the largest norm of a client.'
      )
    else:
      checks.cohort_adapts(clients_per_round, noise_multiplier)
    self.clients_per_round = clients_per_round
    kind = tff.aggregators.DifferentiallyPrivateFactory
    if clip_norm is None:
      self._factory = kind.gaussian_adaptive(
        noise_multiplier, float(clients_per_round)
      )
      return
    clip = float(clip_norm)
    # The query of `gaussian_fixed`, which takes no inner aggregator.
    query = tfp.NormalizedQuery(
      tfp.GaussianSumQuery(clip, clip * noise_multiplier),
      denominator=float(clients_per_round),
    )
    self._factory = kind(
      query, tff.aggregators.SecureSumFactory(clip, -clip) if secure else None
    )

  def create(self, value_type: compat.Type) -> tff.templates.AggregationProcess:
    """Creates the process for deltas of this type, a structure of floats."""
    return self._factory.create(value_type)
