"""A partition in which each client's examples lie in sets (U-sets).

Nobody has labels; what a client knows of each of its sets is the shares of the
classes in it (FedUL, Section 3.1). An example may lie in several sets of one
client, never twice in one set, and never at two clients.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from datasets import assignment, partitions


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SetPartition(partitions.Partition):
  """A partition, the set of each example, and what clients know of the sets.

  Attributes:
    set_ids: `int64 [N]`, the set of each of `examples`, from 0 at each client.
    class_priors: `float64 [C, M, d]`, Pi_c as the clients are told; a client
      with fewer than M sets has rows of zeros at the end.
  """

  set_ids: np.ndarray
  class_priors: np.ndarray

  array_names: ClassVar[tuple[str, ...]] = (
    *partitions.Partition.array_names,
    'set_ids',
    'class_priors',
  )

  def __post_init__(self):
    shape = self.class_priors.shape
    if (
      len(shape) != 3
      or shape[0] != self.num_clients
      or self.set_ids.shape != self.examples.shape
      or (self.set_ids < 0).any()
      or (self.set_ids >= shape[1]).any()
    ):
      raise ValueError(
        f'set_ids {list(self.set_ids.shape)} and class_priors {list(shape)} do '
        f'not fit {len(self.examples)} examples of {self.num_clients} clients: '
        'build the partition anew.'
      )
    super().__post_init__()
    sizes = self.set_sizes
    unfit = np.argwhere((sizes > 0) != self.class_priors.any(axis=2))
    if len(unfit):
      client, number = unfit[0]
      raise ValueError(
        f'set {number} of {self.client_names[client]!r} has '
        f'{sizes[client, number]} examples and class priors that sum to '
        f'{self.class_priors[client, number].sum():g}: a set needs both.'
      )

  def _check_given_once(self) -> None:
    in_sets = self.examples * self.max_sets + self.set_ids
    holders = np.unique(np.stack([self.examples, self.owners]), axis=1)[0]
    if (
      len(np.unique(in_sets)) < len(in_sets)
      or len(np.unique(holders)) < len(holders)
      or np.isin(self.server_indices, self.examples).any()
    ):
      raise ValueError(
        'an example is given to two clients, or twice to one set: build the '
        'partition anew.'
      )

  @property
  def max_sets(self) -> int:
    """M, the largest number of sets of a client."""
    return self.class_priors.shape[1]

  @property
  def num_sets(self) -> np.ndarray:
    """`int64 [C]`, M_c, the number of sets of each client."""
    return np.count_nonzero(self.set_sizes, axis=1)

  @property
  def set_sizes(self) -> np.ndarray:
    """`int64 [C, M]`, n_{c,m}, the number of examples in each set."""
    flat = self.owners * self.max_sets + self.set_ids
    sizes = np.bincount(flat, minlength=self.num_clients * self.max_sets)
    return sizes.reshape(self.num_clients, self.max_sets).astype(np.int64)

  @property
  def set_shares(self) -> np.ndarray:
    """`float64 [C, M]`, rho_c, each set's share of its client's examples."""
    sizes = self.set_sizes
    return sizes / sizes.sum(axis=1, keepdims=True)


def lay_out(
  sets: Sequence[Sequence[np.ndarray]], client_names: tuple[str, ...], seed: int
) -> tuple[assignment.Assignment, np.ndarray]:
  """Collects the clients' sets, each client's examples in random order.

  Args:
    sets: For each client, for each of its sets, the examples `int64 [n]`.
    client_names: The C names.
    seed: Fixes the order.

  Returns:
    The assignment, without a server set, and `int64 [N]`, the set of each of
    its examples.
  """
  rng = assignment.generator(seed, assignment.Purpose.EXAMPLE_ORDER)
  examples, set_ids = [], []
  for own in sets:
    order = rng.permutation(sum(len(members) for members in own))
    numbers = np.repeat(np.arange(len(own)), [len(members) for members in own])
    examples.append(np.concatenate(own)[order])
    set_ids.append(numbers[order])
  sizes = [len(members) for members in examples]
  held = assignment.Assignment(
    server_indices=np.empty(0, np.int64),
    examples=np.concatenate(examples).astype(np.int64),
    offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    client_names=client_names,
  )
  return held, np.concatenate(set_ids).astype(np.int64)


def empirical_priors(
  labels: np.ndarray, sets: Sequence[Sequence[np.ndarray]], num_classes: int
) -> list[np.ndarray]:
  """Returns the exact shares of the classes in each set.

  Args:
    labels: `int [N]`, the class of each example.
    sets: As in `lay_out`; no set is empty.
    num_classes: d.

  Returns:
    For each client `float64 [M_c, d]`.
  """
  counts = [
    np.stack([np.bincount(labels[m], minlength=num_classes) for m in own])
    for own in sets
  ]
  return [own / own.sum(axis=1, keepdims=True) for own in counts]


def stack_priors(priors: Sequence[np.ndarray]) -> np.ndarray:
  """Returns `float64 [C, M, d]` of `[M_c, d]` each, with zeros at the end."""
  most = max(len(own) for own in priors)
  return np.stack(
    [np.pad(own, ((0, most - len(own)), (0, 0))) for own in priors]
  ).astype(np.float64)
