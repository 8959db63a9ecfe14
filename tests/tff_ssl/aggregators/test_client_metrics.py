"""Metrics of clients: summed securely, or kept with the clients."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators

_PAIR = tff.TensorType(np.float32, [2])
_TYPE = tff.types.to_type(collections.OrderedDict(examples=_PAIR, loss=_PAIR))
_FINALIZERS = collections.OrderedDict(
  examples=tf.function(lambda pair: pair[0]),
  loss=tf.function(lambda pair: pair[0] / pair[1]),
)
_CLIENTS = [
  collections.OrderedDict(examples=[12.0, 1.0], loss=[-1.5, 4.0]),
  collections.OrderedDict(examples=[30.0, 1.0], loss=[3.0, 1.0]),
]


def _aggregation(metrics_aggregator):
  aggregate = metrics_aggregator(_FINALIZERS)

  @tff.federated_computation(tff.FederatedType(_TYPE, tff.CLIENTS))
  def run(metrics):
    return aggregate(metrics)

  return run


@pytest.mark.parts
def test_secure_sums_equal_plain_ones(tff_context):
  secure = _aggregation(aggregators.secure_metrics)
  tff.test.assert_not_contains_unsecure_aggregation(secure)
  found = secure(_CLIENTS)
  plain = _aggregation(tff.learning.metrics.sum_then_finalize)(_CLIENTS)
  for name in plain:
    # Half a step of 2**-11 for each client.
    assert found[name] == pytest.approx(plain[name], abs=2**-11)


def test_nothing_reaches_the_server():
  run = _aggregation(aggregators.no_metrics)
  assert len(run.type_signature.result.member) == 0
  tff.test.assert_not_contains_unsecure_aggregation(run)
  tff.test.assert_not_contains_secure_aggregation(run)
