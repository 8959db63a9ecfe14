"""Aggregators by name, as runs and programs choose them; metrics of clients.

Each is made of TFF's own parts, or of the parts in this package where TFF has
none. The records say what a run may set, and what an aggregator protects.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from etils import epy

from tff_ssl.common.choice import Choice, Registry
from tff_ssl.common.setting import Setting, check_arguments

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import compat
  from tff_ssl.aggregators import private_mean, robust_means

CLIP_NORM = Setting(
  'clip_norm',
  float,
  "Largest norm of a client's model delta; by default it adapts to the norms "
  'of the rounds before.',
  above=0,
  optional=True,
  needed_by='robust and private aggregation',
)
_FIXED_CLIP_NORM = dataclasses.replace(
  CLIP_NORM, help="Largest norm of a client's model delta."
)
NOISE_MULTIPLIER = Setting(
  'noise_multiplier',
  float,
  'z, standard deviation of the noise in the sum of the model deltas, by their '
  'largest norm.',
  at_least=0,
  needed_by='differential privacy',
)
TRIMMED_SHARE = Setting(
  'trimmed_share',
  float,
  'beta, the share of the clients that is left out on each side of each '
  'coordinate.',
  default=0.1,
  at_least=0,
  below=0.5,
  needed_by='Yin et al. (arXiv 1803.01498), Definition 2',
)


@dataclasses.dataclass(frozen=True)
class AggregatorSpec(Choice):
  """What the registry says of an aggregator.

  `builder` returns the factory; where `is_private`, it takes
  `clients_per_round`, too.

  Attributes:
    is_weighted: Whether it takes the weights of clients.
    is_private: Whether it adds noise for differential privacy.
    is_secure: Whether sums are secure.
    sees_clients: Whether the server sees the value of each client.
  """

  _: dataclasses.KW_ONLY
  is_weighted: bool = True
  is_private: bool = False
  is_secure: bool = False
  sees_clients: bool = False


def _mean():
  return tff.aggregators.MeanFactory(no_nan_division=True)


def _clip(*, clip_norm=None):
  if clip_norm is None:
    return tff.learning.robust_aggregator(zeroing=False)
  return tff.aggregators.clipping_factory(float(clip_norm), _mean())


def _dp(*, noise_multiplier, clients_per_round, clip_norm=None, secure=False):
  return private_mean.PrivateMeanFactory(
    noise_multiplier, clients_per_round, clip_norm=clip_norm, secure=secure
  )


AGGREGATORS: Registry[AggregatorSpec] = Registry(
  'aggregator',
  (
    AggregatorSpec('mean', 'The weighted mean of the papers.', _mean),
    AggregatorSpec(
      'clip',
      'A mean of model deltas of bounded norm.',
      _clip,
      (CLIP_NORM,),
    ),
    AggregatorSpec(
      'robust',
      'As clip, and very large deltas count as zero; both bounds adapt.',
      lambda: tff.learning.robust_aggregator(),
    ),
    AggregatorSpec(
      'median',
      'The median of each coordinate; the server sees all clients.',
      lambda: robust_means.MedianFactory(),
      sees_clients=True,
    ),
    AggregatorSpec(
      'trimmed_mean',
      'The mean without extreme values; the server sees all clients.',
      lambda **chosen: robust_means.TrimmedMeanFactory(**chosen),
      (TRIMMED_SHARE,),
      sees_clients=True,
    ),
    AggregatorSpec(
      'compressed',
      'As robust, and large tensors are sent in 8 bits.',
      lambda: compat.compression_aggregator(),
    ),
    AggregatorSpec(
      'dp',
      'Differential privacy: deltas of bounded norm, and noise.',
      _dp,
      (NOISE_MULTIPLIER, CLIP_NORM),
      is_weighted=False,
      is_private=True,
    ),
    AggregatorSpec(
      'secure',
      'As robust, with sums that hide each client from the server.',
      lambda: tff.learning.secure_aggregator(),
      is_secure=True,
    ),
    AggregatorSpec(
      'secure_dp',
      'As dp with a fixed norm, and the sums hide each client.',
      functools.partial(_dp, secure=True),
      (NOISE_MULTIPLIER, _FIXED_CLIP_NORM),
      is_weighted=False,
      is_private=True,
      is_secure=True,
    ),
  ),
)

# The bound of each sum that a client reports, such as its examples times their
# loss. TFF bounds from 0, where some objectives are below it.
_LARGEST_SUM = float(2**20)


def secure_metrics(metric_finalizers, metrics_type=None) -> compat.Computation:
  """Sums the metrics of clients securely, within fixed bounds.

  It is for `metrics_aggregator` of a `Wiring`. Each sum of a client is clipped
  to [-2^20, 2^20] and rounded to steps of 2^-11; how many were clipped is in
  `secure_sum_measurements`.

  Args:
    metric_finalizers: By name of the metric, as
      `tff.learning.metrics.secure_sum_then_finalize` takes them.
    metrics_type: Not needed.

  Returns:
    A polymorphic computation from a client's metrics to finalized ones.
  """
  del metrics_type
  return tff.learning.metrics.secure_sum_then_finalize(
    metric_finalizers,
    metric_value_ranges=collections.OrderedDict(
      (name, (-_LARGEST_SUM, _LARGEST_SUM)) for name in metric_finalizers
    ),
  )


def no_metrics(metric_finalizers, metrics_type=None) -> compat.Computation:
  """Lets no metric of clients reach the server.

  The counts of clients that took part, were empty, not finite or invalid do.

  It is for `metrics_aggregator` of a `Wiring`; neither argument is needed.

  Returns:
    A polymorphic computation from a client's metrics to an empty structure.
  """
  del metric_finalizers, metrics_type

  @compat.federated_computation
  def drop(metrics):
    del metrics
    return compat.federated_value(collections.OrderedDict(), compat.SERVER)

  return drop


# How the metrics of clients meet: from names to what a `Wiring` takes.
CLIENT_METRICS: Mapping[str, Callable[..., Any] | None] = {
  'sum': None,
  'secure': secure_metrics,
  'none': no_metrics,
}


def recommended_aggregator(
  name: str, *, clients_per_round: int | None = None, **settings: Any
) -> (
  tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
):
  """Returns what a builder takes as `model_aggregator`.

  Processes with groups take the same: they aggregate by group with it.

  Args:
    name: 'mean', 'clip', 'robust', 'median', 'trimmed_mean', 'compressed',
      'dp', 'secure' or 'secure_dp'.
    clients_per_round: C, which 'dp' and 'secure_dp' divide by.
    **settings: `clip_norm` of 'clip', 'dp' and 'secure_dp', `noise_multiplier`
      of the latter two, `trimmed_share` of 'trimmed_mean'.

  Returns:
    A factory. Those of 'dp' and 'secure_dp' are unweighted, for builders with
    `client_weighting='uniform'`. With 'secure' and 'secure_dp', give
    `metrics_aggregator=tff_ssl.secure_metrics`, too.

  Raises:
    ValueError: If there is no such aggregator, or a number is out of range.
    TypeError: If an argument is missing, or is none of this aggregator's.
  """
  if name not in AGGREGATORS:
    raise ValueError(
      f'name={name!r} is no aggregator: choose one of {tuple(AGGREGATORS)}.'
    )
  spec = AGGREGATORS[name]
  check_arguments(spec.settings, settings)
  known = {setting.name: setting for setting in spec.settings}
  if unknown := sorted(settings.keys() - known.keys()):
    raise TypeError(
      f'{unknown[0]} is no setting of the aggregator {name!r}: leave it out'
      + (f', or give {", ".join(known)}.' if known else '.')
    )
  if not spec.is_private:
    return spec.builder(**settings)
  needed = ['noise_multiplier'] + ['clip_norm'] * spec.is_secure
  missing = [each for each in needed if settings.get(each) is None]
  if clients_per_round is None:
    missing.append('clients_per_round')
  if missing:
    raise TypeError(f'The aggregator {name!r} needs {missing[0]}: give it.')
  return spec.builder(clients_per_round=clients_per_round, **settings)
