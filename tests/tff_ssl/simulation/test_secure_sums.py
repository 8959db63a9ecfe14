"""Secure sums run in a simulation, with the results of plain ones."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl.simulation import divided_context, secure_sums

_VALUES = [-1.5, 0.25, 7.0]


def _aggregation(factory):
  """Returns a computation with a result that has a container of Python."""
  process = factory.create(tff.types.to_type(np.float32))

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def aggregate(values):
    output = process.next(process.initialize(), values)
    return collections.OrderedDict(
      total=output.result, measurements=output.measurements
    )

  return aggregate


@pytest.fixture(scope='module')
def secure():
  return _aggregation(tff.aggregators.SecureSumFactory(4.0, -4.0))


def test_a_secure_sum_is_clipped_and_quantised(tff_context, secure, caplog):
  result = secure(_VALUES)
  # Of 32 bits the step is 8 / 2**32.
  assert result['total'] == pytest.approx(-1.5 + 0.25 + 4.0, abs=1e-6)
  assert result['measurements']['secure_upper_clipped_count'] == 1
  assert 'Secure sums are simulated' in caplog.text
  assert 'no cryptography' in caplog.text


def test_it_is_divided_into_parts(tff_context, secure):
  context = tff.framework.get_context_stack().current
  divided = divided_context.DividedContext(
    context, lambda comp, parts: [context.invoke(comp, x) for x in parts], 2
  )
  with tff.framework.get_context_stack().install(divided):
    result = secure(_VALUES)
  assert result['total'] == pytest.approx(2.75, abs=1e-6)
  assert result['measurements']['secure_upper_clipped_count'] == 1


def test_nothing_secure_is_left(secure):
  tff.test.assert_contains_secure_aggregation(secure)
  plain = secure_sums.simulate(secure)
  tff.test.assert_not_contains_secure_aggregation(plain)
  assert plain.type_signature == secure.type_signature


def test_a_computation_without_secure_sums_stays_as_it_is(caplog):
  comp = _aggregation(tff.aggregators.SumFactory())
  assert secure_sums.simulate(comp) is comp
  assert not caplog.text
