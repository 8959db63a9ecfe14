"""How the metrics of clients meet: what `metrics_aggregator` may be.

By default `tff.learning.metrics.sum_then_finalize` sums them in the clear.
"""

import collections

import tensorflow_federated as tff

# Of each sum that a client reports, such as its examples times their loss. TFF
# bounds from 0, where some objectives are below it.
_LARGEST_SUM = float(2**20)


def secure_metrics(metric_finalizers, metrics_type=None) -> tff.Computation:
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


def no_metrics(metric_finalizers, metrics_type=None) -> tff.Computation:
  """Lets no metric of clients reach the server.

  The counts of clients that took part, were empty, not finite or invalid do.

  It is for `metrics_aggregator` of a `Wiring`; neither argument is needed.

  Returns:
    A polymorphic computation from a client's metrics to an empty structure.
  """
  del metric_finalizers, metrics_type

  @tff.federated_computation
  def drop(metrics):
    del metrics
    return tff.federated_value(collections.OrderedDict(), tff.SERVER)

  return drop
