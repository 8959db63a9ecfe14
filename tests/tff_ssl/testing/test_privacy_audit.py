"""Lower bounds of epsilon: of known mechanisms, and of TFF's noise."""

import collections
import dataclasses
import math

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.testing import privacy_audit

_CLIENTS = 50
_NORM = 0.5
_NOISE = 1.5
_DELTA = 0.1


def test_without_errors_it_is_the_limit_of_clopper_and_pearson():
  """Closed form for none of n, and for all of n."""
  least = 0.025 ** (1 / 80)
  assert privacy_audit.epsilon_lower_bound(
    [-1.0] * 80, [1.0] * 80, threshold=0.0, delta=0.01
  ) == pytest.approx(math.log((least - 0.01) / (1 - least)))


@pytest.mark.parametrize('epsilon', [0.5, 2.0])
def test_randomized_response_has_the_epsilon_that_it_has(epsilon):
  """A bit is told as it is with probability e^epsilon / (1 + e^epsilon)."""
  rng = np.random.default_rng(0)
  flips = rng.random([2, 100_000]) < 1 / (1 + math.exp(epsilon))
  found = privacy_audit.epsilon_lower_bound(
    flips[0], ~flips[1], threshold=0.5, delta=0.0, confidence=0.999
  )
  assert 0.9 * epsilon < found < epsilon


def test_scores_that_say_nothing():
  scores = np.random.default_rng(1).normal(size=[2, 500])
  assert not privacy_audit.epsilon_lower_bound(
    scores[0], scores[1], threshold=0.0, delta=0.01
  )


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'scores_with': []}, 'scores_with must be a list of finite numbers'),
    (
      {'scores_without': [math.nan]},
      'scores_without must .*nan.*: give one score',
    ),
    ({'delta': 1.5}, 'delta must be a number between 0 and 1, but is 1.5'),
    ({'confidence': -1}, 'confidence must be a number between 0 and 1'),
  ],
)
def test_audits_that_are_none(changes, message):
  good = {
    'scores_without': [0.0],
    'scores_with': [1.0],
    'threshold': 0.5,
    'delta': 0.1,
  }
  with pytest.raises(ValueError, match=message):
    privacy_audit.epsilon_lower_bound(**{**good, **changes})


def _sum_of(noise_multiplier):
  """Noisy sums over all clients by TFF, as a function of their values."""
  process = _factory(noise_multiplier).create(_value_type())
  state = process.initialize()
  return lambda values: _CLIENTS * process.next(state, values).result


def _sum_of_groups(noise_multiplier):
  """Likewise, where each number is taken from its client's group."""
  groups = np.arange(_CLIENTS, dtype=np.int32) % 2
  process = tff_ssl.GroupMeanFactory(
    2, mean_factory=_factory(noise_multiplier), clients_per_round=_CLIENTS
  ).create(
    tff.types.to_type(
      collections.OrderedDict(value=_value_type(), group=np.int32)
    ),
    tff.types.to_type(np.float32),
  )
  state = process.initialize()

  def run(values):
    members = [
      collections.OrderedDict(value=value, group=group)
      for value, group in zip(values, groups, strict=True)
    ]
    output = process.next(state, members, [1.0] * _CLIENTS)
    means = np.asarray(output.result['mean'])
    return _CLIENTS / 2 * means[groups, np.arange(_CLIENTS)]

  return run


def _value_type():
  return tff.types.to_type((np.float32, [_CLIENTS]))


def _factory(noise_multiplier):
  return tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier, float(_CLIENTS), _NORM
  )


def _audit(run, draws):
  """Replaces canaries' values by their opposites, and guesses which they are.

  Each client is a canary with a number of its own. Noise is independent from
  number to number, so each run gives a score of each canary, in clipping norms.
  """
  rng = np.random.default_rng(0)
  scores = {-1: [], 1: []}
  for _ in range(draws):
    signs = rng.choice([-1, 1], _CLIENTS)
    for chosen in (signs, -signs):
      found = run(list(np.diag(100 * chosen).astype(np.float32))) / _NORM
      for sign in scores:
        scores[sign].extend(found[chosen == sign])
  return privacy_audit.epsilon_lower_bound(
    scores[-1], scores[1], threshold=1.0, delta=_DELTA
  )


@pytest.mark.parts
@pytest.mark.parametrize('build', [_sum_of, _sum_of_groups])
def test_p3_noise_does_what_the_account_says(build, tff_context):
  """The claim stands, its half would not, nor with an eighth of the noise.

  A client that is replaced moves the sum by two norms. An account that took one
  is refuted.
  """
  claim = tff_ssl.PrivacyAccount(
    noise_multiplier=_NOISE,
    clients_per_round=_CLIENTS,
    num_clients=_CLIENTS,
    sampling='none',
    delta=_DELTA,
  )
  by_one_norm = dataclasses.replace(claim, noise_multiplier=2 * _NOISE)
  found = _audit(build(_NOISE), 40)
  assert by_one_norm.epsilon(1) < found < claim.epsilon(1)
  assert _audit(build(_NOISE / 8), 5) > claim.epsilon(1)
