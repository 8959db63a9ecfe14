"""Who drops out, is slow or corrupt: by the seed, in the shares asked for."""

import numpy as np
import pytest
import scipy.stats

from tff_ssl.simulation import client_faults, client_sampling

_K, _C = 50, 20


def _deal(round_num=0, attempt=0, seed=3, num_groups=2, **shares):
  faults = client_faults.ClientFaults(_K, seed, **shares)
  keys = client_sampling.sample_keys(
    num_clients=_K,
    clients_per_round=_C,
    num_groups=num_groups,
    seed=seed,
    round_num=round_num,
    attempt=attempt,
  )
  return keys, faults.deal(keys, round_num=round_num, attempt=attempt)


def test_without_faults_keys_are_those_that_were_sampled():
  keys, cohort = _deal()
  np.testing.assert_array_equal(cohort.keys, keys)
  np.testing.assert_array_equal(cohort.invited, np.stack(keys)[:, 0])
  assert not len([*cohort.dropped, *cohort.stragglers, *cohort.corrupt])


@pytest.mark.parametrize('share', [0.1, 0.3, 0.6])
def test_as_many_drop_out_as_asked_for(share):
  cohorts = [_deal(n, drop_out=share)[1] for n in range(100)]
  count = sum(len(cohort.dropped) for cohort in cohorts)
  assert scipy.stats.binomtest(count, 100 * _C, share).pvalue > 1e-3
  for cohort in cohorts:
    there = [key[0] for key in cohort.keys]
    assert sorted([*there, *cohort.dropped]) == sorted(cohort.invited)
    assert all(len(key) == 4 for key in cohort.keys)


def test_all_drop_out_at_one():
  _, cohort = _deal(drop_out=1.0)
  assert cohort.keys == [] and len(cohort.dropped) == _C


def test_stragglers_take_a_uniform_share_of_their_steps():
  work = []
  for n in range(100):
    _, cohort = _deal(n, straggler=0.5)
    keys = np.stack(cohort.keys)
    slow = keys[:, 5] < 100
    np.testing.assert_array_equal(keys[slow, 0], cohort.stragglers)
    assert not keys[:, 4].any() and (keys[~slow, 5] == 100).all()
    work += keys[slow, 5].tolist()
  assert scipy.stats.binomtest(len(work), 100 * _C, 0.5).pvalue > 1e-3
  assert min(work) == 1 and max(work) == 99
  counts = np.bincount(work, minlength=100)[1:]
  assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_corrupt_clients_stay_corrupt():
  ever = set()
  for n in range(40):
    _, cohort = _deal(n, corrupt_share=0.3, drop_out=0.2)
    keys = np.stack(cohort.keys)
    np.testing.assert_array_equal(keys[keys[:, 4] == 1, 0], cohort.corrupt)
    ever |= set(cohort.corrupt)
    assert not ever & set(keys[keys[:, 4] == 0, 0])
  assert len(ever) == 15
  few = client_faults.ClientFaults(_K, 3, corrupt_share=0.001)
  assert len(few.corrupt_clients) == 1
  other = client_faults.ClientFaults(_K, 4, corrupt_share=0.3)
  assert set(other.corrupt_clients) != ever


def test_a_function_of_seed_round_and_attempt():
  shares = {'drop_out': 0.3, 'straggler': 0.3}
  _, cohort = _deal(5, **shares)
  _, again = _deal(5, **shares)
  np.testing.assert_array_equal(np.stack(cohort.keys), np.stack(again.keys))
  # Nor does it depend on the groups.
  _, one_group = _deal(5, num_groups=1, **shares)
  np.testing.assert_array_equal(cohort.dropped, one_group.dropped)
  for change in ({'round_num': 6}, {'attempt': 1}, {'seed': 4}):
    _, other = _deal(**{'round_num': 5, **shares, **change})
    assert set(other.invited) != set(cohort.invited)
    assert set(other.dropped) != set(cohort.dropped)


@pytest.mark.parametrize('name', ['drop_out', 'straggler', 'corrupt_share'])
@pytest.mark.parametrize('value', [-0.1, 1.1, float('nan')])
def test_shares_out_of_range(name, value):
  with pytest.raises(ValueError, match=f'{name} must be between 0 and 1'):
    client_faults.ClientFaults(_K, 0, **{name: value})
