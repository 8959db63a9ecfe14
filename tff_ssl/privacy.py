"""What differential privacy costs: the epsilon of a run, and noise for one.

A process is (epsilon, delta)-differentially private for clients if, whatever
the data of one client are, no set of outcomes becomes more likely than
exp(epsilon) times its probability plus delta when that client's data change.
Here the outcomes are the models of all rounds.

TFF's factories (`tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed`,
`gaussian_adaptive`, `tff.learning.dp_aggregator`) clip each client's value to a
norm c, add the values, and add Gaussian noise of standard deviation z c to each
number of the sum. z is the noise multiplier.

Accountants count the noise in units of the sensitivity: of the farthest that
the sum moves between neighbours. Which data are neighbours follows from the
sampling:

  * 'fixed' and 'none': one client's data are *replaced*. A vector of norm c
    goes and another one comes, so the sum moves by up to 2 c, and the noise is
    z / 2 times the sensitivity.
  * 'poisson': one client is *added or removed*. The sum moves by up to c, and
    the noise is z times the sensitivity.

`dp_accounting` leaves this conversion to its caller: its accountant takes the
`noise_multiplier` of a `GaussianDpEvent` for noise by sensitivity under each
relation, although the event is documented with noise by norm.

Adaptive clipping also publishes a noisy number of clients whose norm lies below
c. Each client adds 1/2 or -1/2 to it, so it moves by 1/2 where the sum moves by
c, and by 1 where the sum moves by 2 c. TFF takes z for both together: with
noise of s on the number it adds noise of (z^-2 - (2 s)^-2)^(-1/2) times c to
the sum (Andrew et al., arXiv 1905.03871, Theorem 1). One release of both is as
private as one Gaussian of multiplier z.

Sources: Renyi differential privacy of the Gaussian mechanism (Mironov, arXiv
1702.07476), its subsampling without replacement (Wang, Balle and
Kasiviswanathan, arXiv 1808.00087, Theorem 27), its Poisson subsampling (Mironov
et al., arXiv 1908.10530), and the conversion to epsilon (Canonne et al., arXiv
2004.00010, Proposition 12), as in `dp_accounting.rdp`, at its default orders.
"""

import dataclasses
import functools

import dp_accounting
import numpy as np

from tff_ssl import checks

_REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
_ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

# What each sampling assumes, in words; {C} and {K} stand for the numbers.
_SAMPLINGS = {
  'fixed': (
    'exactly {C} of {K} clients take part in a round, drawn anew, uniformly '
    'and without replacement, and nobody learns who'
  ),
  'none': 'every client may take part in every round, in any order',
  'poisson': (
    'each of {K} clients takes part in a round with probability {C}/{K}, '
    'independently, and nobody learns who'
  ),
}
_ADJACENCIES = {
  _REPLACE: "one client's data are replaced by any others",
  _ADD_OR_REMOVE: 'one client is added or removed',
}

NOT_COVERED = (
  'metrics and counts that clients send beside their model changes',
  "the server's own labelled data, in warm-up rounds and all others",
  'bounds of zeroing that adapt to the clients without noise',
  'settings that somebody chose by the results of other runs',
  'the server itself, which sees sums before it adds the noise',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyAccount:
  """What a differentially private run costs; see the module.

  The unit is the client: all data of one client count as one.

  Attributes:
    noise_multiplier: z > 0, of all that a round publishes, as TFF's factories
      take it.
    clients_per_round: C, with `sampling='poisson'` the expected number.
    num_clients: K >= C.
    sampling: How the participants of a round are chosen. 'fixed': exactly C of
      K, uniformly without replacement, anew in each round
      (`tff_ssl.sample_keys`). 'poisson': each by itself with probability C / K.
      'none': in any way; each client may take part in every round. A fixed
      cohort is never 'poisson', whose epsilon is smaller.
    delta: In (0, 1); by default K^-1.1 (McMahan et al., arXiv 1710.06963). It
      should lie well below 1 / K.
    adaptive_clip: Whether the clipping norm adapts, privately, as in
      `tff.learning.dp_aggregator`. Epsilon is the same.
  """

  noise_multiplier: float
  clients_per_round: int
  num_clients: int
  sampling: str = 'fixed'
  delta: float | None = None
  adaptive_clip: bool = False

  def __post_init__(self):
    """Checks the values.

    Raises:
      ValueError: If one is out of range.
    """
    checks.numbers_at_least(
      0, above=True, noise_multiplier=self.noise_multiplier
    )
    checks.integers_at_least(
      1, clients_per_round=self.clients_per_round, num_clients=self.num_clients
    )
    if self.clients_per_round > self.num_clients:
      raise ValueError(
        f'clients_per_round={self.clients_per_round} is more than '
        f'num_clients={self.num_clients}: lower it.'
      )
    if self.sampling not in _SAMPLINGS:
      raise ValueError(
        f'sampling must be one of {", ".join(_SAMPLINGS)}, but is '
        f"{self.sampling!r}: 'none' holds for any sampling."
      )
    if self.delta is None:
      object.__setattr__(self, 'delta', float(self.num_clients) ** -1.1)
    checks.numbers_at_least(0, above=True, delta=self.delta)
    if self.delta >= 1:
      raise ValueError(
        f'delta must be below 1, but is {self.delta!r}: give one well below '
        f'1 / num_clients (num_clients={self.num_clients}).'
      )
    # TFF puts noise of C / 20 on the number of clipped clients, which leaves
    # none of the privacy for the sum where z is 2 C / 20.
    if self.adaptive_clip and self.clients_per_round <= (
      10 * self.noise_multiplier
    ):
      raise ValueError(
        f'clients_per_round={self.clients_per_round} must exceed 10 * '
        f'noise_multiplier={self.noise_multiplier} with an adaptive clipping '
        'norm: take more clients, less noise, or a fixed norm.'
      )

  def epsilon(self, rounds: int) -> float:
    """Returns an upper bound of epsilon, at `delta`.

    Args:
      rounds: Number of released rounds. A round that was repeated after its
        model had been released counts twice (`tff_ssl.ReleaseLedger`).

    Raises:
      ValueError: If `rounds` is no integer >= 0.
    """
    checks.integers_at_least(0, rounds=rounds)
    if not rounds:
      return 0.0
    relation, events = self._bounds()
    divergences = [_divergences(event, relation) for event in events]
    return min(
      _epsilon(orders, rounds * of_one, self.delta)
      for orders, of_one in divergences
    )

  def describe(self, rounds: int) -> str:
    """Returns what is promised after some rounds, and what is not, in words.

    Args:
      rounds: As for `epsilon`.
    """
    relation, _ = self._bounds()
    sampling = _SAMPLINGS[self.sampling].format(
      C=self.clients_per_round, K=self.num_clients
    )
    norm = 'an adaptive' if self.adaptive_clip else 'a fixed'
    return (
      f'Client-level differential privacy of the models of {rounds} rounds: '
      f'epsilon={self.epsilon(rounds):.4g} at delta={self.delta:.3g} where '
      f'{_ADJACENCIES[relation]}; Gaussian noise of {self.noise_multiplier:g} '
      f'times {norm} clipping norm. It assumes that {sampling}. Not covered: '
      f'{"; ".join(NOT_COVERED)}.'
    )

  def _bounds(self):
    """Returns the relation, and events of a round each of which bounds it."""
    return _bounds(
      self.noise_multiplier,
      self.clients_per_round,
      self.num_clients,
      self.sampling,
    )


def noise_multiplier_for(
  target_epsilon: float,
  rounds: int,
  *,
  clients_per_round: int,
  num_clients: int,
  sampling: str = 'fixed',
  delta: float | None = None,
  adaptive_clip: bool = False,
) -> float:
  """Returns the least noise multiplier whose epsilon is at most the target.

  It is found by `dp_accounting.calibrate_dp_mechanism`, to a millionth of its
  value. With 'fixed' this takes some seconds.

  Args:
    target_epsilon: > 0.
    rounds: Number of released rounds, >= 1.
    clients_per_round: As in `PrivacyAccount`, as are the others.
    num_clients: K.
    sampling: How participants are chosen.
    delta: The delta; by default K^-1.1.
    adaptive_clip: Whether the clipping norm adapts.

  Raises:
    ValueError: If an argument is out of range, or an adaptive clipping norm
      needs more clients per round for this noise.
  """
  checks.numbers_at_least(0, above=True, target_epsilon=target_epsilon)
  checks.integers_at_least(1, rounds=rounds)
  account = functools.partial(
    PrivacyAccount,
    clients_per_round=clients_per_round,
    num_clients=num_clients,
    sampling=sampling,
    delta=delta,
  )
  delta = account(noise_multiplier=1.0).delta

  def event_of(index, precision):
    _, events = _bounds(1 / precision, clients_per_round, num_clients, sampling)
    return dp_accounting.SelfComposedDpEvent(events[index], rounds)

  relation, events = _bounds(1.0, clients_per_round, num_clients, sampling)
  accountant = functools.partial(_Accountant, neighboring_relation=relation)
  # 1 / z, in which epsilon is close to linear, so that few trials are needed.
  # It grows from bound to bound. That without sampling is last, and quick.
  precision = _LEAST_PRECISION
  for index in reversed(range(len(events))):
    found = accountant().compose(event_of(index, precision)).get_epsilon(delta)
    if found >= target_epsilon:
      continue  # This bound asks for more noise.
    precision = dp_accounting.calibrate_dp_mechanism(
      accountant,
      functools.partial(event_of, index),
      target_epsilon,
      delta,
      dp_accounting.LowerEndpointAndGuess(precision, 2 * precision),
      tol=1e-6 * precision,
    )
  noise_multiplier = 1 / precision
  account(noise_multiplier=noise_multiplier, adaptive_clip=adaptive_clip)
  return noise_multiplier


# Of noise like this, rounds have an epsilon of next to nothing.
_LEAST_PRECISION = 1e-7
# A divergence below this is rounding. It can come out negative.
_LEAST_DIVERGENCE = 1e-13


def _epsilon(orders, divergences, delta) -> float:
  """Returns epsilon of Renyi divergences at these orders."""
  epsilon, _ = dp_accounting.rdp.compute_epsilon(
    orders, np.maximum(divergences, _LEAST_DIVERGENCE), delta
  )
  return float(epsilon)


class _Accountant(dp_accounting.rdp.RdpAccountant):
  """`RdpAccountant` that takes no rounding for a divergence."""

  def get_epsilon(self, target_delta: float) -> float:
    """Returns epsilon of all that was composed."""
    return _epsilon(self.orders, self.rdp, target_delta)


def _bounds(noise_multiplier, clients_per_round, num_clients, sampling):
  """Returns the relation, and events of a round each of which bounds it.

  The last of them has no sampling.
  """
  if sampling == 'poisson':
    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    share = clients_per_round / num_clients
    return _ADD_OR_REMOVE, [
      dp_accounting.PoissonSampledDpEvent(share, gaussian),
      gaussian,
    ]
  # By the sensitivity, 2 c, and not by the norm c.
  gaussian = dp_accounting.GaussianDpEvent(noise_multiplier / 2)
  if sampling == 'none':
    return _REPLACE, [gaussian]
  # Sampling never makes a round less private: Renyi divergence is quasi-convex.
  # But Theorem 27 is loose, and where many of the clients take part its bound
  # lies above that without sampling.
  return _REPLACE, [
    dp_accounting.SampledWithoutReplacementDpEvent(
      num_clients, clients_per_round, gaussian
    ),
    gaussian,
  ]


@functools.lru_cache(maxsize=64)
def _divergences(event, relation) -> tuple[np.ndarray, np.ndarray]:
  """Returns orders, and the Renyi divergence of one round at each of them."""
  accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
  accountant.compose(event)
  return accountant.orders, accountant.rdp
