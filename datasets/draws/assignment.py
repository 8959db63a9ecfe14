"""Assigns training examples to the server and to clients, by seeded draws.

All partitions share these steps: one random generator per purpose, the
class-uniform server set of the papers, and the examples of all clients as one
flat array with offsets.
"""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from tff_ssl.common.setting import Scope, Setting, condition

NOBODY = -1

SEED = Setting(
  'seed',
  int,
  'Fixes all random draws.',
  default=0,
  at_least=0,
  scope=Scope.REPETITION,
)
NUM_CLIENTS = Setting(
  'num_clients', int, 'K, the number of clients.', at_least=1
)


@condition('a process with labels at the server')
def at_server(values) -> str | None:
  """Returns why the server has no labelled examples, or `None` if it has."""
  if values.get('shares_data'):
    return (
      f'the process {values["process"]} has the labels of the examples that '
      'clients share (use --shared_fraction)'
    )
  if values.get('labels_at') == 'dealt':
    return (
      f'the process {values["process"]} has its labels at the clients (use '
      '--labelled_examples)'
    )
  if not values.get('has_server_training', True):
    return (
      f'the process {values["process"]} does not use it, its labels are at the '
      'clients (use --partition and --num_clients)'
    )
  return None


SERVER_EXAMPLES = Setting(
  'server_examples',
  int,
  'N_s, the number of labelled examples at the server, equally many of each '
  'class.',
  default=100,
  at_least=0,
  used_when=(at_server,),
)


class TooFewLabels(ValueError):
  """A class has fewer labelled examples than are asked for."""

  def __init__(
    self,
    label: int,
    quotas: np.ndarray,
    counts: np.ndarray,
    name: str = SERVER_EXAMPLES.name,
    class_name: str | None = None,
  ):
    """Initializes the error: a class, and `int64 [d]` asked for and found."""
    self.values = label, quotas, counts
    named = str(label) if class_name is None else repr(class_name)
    most = int(counts.min()) * len(counts)
    remedy = (
      f'give {name}={most} or less'
      if most
      else 'each class needs labelled training examples'
    )
    super().__init__(
      f'{name}={quotas.sum()} asks for {quotas[label]} labelled examples of '
      f'the class {named}, which has {counts[label]}: {remedy}.'
    )

  def of(self, name: str, class_names: Sequence[str]) -> 'TooFewLabels':
    """Returns the error with the setting that asked and the class's name."""
    return TooFewLabels(
      *self.values, name=name, class_name=class_names[self.values[0]]
    )


class Purpose(enum.IntEnum):
  """The purpose of a random draw. Each has its own stream under one seed.

  So the server set does not change with the number of clients or with R.
  """

  SERVER_SET = 1
  CLIENT_EXAMPLES = 2
  EXAMPLE_ORDER = 3
  HELD_OUT_WRITERS = 4
  CLIENT_SUBSET = 5
  LABELLED_CLIENTS = 6
  LABEL_MASKS = 7
  SPLIT = 8
  SET_PRIORS = 9
  SET_EXAMPLES = 10
  PRIOR_NOISE = 11
  TEST_OWNERS = 12
  SHARED_EXAMPLES = 13
  MEASURED_EXAMPLES = 14


@dataclasses.dataclass(frozen=True, eq=False)
class Assignment:
  """Which training examples the server and each client hold.

  Attributes:
    server_indices: `int64 [N_s]`, the server's labelled examples, in random
      order.
    examples: `int64 [M]`, the examples of client 0, then of client 1, and so
      on. Those of each client are in random order.
    offsets: `int64 [K + 1]`; client k holds
      `examples[offsets[k]:offsets[k + 1]]`.
    client_names: The K names: the ids of the owners, or `'client_00012'`.
    held_out_client_names: The owners who gave their data to the server and
      never take part.
    labelled_indices: `int64 [L]`, ascending, the subset of `examples` whose
      labels the clients know. It is empty unless they know some labels and not
      others (`client_labels`).
  """

  server_indices: np.ndarray
  examples: np.ndarray
  offsets: np.ndarray
  client_names: tuple[str, ...]
  held_out_client_names: tuple[str, ...] = ()
  labelled_indices: np.ndarray = dataclasses.field(
    default_factory=lambda: np.empty(0, np.int64)
  )

  @property
  def num_clients(self) -> int:
    """K, the number of clients."""
    return len(self.client_names)

  @property
  def owners(self) -> np.ndarray:
    """`int64 [M]`, the client of each of `examples`."""
    return np.repeat(np.arange(self.num_clients), self.client_sizes)

  @property
  def client_sizes(self) -> np.ndarray:
    """`int64 [K]`, the number of examples of each client."""
    return np.diff(self.offsets)

  def client_indices(self, client: int) -> np.ndarray:
    """Returns the examples of one client in `[0, K)`, `int64 [n]`."""
    if not 0 <= client < self.num_clients:
      raise ValueError(
        f'client={client} does not exist: choose one in '
        f'[0, {self.num_clients}).'
      )
    return self.examples[self.offsets[client] : self.offsets[client + 1]]


def generator(seed: int, purpose: Purpose) -> np.random.Generator:
  """Returns the random stream of one purpose under a seed."""
  return np.random.default_rng(np.random.SeedSequence([seed, int(purpose)]))


def class_quotas(
  server_examples: int, num_classes: int, rng: np.random.Generator
) -> np.ndarray:
  """Returns how many examples of each class the server holds, `int64 [d]`.

  If N_s is not divisible by d, the remainder goes to randomly drawn classes,
  one example each.
  """
  each, remainder = divmod(server_examples, num_classes)
  quotas = np.full(num_classes, each, np.int64)
  quotas[rng.permutation(num_classes)[:remainder]] += 1
  return quotas


def draw_class_uniform(
  labels: np.ndarray,
  candidates: np.ndarray,
  quotas: np.ndarray,
  rng: np.random.Generator,
  owner: np.ndarray | None = None,
) -> np.ndarray:
  """Draws a quota of examples of each class of `candidates`, in random order.

  Args:
    labels: `int [N]`, the classes of all examples.
    quotas: `int64 [d]`, how many of each class.
    owner: `int64 [N]`, the owner of each example, if each class should come
      from as many owners as possible. Owners then take turns: each gives one
      example per turn. Those who gave the fewest so far come first.

  Raises:
    TooFewLabels: If a class has fewer candidates than its quota.
  """
  shuffled = rng.permutation(candidates)
  drawn = []
  known = labels[candidates]
  counts = np.bincount(known[known >= 0], minlength=len(quotas))
  if owner is not None:
    taken = np.zeros(owner.max(initial=0) + 1, np.int64)
  for label, quota in enumerate(quotas):
    members = shuffled[labels[shuffled] == label]
    if len(members) < quota:
      raise TooFewLabels(label, quotas, counts)
    if owner is not None:
      # In each turn, owners who have given the fewest come first.
      own = owner[members]
      members = members[np.lexsort((taken[own], turns(own)))]
      taken += np.bincount(owner[members[:quota]], minlength=len(taken))
    drawn.append(members[:quota])
  return rng.permutation(np.concatenate(drawn))


def turns(owners: np.ndarray) -> np.ndarray:
  """Returns how many examples of its owner come before each, `int64 [n]`."""
  order = np.argsort(owners, kind='stable')
  turn = np.empty(len(owners), np.int64)
  first_of_owner = np.searchsorted(owners[order], owners[order])
  turn[order] = np.arange(len(owners)) - first_of_owner
  return turn


def draw_server_set(
  labels: np.ndarray, num_classes: int, server_examples: int, seed: int
) -> np.ndarray:
  """Draws N_s examples, equally many of each class, in random order.

  Examples of unknown class (-1) are not drawn. `class_quotas` divides N_s.
  """
  rng = generator(seed, Purpose.SERVER_SET)
  quotas = class_quotas(server_examples, num_classes, rng)
  return draw_class_uniform(labels, np.arange(len(labels)), quotas, rng)


def deal(
  labels: np.ndarray,
  server: np.ndarray,
  counts: np.ndarray,
  rng: np.random.Generator,
  seed: int,
) -> Assignment:
  """Assigns all that the server leaves to clients at random.

  `counts`, `int64 [K, d]`, are the examples of each class that each client
  receives. Their sum over clients is the number that is left.
  """
  num_clients, num_classes = counts.shape
  left = np.ones(len(labels), bool)
  left[server] = False
  owner = np.full(len(labels), NOBODY, np.int64)
  for label in range(num_classes):
    members = rng.permutation(np.flatnonzero(left & (labels == label)))
    owner[members] = np.repeat(np.arange(num_clients), counts[:, label])
  return from_owners(owner, numbered_names(num_clients), server, seed)


def deal_test_evenly(
  labels: np.ndarray, num_classes: int, num_clients: int, seed: int
) -> np.ndarray:
  """Returns the client of each test example; all have equal classes.

  For each class, the numbers of two clients differ by at most one. FedUL
  measures errors in this way (Section 4): "the test data are uniformly sampled
  from all classes" at each client, and errors are means over clients.
  """
  counts = np.bincount(labels, minlength=num_classes)
  if counts.min() < num_clients:
    raise ValueError(
      f'num_clients={num_clients}: class {np.argmin(counts)} has '
      f'{counts.min()} test examples, not one for each client: lower the '
      'number of clients, or do not evaluate per client.'
    )
  rng = generator(seed, Purpose.TEST_OWNERS)
  owner = np.empty(len(labels), np.int64)
  for label in range(num_classes):
    members = rng.permutation(np.flatnonzero(labels == label))
    owner[members] = np.arange(len(members)) % num_clients
  return owner


def from_owners(
  owner: np.ndarray,
  client_names: tuple[str, ...],
  server_indices: np.ndarray,
  seed: int,
  held_out_client_names: tuple[str, ...] = (),
) -> Assignment:
  """Collects the examples of each client, in random order."""
  # Sources may be sorted by class. A client that reads its data in order must
  # not see one class after another.
  held = np.flatnonzero(owner != NOBODY)
  held = generator(seed, Purpose.EXAMPLE_ORDER).permutation(held)
  held = held[np.argsort(owner[held], kind='stable')]
  sizes = np.bincount(owner[held], minlength=len(client_names))
  return Assignment(
    server_indices=server_indices.astype(np.int64),
    examples=held.astype(np.int64),
    offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    client_names=client_names,
    held_out_client_names=held_out_client_names,
  )


def numbered_names(num_clients: int) -> tuple[str, ...]:
  """Returns names for clients without names: `('client_00000', ...)`."""
  return tuple(f'client_{client:05d}' for client in range(num_clients))
