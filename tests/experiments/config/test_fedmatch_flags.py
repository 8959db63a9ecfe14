"""Flags of FedMatch: published values, and what cannot be."""

import pytest

from experiments.config import flags, settings


def make(**given):
  return settings.make({'process': 'fedmatch', 'dataset': 'digits', **given})


def refusal(**given):
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  text = str(caught.value)
  assert '\n' not in text
  return text


@pytest.mark.parametrize(
  'process, l1_weight', [('fedmatch', 1e-4), ('fedmatch_server', 1e-5)]
)
def test_published_values(process, l1_weight):
  made = make(process=process)
  weights = (
    *(made.supervised_weight, made.inter_client_weight),
    *(made.agreement_weight, made.sigma_psi_weight, made.l1_weight),
  )
  assert weights == (10, 1e-2, 1e-2, 10, l1_weight)
  assert (made.threshold, made.num_helpers, made.helper_interval) == (
    *(0.75, 2, 10),
  )
  assert (made.momentum, made.weight_decay) == (0, 0)
  assert made.client_weighting == 'uniform'


@pytest.mark.parametrize('process', ['fedmatch', 'fedmatch_server'])
def test_helpers_need_other_clients(process):
  text = refusal(process=process, num_helpers=20)
  assert '--num_helpers=20' in text and '--num_clients=20' in text
  assert make(process=process, num_helpers=19).num_helpers == 19
  text = refusal(process=process, partition='pooled')
  assert '--partition=pooled' in text and '--num_helpers=2' in text


@pytest.mark.parametrize(
  'name, value',
  [
    ('num_helpers', 0),
    ('helper_interval', 0),
    ('supervised_weight', -1.0),
    ('inter_client_weight', float('nan')),
    ('agreement_weight', float('inf')),
    ('sigma_psi_weight', -0.1),
    ('l1_weight', -1e-9),
  ],
)
def test_ranges(name, value):
  assert refusal(**{name: value}).startswith(f'--{name}={value} must be')


def test_other_processes_have_no_helpers():
  text = refusal(process='fedlabel', num_helpers=2)
  assert text.startswith('--num_helpers=2 has no effect')


@pytest.mark.parametrize('process', ['fedmatch', 'fedmatch_server'])
def test_psi_must_settle(process):
  text = refusal(process=process, learning_rate=0.1)
  assert '--sigma_psi_weight=10' in text and '--learning_rate=0.1' in text
  assert make(process=process, learning_rate=0.1, sigma_psi_weight=4.0)
  # Adam's steps do not grow with the weight.
  assert make(process=process, learning_rate=0.1, client_optimizer='adam')
