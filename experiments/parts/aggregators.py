"""How clients' results meet: the settings of a run, and a builder."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_ssl.aggregators import recommended
from tff_ssl.common.choice import Registry
from tff_ssl.common.setting import Setting, needs_process

_CLIENTS_TRAIN = needs_process('has_client_training')

MIN_GROUP_SIZE = Setting(
  'min_group_size',
  int,
  'The fewest clients whose secure sum may be used: a run whose groups are '
  'smaller is refused, and with --aggregator=secure a group of which fewer '
  'answer in a round has no result in it.',
  default=5,
  at_least=2,
  needed_by='secure sums, which say much of few clients',
)
# In the place of a noise multiplier, and what epsilon is at.
_PRIVACY = (
  Setting(
    'target_epsilon',
    float,
    'epsilon of all rounds, for which the noise multiplier is found.',
    above=0,
    instead_of='noise_multiplier',
    needed_by='differential privacy',
  ),
  Setting(
    'delta',
    float,
    'delta of differential privacy; by default K^-1.1, of K clients.',
    above=0,
    below=1,
    needed_by='differential privacy',
  ),
)


def _of_runs(spec: recommended.AggregatorSpec) -> recommended.AggregatorSpec:
  """Returns an aggregator with what it takes and imposes in a run."""
  defaults = {}
  if spec.is_private or spec.is_secure or spec.sees_clients:
    # Momenta that clients send would go round the aggregator.
    defaults['client_momentum'] = 'reset'
  if spec.is_secure:
    defaults['client_metrics'] = 'secure'
  if not spec.is_weighted:
    defaults['client_weighting'] = 'uniform'
  more = (*(_PRIVACY * spec.is_private), *((MIN_GROUP_SIZE,) * spec.is_secure))
  return dataclasses.replace(
    spec, settings=(*spec.settings, *more), defaults=defaults
  )


AGGREGATORS: Registry[recommended.AggregatorSpec] = Registry(
  'aggregator', map(_of_runs, recommended.AGGREGATORS.values())
)

SETTINGS = (
  Setting(
    'aggregator',
    str,
    'How the model deltas of clients meet: mean, clip (of bounded norm), '
    'robust (very large ones count as zero, too), median or trimmed_mean (of '
    'each coordinate), compressed (as robust, and in 8 bits), dp (differential '
    'privacy), secure (sums hide each client) or secure_dp.',
    default='mean',
    choices=tuple(AGGREGATORS),
    used_when=(_CLIENTS_TRAIN,),
    needed_by='robust, private and secure aggregation',
  ),
  Setting(
    'client_metrics',
    str,
    "How the metrics of clients' training meet: sum, secure (sums hide each "
    'client) or none (they stay with the clients).',
    default='sum',
    choices=tuple(recommended.CLIENT_METRICS),
    used_when=(_CLIENTS_TRAIN,),
    needed_by='secure and private aggregation',
  ),
)


def build(settings) -> dict[str, Any]:
  """Returns what a `Wiring` takes, by name, where it is not the default."""
  wired = {}
  if settings.aggregator not in (None, 'mean'):
    spec = recommended.AGGREGATORS[settings.aggregator]
    wired['model_aggregator'] = recommended.recommended_aggregator(
      spec.name,
      clients_per_round=settings.clients_per_round,
      **spec.arguments(vars(settings)),
    )
    # Noise hides how many clients there were; a rest would tell.
    if settings.min_group_size is not None and not spec.is_private:
      wired['min_group_size'] = settings.min_group_size
  if settings.client_metrics is not None:
    metrics = recommended.CLIENT_METRICS[settings.client_metrics]
    if metrics is not None:
      wired['metrics_aggregator'] = metrics
  return wired
