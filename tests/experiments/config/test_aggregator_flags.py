"""Secure sums hide a client among the members of its group."""

import pytest


# The sum over a group hides a client among its members.
@pytest.mark.parametrize('clients', range(2, 21))
@pytest.mark.parametrize('fewest', [2, 5])
def test_p1_groups_too_small_to_hide_a_client(make, refusal, clients, fewest):
  for groups in range(2, clients + 1):
    given = {
      'aggregator': 'secure',
      'num_clients': 20,
      'clients_per_round': clients,
      'num_groups': groups,
      'min_group_size': fewest,
    }
    if clients // groups < fewest:
      assert f'--min_group_size={fewest}' in refusal(**given)
    else:
      assert make(**given).num_groups == groups
