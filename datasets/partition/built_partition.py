"""A built partition: an assignment with its data set, seed and arguments."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from datasets.draws.assignment import Assignment
from datasets.draws.set_assignment import SetAssignment


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Partition(Assignment):
  """An assignment with the data set, the seed and the arguments of its draw.

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

  # The fields that hold indices or offsets.
  array_names: ClassVar[tuple[str, ...]] = (
    'server_indices',
    'examples',
    'offsets',
    'labelled_indices',
  )

  def __post_init__(self):
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

  def _check_given_once(self) -> None:
    held = np.concatenate([self.server_indices, self.examples])
    if self.is_shared:
      own = ~np.isin(self.examples, self.server_indices)
      held = np.concatenate([self.server_indices, self.examples[own]])
      copies = np.stack([self.examples[~own], self.owners[~own]])
      if np.unique(copies, axis=1).shape[1] < copies.shape[1]:
        raise ValueError(
          'a client holds an example twice: build the partition anew.'
        )
    if held.size and np.bincount(held).max() > 1:
      raise ValueError(
        f'example {np.argmax(np.bincount(held))} is given away more than once: '
        'build the partition anew.'
      )

  @property
  def is_shared(self) -> bool:
    """Whether clients hold copies of the server's examples."""
    return 'shared_fraction' in self.arguments

  def digest(self) -> str:
    """Returns the sha256 of all fields, in hexadecimal."""
    arrays = [getattr(self, name) for name in self.array_names]
    facts = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name not in self.array_names
    }
    facts['lengths'] = [
      len(array) if array.ndim == 1 else list(array.shape) for array in arrays
    ]
    content = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for array in arrays:
      kind = '<f8' if array.dtype.kind == 'f' else '<i8'
      content.update(array.astype(kind).tobytes())
    return content.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SetPartition(Partition, SetAssignment):
  """A partition in which each client's examples lie in sets."""

  array_names: ClassVar[tuple[str, ...]] = (
    *Partition.array_names,
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
