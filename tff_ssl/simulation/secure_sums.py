"""Secure sums in a simulation: their arithmetic, without their cryptography.

A computation may hold TFF's secure sums, as `tff.learning.secure_aggregator()`
makes them. What simulates has no cryptography for those: TFF's own contexts end
with `Cannot embed a federated value`. This library's contexts put plain sums of
the same numbers, quantised and clipped in the same way, in their place. So a
simulation gives the result that a platform with secure sums would give, and
protects nothing: who computes it sees each client's value.
"""

import logging

import tensorflow_federated as tff

from tff_ssl import compat
from tff_ssl.aggregators import inspection

_LOG = logging.getLogger(__name__)


def simulate(comp: compat.Computation) -> compat.Computation:
  """Replaces secure sums, if there are any, by plain ones, and says so."""
  # Replacing takes a fifth of the whole compilation where there are none.
  if not inspection.has_secure_sums(comp):
    return comp
  _LOG.warning(
    'Secure sums are simulated: the same arithmetic, but no cryptography. '
    "Who computes them sees each client's values."
  )
  plain = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
  # Replacing loses the Python containers of the result.
  return compat.ConcreteComputation.with_type(plain, comp.type_signature)
