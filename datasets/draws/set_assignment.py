"""An assignment in which each client's examples lie in sets (U-sets).

Nobody has labels. A client only knows the shares of the classes in each of its
sets (FedUL, Section 3.1). An example may lie in several sets of one client, but
not twice in one set, and not at two clients.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from datasets.draws import assignment, label_masks


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SetAssignment(assignment.Assignment):
  """An assignment with the set of each example and the priors of the sets.

  Attributes:
    set_ids: `int64 [N]`, the set of each of `examples`, numbered from 0 at each
      client.
    class_priors: `float64 [C, M, d]`, Pi_c as the clients know it. A client
      with fewer than M sets has rows of zeros at the end.
  """

  set_ids: np.ndarray
  class_priors: np.ndarray

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
  sets: Sequence[Sequence[np.ndarray]],
  class_priors: np.ndarray,
  client_names: tuple[str, ...],
  seed: int,
) -> SetAssignment:
  """Collects the clients' sets, each client's examples in random order.

  Each client has sets of examples, `int64 [n]`, and the priors `[M, d]` as it
  knows them. There is no server set.
  """
  rng = assignment.generator(seed, assignment.Purpose.EXAMPLE_ORDER)
  examples, set_ids = [], []
  for own in sets:
    order = rng.permutation(sum(len(members) for members in own))
    numbers = np.repeat(np.arange(len(own)), [len(members) for members in own])
    examples.append(np.concatenate(own)[order])
    set_ids.append(numbers[order])
  sizes = [len(members) for members in examples]
  return SetAssignment(
    server_indices=np.empty(0, np.int64),
    examples=np.concatenate(examples).astype(np.int64),
    offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    client_names=client_names,
    set_ids=np.concatenate(set_ids).astype(np.int64),
    class_priors=class_priors,
  )


def empirical_priors(
  labels: np.ndarray, sets: Sequence[Sequence[np.ndarray]], num_classes: int
) -> list[np.ndarray]:
  """Returns the exact class shares in sets, `float64 [M_c, d]` by client."""
  counts = [
    np.stack([np.bincount(labels[m], minlength=num_classes) for m in own])
    for own in sets
  ]
  return [own / own.sum(axis=1, keepdims=True) for own in counts]


def stack_priors(priors: Sequence[np.ndarray]) -> np.ndarray:
  """Stacks matrices `[M_c, d]` to `float64 [C, M, d]`, padded with zeros."""
  most = max(len(own) for own in priors)
  return np.stack(
    [np.pad(own, ((0, most - len(own)), (0, 0))) for own in priors]
  ).astype(np.float64)


def mask_labels(
  held: SetAssignment, num_train: int, mask_ratio: float, seed: int
) -> SetAssignment:
  """Hides labels as `label_masks.mask_labels`; an example counts once."""
  owner = np.full(num_train, assignment.NOBODY, np.int64)
  owner[held.examples] = held.owners
  distinct = assignment.from_owners(
    owner, held.client_names, held.server_indices, seed
  )
  masked = label_masks.mask_labels(distinct, mask_ratio, seed)
  return dataclasses.replace(held, labelled_indices=masked.labelled_indices)
