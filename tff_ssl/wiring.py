"""How a process is wired: what TFF's own builders take, and the seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from etils import epy

from tff_ssl import checks
from tff_ssl.corruption import Corruption
from tff_ssl.shared_settings import EMA_DECAY, MAX_CLIENT_WEIGHT

with epy.lazy_imports():
  import tensorflow_federated as tff


@dataclasses.dataclass(frozen=True)
class Wiring:
  """How messages are sent, results and metrics meet, and randomness begins.

  Attributes:
    model_distributor: By default the broadcast of weights, round and seed. One
      of TFF's own sends the weights; round and seed then go beside it.
    model_aggregator: A weighted or unweighted aggregation factory; each builder
      says what it takes by default, and what it refuses.
    metrics_aggregator: As in TFF's builders, a function of the metrics'
      finalizers, or of these and the type of the metrics; by default
      `tff.learning.metrics.sum_then_finalize`.
    seed: Root of all randomness, in [0, 2**31).
    ema_decay: Where it is above 0, `get_model_weights` gives a moving average
      of the model over rounds (`tff_ssl.templates.server.moving_average`), with
      that decay per round, in [0, 1). The state holds it; clients see none of
      it.
    min_group_size: The fewest clients whose result is shown to those who see
      models and metrics, at least 1; of a group, where there are groups. With
      fewer that count, the group (or the round) has no result, and a round has
      no metrics. For secure sums, where clients may drop out; the server itself
      is kept from small sums by the least cohort of its platform alone. It does
      not go with noise, which hides numbers of clients better.
    max_client_weight: The largest weight of a client among the others, above 0;
      by default there is none. A larger one becomes this one, so that a client
      that claims many examples moves the mean no more than one that has them.
    corruption: What goes wrong at corrupt clients, in a simulation
      (`tff_ssl.Corruption`); by default nothing.

  Raises:
    TypeError: If the distributor or the aggregator is something else.
    ValueError: If a number is out of range.
  """

  model_distributor: tff.learning.templates.DistributionProcess | None = None
  model_aggregator: (
    tff.aggregators.WeightedAggregationFactory
    | tff.aggregators.UnweightedAggregationFactory
    | None
  ) = None
  metrics_aggregator: Callable[..., tff.Computation] | None = None
  seed: int = 0
  ema_decay: float = 0.0
  min_group_size: int = 1
  max_client_weight: float | None = None
  corruption: Corruption | None = None

  def __post_init__(self):
    EMA_DECAY.check(self.ema_decay)
    checks.integers_at_least(1, min_group_size=self.min_group_size)
    MAX_CLIENT_WEIGHT.check(self.max_client_weight)
    for name, method, wanted in (
      (
        'model_distributor',
        'next',
        'a tff.learning.templates.DistributionProcess',
      ),
      (
        'model_aggregator',
        'create',
        'a factory of tff.aggregators, such as tff.aggregators.MeanFactory()',
      ),
    ):
      value = getattr(self, name)
      if value is not None and not hasattr(value, method):
        raise TypeError(f'{name} is a {type(value).__name__}: give {wanted}.')
