"""The contract of FedUL over other rounds than those of FedProx.

`tests/tff_ssl/testing/test_contract.py` has FedUL over FedProx.
"""

import functools

import pytest
import tensorflow_federated as tff

from tff_ssl import algorithms, testing


@functools.cache
def problem_over(base):
  """One problem for all checks of a base: they share its built process."""
  return testing.TinyProblem(
    algorithms.find('fedul', base),
    arguments={
      'base_process': base,
      # That of FedProx.
      'proximal_strength': None,
      'client_optimizer': tff.learning.optimizers.build_sgdm(0.1),
    },
  )


@pytest.mark.parametrize('base', ['fedavg', 'fedadam', 'fednova', 'scaffold'])
@pytest.mark.parametrize('name', testing.CHECKS)
def test_contract(name, base, tff_context):
  testing.run_check(name, problem_over(base))
