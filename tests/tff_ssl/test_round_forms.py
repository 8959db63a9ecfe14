"""Both forms give the round that was compiled."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl import aggregators, round_forms

_SERVER = tff.FederatedType(np.float32, tff.SERVER)
_CLIENTS = tff.FederatedType(np.float32, tff.CLIENTS)


@tff.tensorflow.computation(np.float32, np.float32)
def _add(a, b):
  return a + b


def _round(factory):
  process = factory.create(_CLIENTS.member, _CLIENTS.member)

  @tff.federated_computation(_SERVER, _CLIENTS)
  def next_fn(state, values):
    sent = tff.federated_broadcast(state)
    moved = tff.federated_map(_add, (sent, values))
    found = process.next(process.initialize(), moved, values).result
    return tff.federated_map(_add, (state, found)), tff.federated_sum(values)

  return next_fn


@pytest.mark.dear
@pytest.mark.parametrize(
  'factory, form_type, state',
  [
    # Weighted by the values themselves.
    (
      tff.aggregators.MeanFactory(),
      tff.backends.mapreduce.DistributeAggregateForm,
      10 + (10 + (1 + 4 + 49) / 10),
    ),
    (
      aggregators.MedianFactory(),
      tff.backends.mapreduce.MapReduceForm,
      10 + (10 + 2),
    ),
  ],
)
def test_forms_give_the_round(tff_context, factory, form_type, state):
  form = round_forms.form_of(_round(factory))
  assert isinstance(form, form_type)
  computation = round_forms.computation_of(form)
  tff.test.assert_not_contains_secure_aggregation(computation)
  found, total = computation(10.0, [1.0, 2.0, 7.0, 0.0])
  assert (found, total) == (pytest.approx(state), 10)


@pytest.mark.parts
def test_messages_of_both_forms(tff_context):
  """One float down, and up what is aggregated."""
  for factory, up in (
    # Value and weight for the mean, and the other sum.
    (tff.aggregators.MeanFactory(), [np.float32] * 3),
    # Value, group and whether it counts, for the median.
    (aggregators.MedianFactory(), [np.float32, np.int32, np.bool_, np.float32]),
  ):
    down_type, up_type = round_forms.messages(
      round_forms.form_of(_round(factory))
    )
    assert _dtypes(down_type) == [np.float32]
    assert sorted(map(str, _dtypes(up_type))) == sorted(
      str(np.dtype(each)) for each in up
    )


def _dtypes(type_):
  if isinstance(type_, tff.FederatedType):
    return _dtypes(type_.member)
  if isinstance(type_, tff.TensorType):
    return [np.dtype(type_.dtype)]
  return sum((_dtypes(t) for _, t in tff.structure.iter_elements(type_)), [])
