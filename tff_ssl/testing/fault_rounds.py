"""A tiny federation of ten clients, some of which fail for five rounds.

All ten take part in every round, so that a share of them is a number of
clients. After twenty rounds of sound clients come five with a fault, then
sound ones again. What goes wrong is what runs can simulate (`ClientFaults`,
`tff_ssl.Corruption`), and clients whose data are odd.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epy

from tff_ssl.plans import CORRUPTIONS, Corruption
from tff_ssl.simulation import client_faults, client_sampling
from tff_ssl.testing import assertions
from tff_ssl.testing.tiny_problems import NUM_CLASSES, TinyProblem

with epy.lazy_imports():
  from tff_ssl.simulation import client_reader

NUM_CLIENTS = 10
SOUND_ROUNDS, FAULTY_ROUNDS, RECOVERY_ROUNDS = 20, 5, 5
# Three standard errors of the difference of two accuracies on 400 digits.
MARGIN = 0.1

_SEED = 1
_SIZE = 20
_GROUP = client_sampling.KEY_FIELDS.index('group')
_NO_GROUPS = (-1, NUM_CLIENTS, 2**31 - 1)

Key = np.ndarray


@dataclasses.dataclass(frozen=True)
class Fault:
  """What goes wrong at some clients.

  Attributes:
    description: What they do, in a few words.
    shares: Of the clients, one after another.
    sends: From a client's key to those that are sent in its place; `None`
      where the keys of `ClientFaults` are.
    counted: As what such clients count; by default, as sound ones.
    drawn_by: The field of `ClientFaults` that draws them.
  """

  description: str
  shares: tuple[float, ...]
  sends: Callable[[Key], list[Key]] | None = None
  counted: str | None = None
  drawn_by: str = 'corrupt_share'

  @property
  def is_silent(self) -> bool:
    """Whether such clients send nothing, so that they are left out anyway."""
    return self.drawn_by == 'drop_out' or self.sends is _nothing


def _nothing(key: Key) -> list[Key]:
  del key
  return []


def _twice(key: Key) -> list[Key]:
  return [client_faults.append(key)] * 2


def _corrupt(kind: str) -> Callable[[Key], list[Key]]:
  number = CORRUPTIONS.index(kind) + 1
  return lambda key: [client_faults.append(key, number)]


def _unknown_group(key: Key) -> list[Key]:
  moved = client_faults.append(key)
  moved[_GROUP] = _NO_GROUPS[key[0] % len(_NO_GROUPS)]
  return [moved]


def _odd_data(name: str) -> Callable[[Key], list[Key]]:
  number = NUM_CLIENTS + list(_ODD_DATA).index(name)
  return lambda key: [client_faults.append(np.array([number, *key[1:]]))]


def _first(arrays, size):
  return {name: each[:size] for name, each in arrays.items()}


def _of_one_class(arrays):
  most = np.bincount(arrays['true_y']).argmax()
  is_member = arrays['true_y'] == most
  return {name: each[is_member] for name, each in arrays.items()}


def _with_nan(arrays):
  images = arrays['x'].copy()
  images[0] = np.nan
  return {**arrays, 'x': images}


# Clients behind the others in the reader, and what their data are made of.
_ODD_DATA: Mapping[str, Callable[[Mapping], Mapping]] = {
  'no_examples': lambda arrays: _first(arrays, 0),
  'one_example': lambda arrays: _first(arrays, 1),
  'one_class': _of_one_class,
  'no_labels': lambda arrays: {**arrays, 'y': np.full_like(arrays['y'], -1)},
  'nan_pixels': _with_nan,
}

_FEW, _ONE = (0.1, 0.3), (0.1,)
FAULTS: Mapping[str, Fault] = {
  'drop_out': Fault(
    'send nothing; others in each round',
    (0.1, 0.3, 0.5),
    drawn_by='drop_out',
  ),
  'straggler': Fault(
    'get 1 to 99% of their steps done; others in each round',
    _FEW,
    drawn_by='straggler',
  ),
  'nan': Fault(
    'send what is not a number', _FEW, _corrupt('nan'), 'non_finite'
  ),
  'overflow': Fault(
    'send finite numbers whose norm is not finite',
    _FEW,
    _corrupt('overflow'),
    'non_finite',
  ),
  'exploding': Fault(
    'send 1e6 times their change', _FEW, _corrupt('exploding')
  ),
  'flipped_signs': Fault(
    'send the opposite of their change', _FEW, _corrupt('flipped_signs')
  ),
  'flipped_labels': Fault(
    'train on wrong labels', _FEW, _corrupt('flipped_labels')
  ),
  'stale': Fault('train from the first model', _FEW, _corrupt('stale')),
  'duplicate': Fault('send their change twice', _FEW, _twice),
  'empty_round': Fault(
    'send nothing, and nobody else is there', (1.0,), _nothing
  ),
  'one_client': Fault('send nothing, and one client is left', (0.9,), _nothing),
  'no_examples': Fault(
    'have no examples', _ONE, _odd_data('no_examples'), 'empty'
  ),
  'one_example': Fault('have one example', _ONE, _odd_data('one_example')),
  'one_class': Fault(
    'have examples of one class', _ONE, _odd_data('one_class')
  ),
  'no_labels': Fault(
    'have no labels, where others have', _ONE, _odd_data('no_labels')
  ),
  'nan_pixels': Fault(
    'have pixels that are not numbers',
    _ONE,
    _odd_data('nan_pixels'),
    'non_finite',
  ),
  'unknown_group': Fault(
    'are in groups that do not exist', _FEW, _unknown_group, 'invalid'
  ),
}


def applies(name: str, problem: TinyProblem) -> bool:
  """Returns whether a fault can be had with a process."""
  labels_at = problem.spec.needs.labels_at
  if name == 'unknown_group':
    return problem.num_groups > 1  # One group takes everybody.
  if name == 'no_labels':
    return labels_at in ('clients', 'dealt')
  if name == 'flipped_labels' and labels_at == 'server':
    return False
  # Others are made of the client data alone.
  is_made_inside = name in CORRUPTIONS or name == 'straggler'
  return not is_made_inside or problem.spec.takes('corruption')


class Cohort(NamedTuple):
  """The clients of a round: keys of all that report, and of sound ones."""

  reporting: list[Key]
  sound: list[Key]
  num_faulty: int  # Of those that report.


def draw(name: str, share: float, round_num: int, num_groups: int) -> Cohort:
  """Draws the clients of a round, a share of which has a fault."""
  fault = FAULTS[name]
  keys = client_sampling.sample_keys(
    num_clients=NUM_CLIENTS,
    clients_per_round=NUM_CLIENTS,
    num_groups=num_groups,
    seed=_SEED,
    round_num=round_num,
  )
  drawing: dict[str, Any] = {fault.drawn_by: share}
  dealt = client_faults.ClientFaults(NUM_CLIENTS, _SEED, **drawing).deal(
    keys, round_num=round_num
  )
  faulty = {*dealt.dropped, *dealt.stragglers, *dealt.corrupt}
  sound = [client_faults.append(key) for key in keys if key[0] not in faulty]
  spoilt = [key for key in dealt.keys if key[0] in faulty]
  if fault.sends is not None:
    spoilt = [sent for key in spoilt for sent in fault.sends(key)]
  return Cohort(sound + spoilt, sound, len(spoilt))


class Measured(NamedTuple):
  """What a fault did; accuracies are shares of 400 held-out digits.

  Attributes:
    is_finite: Whether every state was, of model, optimizer and aggregator.
    miscounts: What is wrong with the counts of clients, in words; else ''.
    before: Accuracy before the fault.
    clean: After as many rounds of sound clients as end the fault.
    left_out: After the same rounds, which faulty clients were left out of;
      `None` where they send nothing.
    accuracy: At the end of the fault.
    recovered_after: Rounds of sound clients after which it was back; `None`
      where it was not after five.
  """

  is_finite: bool
  miscounts: str
  before: float
  clean: float
  left_out: float | None
  accuracy: float
  recovered_after: int | None


class Bench:
  """A process with an aggregator, and what faults do to it.

  Attributes:
    problem: The process and its data.
  """

  def __init__(self, problem: TinyProblem, aggregator: str):
    """Builds the process.

    Args:
      problem: The process; it must have client training.
      aggregator: A key of `recommended.AGGREGATORS`.

    Raises:
      TypeError, ValueError: If the process does not take the aggregator.
    """
    self.problem = problem
    arguments = problem.aggregation(aggregator, NUM_CLIENTS)
    if problem.spec.takes('corruption'):
      arguments['corruption'] = tuple(
        Corruption(
          kind,
          NUM_CLASSES
          if kind == 'flipped_labels' and not problem.lies_in_sets
          else None,
        )
        for kind in CORRUPTIONS
      )
    process = problem.build(
      **arguments,
      data_spec=dataclasses.replace(
        problem.data_spec(),
        has_faults=True,
        num_clients=NUM_CLIENTS + len(_ODD_DATA),
      ),
    )
    self._process = client_reader.compose_with_reader(
      process, problem.reader(_clients(problem))
    )
    self._left_out: dict[tuple, float] = {}

  @functools.cached_property
  def _start(self) -> Any:
    """The state before faults, after rounds of sound clients."""
    state = self._process.initialize()
    for round_num in range(SOUND_ROUNDS):
      state = self._process.next(state, self._sound(round_num)).state
    return state

  @functools.cached_property
  def clean(self) -> Sequence[float]:
    """Accuracies of sound clients, from the round before faults on."""
    state, accuracies = self._start, [self._accuracy(self._start)]
    for i in range(FAULTY_ROUNDS + RECOVERY_ROUNDS):
      state = self._process.next(state, self._sound(SOUND_ROUNDS + i)).state
      accuracies.append(self._accuracy(state))
    return accuracies

  def measure(self, name: str, share: float) -> Measured:
    """Measures a fault of a share of the clients."""
    cohorts = [
      draw(name, share, SOUND_ROUNDS + i, self.problem.num_groups)
      for i in range(FAULTY_ROUNDS)
    ]
    state, is_finite, miscounts = self._start, True, ''
    for cohort in cohorts:
      state, metrics = self._process.next(state, cohort.reporting)
      is_finite &= assertions.is_finite(state)
      miscounts = miscounts or _miscounts(metrics, name, cohort)
    accuracy = self._accuracy(state)
    recovered_after = None
    for i in range(1, RECOVERY_ROUNDS + 1):
      round_num = SOUND_ROUNDS + FAULTY_ROUNDS + i - 1
      state = self._process.next(state, self._sound(round_num)).state
      is_finite &= assertions.is_finite(state)
      level = min(self.clean[0], self.clean[FAULTY_ROUNDS + i])
      if self._accuracy(state) >= level - MARGIN:
        recovered_after = i
        break
    return Measured(
      is_finite,
      miscounts,
      before=self.clean[0],
      clean=self.clean[FAULTY_ROUNDS],
      left_out=self._without(name, cohorts),
      accuracy=accuracy,
      recovered_after=recovered_after,
    )

  def _without(self, name, cohorts) -> float | None:
    """Returns the accuracy after the same rounds of the sound clients alone."""
    if FAULTS[name].is_silent:
      return None
    key = tuple(tuple(key[0] for key in cohort.sound) for cohort in cohorts)
    if key not in self._left_out:
      state = self._start
      for cohort in cohorts:
        state = self._process.next(state, cohort.sound).state
      self._left_out[key] = self._accuracy(state)
    return self._left_out[key]

  def _sound(self, round_num):
    return draw('drop_out', 0, round_num, self.problem.num_groups).sound

  def _accuracy(self, state) -> float:
    return self.problem.accuracy(self._process.get_model_weights(state))


def _clients(problem: TinyProblem) -> Sequence[Mapping[str, np.ndarray]]:
  """Returns the arrays of all clients, those of odd data behind the others."""
  sound = [
    problem.examples(_SIZE, digits_of=index) for index in range(NUM_CLIENTS)
  ]
  odd = [
    collections.OrderedDict(make(problem.examples(_SIZE, digits_of=number)))
    for number, make in enumerate(_ODD_DATA.values(), NUM_CLIENTS)
  ]
  return sound + odd


def _miscounts(metrics, name: str, cohort: Cohort) -> str:
  """Returns what is wrong with the counts of a round, in words, or ''."""
  counts = metrics['client_work'].get('clients')
  if counts is None:
    return 'the metrics have no client_work/clients'
  counted = FAULTS[name].counted
  expected = {'empty': 0, 'non_finite': 0, 'invalid': 0}
  if counted is not None:
    expected[counted] = cohort.num_faulty
  expected['participating'] = len(cohort.reporting) - sum(expected.values())
  if name == 'no_labels':
    # What a client does without any is its method's affair.
    del expected['participating']
  return ', '.join(
    f'{int(counts[key])} {key}, not {number}'
    for key, number in expected.items()
    if int(counts[key]) != number
  )
