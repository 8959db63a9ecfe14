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

With trees of noise (`tree_aggregation` and `tree_adaptive` of the same class;
DP-FTRL, Kairouz et al., arXiv 2103.00039) the noise of a round is not
independent of that of others: `dp_accounting.SingleEpochTreeAggregationDpEvent`
accounts for it, and nothing here does.

Sources: Renyi differential privacy of the Gaussian mechanism (Mironov, arXiv
1702.07476), its subsampling without replacement (Wang, Balle and
Kasiviswanathan, arXiv 1808.00087, Theorem 27), its Poisson subsampling (Mironov
et al., arXiv 1908.10530), and the conversion to epsilon (Canonne et al., arXiv
2004.00010, Proposition 12), as in `dp_accounting.rdp`, at its default orders.

A run that is killed goes on from its last checkpoint and repeats the rounds
after it, whose models may have been seen. The noise of a repeated round is
drawn anew, but its clients are the same, by the seed. So the two releases are
no two independent rounds: who took part once took part twice, and averaging
them halves the variance of the noise. A `ReleaseLedger` counts them.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Mapping

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
  'metrics and counts that clients send beside their model changes, and what '
  'follows from them, such as drawing a round anew',
  'records of who took part',
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
    if self.adaptive_clip:
      checks.cohort_adapts(self.clients_per_round, self.noise_multiplier)

  def epsilon(self, rounds: int | Mapping[int, int]) -> float:
    """Returns an upper bound of epsilon, at `delta`.

    Args:
      rounds: Number of released rounds; or, where rounds were repeated after
        their models had been released, how many draws of clients were released
        once, twice and so on (`tff_ssl.ReleaseLedger.releases`). k releases of
        one draw, each with noise of its own, tell as much as their mean does,
        which is one release with noise of z / sqrt(k).

    Raises:
      ValueError: If a number is no integer >= 0.
    """
    draws = rounds if isinstance(rounds, Mapping) else {1: rounds}
    for times, count in draws.items():
      checks.integers_at_least(1, releases=times)
      checks.integers_at_least(0, rounds=count)
    draws = {times: count for times, count in draws.items() if count}
    if not draws:
      return 0.0
    relation = self._relation
    return min(
      _epsilon(
        sum(count * _divergences(event, relation) for event, count in bound),
        self.delta,
      )
      for bound in self._bounds(draws)
    )

  def describe(self, rounds: int | Mapping[int, int]) -> str:
    """Returns what is promised after some rounds, and what is not, in words.

    Args:
      rounds: As for `epsilon`.
    """
    sampling = _SAMPLINGS[self.sampling].format(
      C=self.clients_per_round, K=self.num_clients
    )
    norm = 'an adaptive' if self.adaptive_clip else 'a fixed'
    released = rounds
    if isinstance(rounds, Mapping):
      released = sum(times * count for times, count in rounds.items())
    return (
      f'Client-level differential privacy of the models of {released} rounds: '
      f'epsilon={self.epsilon(rounds):.4g} at delta={self.delta:.3g} where '
      f'{_ADJACENCIES[self._relation]}; Gaussian noise of '
      f'{self.noise_multiplier:g} times {norm} clipping norm. It assumes that '
      f'{sampling}. Not covered: {"; ".join(NOT_COVERED)}.'
    )

  @property
  def _relation(self) -> dp_accounting.NeighboringRelation:
    return _ADD_OR_REMOVE if self.sampling == 'poisson' else _REPLACE

  def _bounds(self, draws: Mapping[int, int]):
    """Returns what bounds the loss of some rounds, as events and their counts.

    Each element is a bound by itself. The last one counts on no sampling.
    """
    # By the sensitivity, which is 2 c where a client is replaced.
    by_norm = self.noise_multiplier
    by_sensitivity = (
      by_norm if self._relation is _ADD_OR_REMOVE else by_norm / 2
    )

    def composed(event_of):
      return [
        (
          event_of(
            dp_accounting.GaussianDpEvent(by_sensitivity / math.sqrt(times))
          ),
          count,
        )
        for times, count in draws.items()
      ]

    # Sampling never costs privacy, for Renyi divergence is quasi-convex. But
    # Theorem 27 is loose: where many of the clients take part, its bound lies
    # above that without sampling.
    samplings = {
      'fixed': [
        functools.partial(
          dp_accounting.SampledWithoutReplacementDpEvent,
          self.num_clients,
          self.clients_per_round,
        )
      ],
      'poisson': [
        functools.partial(
          dp_accounting.PoissonSampledDpEvent,
          self.clients_per_round / self.num_clients,
        )
      ],
      'none': [],
    }[self.sampling]
    return [composed(event_of) for event_of in (*samplings, lambda e: e)]


def noise_multiplier_for(
  target_epsilon: float, rounds: int, **assumptions
) -> float:
  """Returns the least noise multiplier whose epsilon is at most the target.

  It is found by `dp_accounting.calibrate_dp_mechanism`, to a millionth of its
  value or closer. With 'fixed' this takes some seconds.

  Args:
    target_epsilon: > 0.
    rounds: Number of released rounds, >= 1.
    **assumptions: The other fields of `PrivacyAccount`: `clients_per_round`,
      `num_clients`, and more.

  Raises:
    ValueError: If a value is out of range, or an adaptive clipping norm needs
      more clients per round for this noise.
    TypeError: If a field is missing or unknown.
  """
  checks.numbers_at_least(0, above=True, target_epsilon=target_epsilon)
  checks.integers_at_least(1, rounds=rounds)
  # Noise that is tried may be too strong for an adaptive norm.
  trial = PrivacyAccount(
    **{**assumptions, 'noise_multiplier': 1.0, 'adaptive_clip': False}
  )

  def event_of(index, precision):
    tried = dataclasses.replace(trial, noise_multiplier=1 / precision)
    return dp_accounting.ComposedDpEvent(
      [
        dp_accounting.SelfComposedDpEvent(event, count)
        for event, count in tried._bounds({1: rounds})[index]
      ]
    )

  new_accountant = functools.partial(
    _Accountant, neighboring_relation=trial._relation
  )
  # 1 / z, in which epsilon is close to linear, so that few trials are needed.
  # It grows from bound to bound. That without sampling is last, and quick.
  precision = _LEAST_PRECISION
  for index in reversed(range(len(trial._bounds({1: rounds})))):
    accountant = new_accountant().compose(event_of(index, precision))
    if accountant.get_epsilon(trial.delta) >= target_epsilon:
      continue  # This bound asks for more noise.
    precision = dp_accounting.calibrate_dp_mechanism(
      new_accountant,
      functools.partial(event_of, index),
      target_epsilon,
      trial.delta,
      dp_accounting.LowerEndpointAndGuess(precision, 2 * precision),
      tol=1e-6 * precision,
    )
  account = PrivacyAccount(**{**assumptions, 'noise_multiplier': 1 / precision})
  return account.noise_multiplier


# Of noise like this, rounds have an epsilon of next to nothing.
_LEAST_PRECISION = 1e-7
# A divergence below this is rounding. It can come out negative.
_LEAST_DIVERGENCE = 1e-13
_ORDERS = dp_accounting.rdp.RdpAccountant().orders


def _epsilon(divergences, delta) -> float:
  """Returns epsilon of Renyi divergences at the default orders."""
  epsilon, _ = dp_accounting.rdp.compute_epsilon(
    _ORDERS, np.maximum(divergences, _LEAST_DIVERGENCE), delta
  )
  return float(epsilon)


class _Accountant(dp_accounting.rdp.RdpAccountant):
  """`RdpAccountant` that takes no rounding for a divergence."""

  def get_epsilon(self, target_delta: float) -> float:
    return _epsilon(self.rdp, target_delta)


@functools.lru_cache(maxsize=64)
def _divergences(event, relation) -> np.ndarray:
  """Returns the Renyi divergence of an event at each of the orders."""
  accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
  return accountant.compose(event).rdp


@dataclasses.dataclass
class ReleaseLedger:
  """Counts releases, for `PrivacyAccount.epsilon`.

  A count that is written with a checkpoint does not know of rounds after it. So
  write this one to a file of its own before each round begins, and read it when
  the run goes on. Then a round that is killed before its release counts, too;
  epsilon is too large by that round, never too small. A round of Poisson
  sampling that happens to draw nobody counts, too: that chance is part of the
  account.

  Attributes:
    begun: Number of the rounds that have begun: those below it, each once.
    repeated: Of the rounds among them that have begun more than once, or for
      which clients were drawn more than once: how often each of their draws
      has begun.
  """

  begun: int = 0
  repeated: dict[int, list[int]] = dataclasses.field(default_factory=dict)

  @property
  def rounds(self) -> int:
    """All releases, those of a repeated round once for each time."""
    return sum(times * draws for times, draws in self.releases().items())

  def releases(self) -> Mapping[int, int]:
    """Returns how many draws of clients were released so many times."""
    counts = collections.Counter(
      times for draws in self.repeated.values() for times in draws if times
    )
    counts[1] += self.begun - len(self.repeated)
    return +counts

  def begin_round(self, round_num: int, attempt: int = 0) -> None:
    """Counts a round. Write `pack()` to the disk before it trains.

    Args:
      round_num: Rounds before it in which clients send something.
      attempt: How often clients were drawn for this round before, where others
        are drawn each time.

    Raises:
      ValueError: If a number is no integer >= 0.
    """
    checks.integers_at_least(0, round_num=round_num, attempt=attempt)
    is_new = round_num >= self.begun
    draws = [] if is_new else self.repeated.pop(round_num, [1])
    draws += [0] * (attempt + 1 - len(draws))
    draws[attempt] += 1
    if draws != [1]:
      self.repeated[round_num] = draws
    self.begun = max(self.begun, round_num + 1)

  def pack(self) -> bytes:
    """Returns the content of the ledger's file."""
    return json.dumps(dataclasses.asdict(self)).encode()

  @classmethod
  def unpack(
    cls, content: bytes | None, rounds_done: int = 0
  ) -> 'ReleaseLedger':
    """Returns what the ledger's file says.

    Args:
      content: From `pack`; `None` where there is no file yet.
      rounds_done: Rounds of the run so far, as its checkpoint says.

    Raises:
      ValueError: If the content is no ledger, or counts fewer rounds than were
        done.
    """
    try:
      ledger = cls() if content is None else cls(*_read(json.loads(content)))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
      raise ValueError(
        f'The ledger of released rounds is damaged ({error}): restore its '
        'newest copy, or start the run anew in another folder.'
      ) from error
    if ledger.begun < rounds_done:
      raise ValueError(
        f'The ledger counts {ledger.begun} released rounds, but rounds_done='
        f'{rounds_done}: restore its newest copy, or start the run anew in '
        'another folder.'
      )
    return ledger


def _read(values) -> tuple[int, dict[int, list[int]]]:
  """Returns the fields of a ledger, checked."""
  begun, repeated = values['begun'], {}
  if None in (begun, *itertools.chain(*values['repeated'].values())):
    raise ValueError('a count is null')
  checks.integers_at_least(0, begun=begun)
  for text, draws in values['repeated'].items():
    round_num = int(text)
    if not 0 <= round_num < begun or not draws:
      raise ValueError(f'it repeats round {text} of {begun}')
    for times in draws:
      checks.integers_at_least(0, times=times)
    repeated[round_num] = list(draws)
  return begun, repeated
