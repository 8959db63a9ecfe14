"""Which examples the server and each client hold, and the draws for that.

All partitions share one random generator per purpose, the class-uniform server
set of the papers, and one flat array of the clients' examples.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from datasets.sources.source import check_arrays
from tff_ssl.common.choice import Choice, Values
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Scope, Setting, condition

NOBODY = -1
# The fields that hold indices or offsets, and those of sets.
INDICES = ('server_indices', 'examples', 'offsets', 'labelled_indices')
OF_SETS = ('set_ids', 'class_priors')

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
  if values.get('shared_examples'):
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
  """A class has fewer labelled examples, of `counts`, than `quotas` ask for."""

  def __init__(self, label: int, quotas: np.ndarray, counts: np.ndarray):
    self.values = label, quotas, counts
    super().__init__(self.text(SERVER_EXAMPLES.name, range(len(counts))))

  def text(self, name: str, class_names: Sequence[Any]) -> str:
    """Returns the message for the setting that asked, and names of classes."""
    label, quotas, counts = self.values
    most = int(counts.min()) * len(counts)
    remedy = (
      f'give {name}={most} or less'
      if most
      else 'each class needs labelled training examples'
    )
    return (
      f'{name}={quotas.sum()} asks for {quotas[label]} labelled examples of '
      f'the class {class_names[label]!r}, which has {counts[label]}: {remedy}.'
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Assignment:
  """Which training examples the server and each client hold.

  In sets (U-sets of FedUL, Section 3.1), an example may lie in several sets of
  one client, but not twice in one set, and not at two clients.

  Attributes:
    server_indices: `int64 [N_s]`, the server's labelled examples, in random
      order.
    examples: `int64 [M]`, the examples of client 0, then of client 1, and so
      on, those of each in random order.
    offsets: `int64 [K + 1]`; the examples of client k are those from
      `offsets[k]` to `offsets[k + 1]`.
    client_names: The K ids of the owners, or `'client_00012'`.
    held_out_client_names: The owners who gave their data to the server and
      never take part.
    labelled_indices: `int64 [L]`, ascending, the examples whose labels the
      clients know; empty unless they know some and not others.
    set_ids: `int64 [M]`, the set of each of `examples`, numbered from 0 at each
      client; `None` without sets, as `class_priors`.
    class_priors: `float64 [K, S, d]`, Pi_c as the clients know it. A client
      with fewer than S sets has rows of zeros at the end.
  """

  server_indices: np.ndarray
  examples: np.ndarray
  offsets: np.ndarray
  client_names: tuple[str, ...]
  held_out_client_names: tuple[str, ...] = ()
  labelled_indices: np.ndarray = dataclasses.field(
    default_factory=lambda: np.empty(0, np.int64)
  )
  set_ids: np.ndarray | None = None
  class_priors: np.ndarray | None = None

  def __post_init__(self):
    check_arrays(self, (*INDICES, *OF_SETS) if self.in_sets else INDICES)
    for name in (*INDICES, 'set_ids') if self.in_sets else INDICES:
      array = getattr(self, name)
      # All integers that are used as int64 as they are.
      is_integer = array.dtype.kind in 'iu' and np.can_cast(array.dtype, int)
      if array.ndim != 1 or not is_integer:
        raise ValueError(
          f'{name} is {array.dtype} {list(array.shape)}: give a vector of '
          'integers, such as int64.'
        )
    names = self.client_names
    are_strings = {isinstance(name, str) for name in names} == {True}
    if isinstance(names, str) or not are_strings or len({*names}) < len(names):
      raise ValueError(
        f'client_names begins with {list(names[:3])}: give a string of its own '
        'to each client, of which there must be one at least.'
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

  @property
  def in_sets(self) -> bool:
    """Whether the examples of each client lie in sets."""
    return self.set_ids is not None

  @property
  def num_sets(self) -> np.ndarray:
    """`int64 [K]`, M_c, the number of sets of each client."""
    return np.count_nonzero(self.set_sizes, axis=1)

  @property
  def set_sizes(self) -> np.ndarray:
    """`int64 [K, S]`, n_{c,m}, the number of examples in each set."""
    shape = self.class_priors.shape[:2]
    flat = self.owners * shape[1] + self.set_ids
    return np.bincount(flat, minlength=np.prod(shape)).reshape(shape)

  @property
  def set_shares(self) -> np.ndarray:
    """`float64 [K, S]`, rho_c, each set's share of its client's examples."""
    sizes = self.set_sizes
    return sizes / sizes.sum(axis=1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Partition(Assignment):
  """An assignment that fits its data set, with the arguments of its draw.

  Attributes:
    num_train: The number of examples in the training split of the data set.
    arguments: The other arguments of `partitions.build`, by name.
  """

  name: str
  source_name: str
  source_version: str
  num_train: int
  seed: int
  arguments: Mapping[str, int | float | str | None]

  def __post_init__(self):
    super().__post_init__()
    if self.in_sets:
      self._check_forms_of_sets()
    held = np.concatenate([self.server_indices, self.examples])
    if held.size and not 0 <= held.min() <= held.max() < self.num_train:
      raise ValueError(
        f'examples from {held.min()} to {held.max()} are not all in '
        f'[0, {self.num_train}): use the source of this partition.'
      )
    if (
      len(self.offsets) != self.num_clients + 1
      or self.offsets[0] != 0
      or self.offsets[-1] != len(self.examples)
      or (self.client_sizes < 0).any()
      or not len(self.examples)
    ):
      raise ValueError(
        f'offsets do not cut {len(self.examples)} examples into '
        f'{self.num_clients} clients: build the partition anew.'
      )
    self._check_given_once()
    if (
      len(np.unique(self.labelled_indices)) < len(self.labelled_indices)
      or np.setdiff1d(self.labelled_indices, self.examples).size
    ):
      raise ValueError(
        f'{len(self.labelled_indices)} labelled_indices are not as many '
        "different examples of the clients': build the partition anew."
      )
    if self.in_sets:
      self._check_sets()

  def _check_given_once(self) -> None:
    at_clients, twice = self.examples, np.empty(0, np.int64)
    if self.in_sets or self.is_shared:
      # Clients hold an example once, or once in each set.
      places, most = self.owners, self.num_clients
      if self.in_sets:
        places, most = self.set_ids, self.class_priors.shape[1]
      numbers = np.sort(self.examples * most + places)
      twice = numbers[1:][np.diff(numbers) == 0] // most
      own = np.unique(self.examples * self.num_clients + self.owners)
      at_clients = own // self.num_clients
    if self.is_shared:
      at_clients = at_clients[~np.isin(at_clients, self.server_indices)]
    held = np.concatenate([self.server_indices, at_clients])
    twice = np.concatenate([twice, np.flatnonzero(np.bincount(held) > 1)])
    if twice.size:
      raise ValueError(
        f'example {twice[0]} is given to two clients, or more than once: build '
        'the partition anew.'
      )

  def _check_forms_of_sets(self) -> None:
    shape = self.class_priors.shape
    if (
      len(shape) != 3
      or shape[0] != self.num_clients
      or self.class_priors.dtype.kind not in 'iuf'
      or self.set_ids.shape != self.examples.shape
      or (self.set_ids < 0).any()
      or (self.set_ids >= shape[1]).any()
    ):
      raise ValueError(
        f'set_ids {list(self.set_ids.shape)} and class_priors {list(shape)} do '
        f'not fit {len(self.examples)} examples of {self.num_clients} clients: '
        'build the partition anew.'
      )

  def _check_sets(self) -> None:
    sizes = self.set_sizes
    unfit = np.argwhere((sizes > 0) != self.class_priors.any(axis=2))
    if len(unfit):
      client, number = unfit[0]
      raise ValueError(
        f'set {number} of {self.client_names[client]!r} has '
        f'{sizes[client, number]} examples and class priors that sum to '
        f'{self.class_priors[client, number].sum():g}: a set needs both.'
      )

  @property
  def is_shared(self) -> bool:
    """Whether clients hold copies of the server's examples."""
    return 'shared_fraction' in self.arguments

  @property
  def arrays(self) -> dict[str, np.ndarray]:
    """The indices, the offsets and what sets have, by field, to be stored."""
    names = (*INDICES, *OF_SETS) if self.in_sets else INDICES
    # A partition of a user's own may have integers of another size.
    types = {'class_priors': '<f8'}
    return {n: getattr(self, n).astype(types.get(n, '<i8')) for n in names}

  def digest(self) -> str:
    """Returns the sha256 of all fields, in hexadecimal."""
    arrays = self.arrays.values()
    facts = {
      name: value
      for name, value in vars(self).items()
      if name not in (*INDICES, *OF_SETS)
    }
    facts['lengths'] = [
      len(array) if array.ndim == 1 else list(array.shape) for array in arrays
    ]
    content = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for array in arrays:
      content.update(array.tobytes())
    return content.hexdigest()


@dataclasses.dataclass(frozen=True)
class PartitionSpec(Choice):
  """A partition: its name, its settings and the function that draws it.

  `builder(source, *, seed, server_examples, **settings) -> Assignment` draws
  it. With `in_sets` it takes no `server_examples` and returns an `Assignment`
  with sets, to whose class priors noise may be added. The user must give each
  setting that has no default in the signature; the runner takes the `default`
  of the record.

  Attributes:
    needs_client_ids: Whether the source must name the owner of each example. If
      labels are at the clients, they label examples of their own.
    needs_sets: Whether the source's examples must come in sets.
    deals_test: Whether clients without test examples of their own get an equal
      share of each class (`deal_test_evenly`).
    needs_labels: Takes the settings and returns whether the class of each
      example must be known.
    server_settings: The names of the settings for the draw of the server's
      examples, without effect if labels are at the clients.
    complete: Takes the settings and returns those that `builder` gets and a run
      records, with derived values; refuses those that do not fit each other.
  """

  _: dataclasses.KW_ONLY
  needs_client_ids: bool = False
  in_sets: bool = False
  needs_sets: bool = False
  deals_test: bool = False
  needs_labels: Callable[[Values], bool] = lambda settings: False
  server_settings: tuple[str, ...] = ()
  complete: Callable[[dict[str, Any]], dict[str, Any]] = dict


def class_quotas(
  server_examples: int, num_classes: int, rng: np.random.Generator
) -> np.ndarray:
  """Returns how many examples of each class the server holds, `int64 [d]`.

  What is left of N_s after a division by d goes to randomly drawn classes.
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

  `owner`, `int64 [N]`, is given if each class should come from as many owners
  as possible: each gives one example per turn.
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
  """Draws N_s examples of known class, equally many of each class."""
  rng = generator(Purpose.SERVER_SET, seed)
  quotas = class_quotas(server_examples, num_classes, rng)
  return draw_class_uniform(labels, np.arange(len(labels)), quotas, rng)


def deal(
  labels: np.ndarray,
  server: np.ndarray,
  counts: np.ndarray,
  rng: np.random.Generator,
  seed: int,
) -> Assignment:
  """Assigns `counts[k, i]` examples of class i to client k, at random."""
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

  FedUL measures errors in this way (Section 4): "the test data are uniformly
  sampled from all classes" at each client, and errors are means over clients.
  """
  counts = np.bincount(labels, minlength=num_classes)
  if counts.min() < num_clients:
    raise ValueError(
      f'num_clients={num_clients}: class {np.argmin(counts)} has '
      f'{counts.min()} test examples, not one for each client: lower the '
      'number of clients, or do not evaluate per client.'
    )
  rng = generator(Purpose.TEST_OWNERS, seed)
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
  held = generator(Purpose.EXAMPLE_ORDER, seed).permutation(held)
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
