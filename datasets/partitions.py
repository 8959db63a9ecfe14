"""The partitions by name, and the door through which they are built."""

import dataclasses
import hashlib
import json
import math
import numbers
from collections.abc import Mapping

import numpy as np

from datasets import assignment
from datasets.native_partition import EVERYONE, HELD_OUT, native_partition
from datasets.r_partition import r_partition
from datasets.source import Source, Split


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
  """A partition as help texts and flag checks see it.

  Attributes:
    name: The name in `PARTITIONS`.
    summary: One line.
    needs_client_ids: Whether the source must say who owns each example; only
      then `server_writers` applies.
    uses_r: Whether `noniid_r` applies (and must be given).
  """

  name: str
  summary: str
  needs_client_ids: bool
  uses_r: bool


PARTITIONS = {
  spec.name: spec
  for spec in (
    PartitionSpec('r', 'clients of a chosen non-iidness R', False, True),
    PartitionSpec('native', 'each writer is one client', True, False),
    PartitionSpec('pooled', 'one client with all the data', False, False),
  )
}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Partition(assignment.Assignment):
  """An assignment, and what it was made from.

  Attributes:
    name: The name in `PARTITIONS`.
    source_name: Which data set the indices refer to.
    source_version: Which version of it.
    num_train: The number of examples in its training split.
    seed: The seed that fixed it.
    arguments: The other arguments of `build`, by name.
  """

  name: str
  source_name: str
  source_version: str
  num_train: int
  seed: int
  arguments: Mapping[str, int | float | str | None]

  def __post_init__(self):
    held = np.concatenate([self.server_indices, self.examples])
    if held.size and not 0 <= held.min() <= held.max() < self.num_train:
      raise ValueError(
        f'examples from {held.min()} to {held.max()} are not all in '
        f'[0, {self.num_train}): take the source the partition was made for.'
      )
    if held.size and np.bincount(held).max() > 1:
      raise ValueError(
        f'example {np.argmax(np.bincount(held))} is given away more than once: '
        'build the partition anew.'
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

  def digest(self) -> str:
    """Returns the sha256 of everything above, in hexadecimal."""
    arrays = (self.server_indices, self.examples, self.offsets)
    facts = {
      field.name: getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name not in ('server_indices', 'examples', 'offsets')
    }
    facts['lengths'] = [len(array) for array in arrays]
    content = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for array in arrays:
      content.update(array.astype('<i8').tobytes())
    return content.hexdigest()


def pooled_partition(
  labels: np.ndarray, num_classes: int, *, server_examples: int, seed: int
) -> assignment.Assignment:
  """Gives one client everything that a class-uniform server set leaves.

  Args:
    labels: `int [N]`, the class of each example.
    num_classes: d.
    server_examples: N_s; a remainder as in `r_partition`.
    seed: Fixes the split.

  Raises:
    ValueError: If a class has too few examples, or nothing is left.
  """
  rng = assignment.generator(seed, assignment.Purpose.SERVER_SET)
  quotas = assignment.class_quotas(server_examples, num_classes, rng)
  server = assignment.draw_class_uniform(
    labels, np.arange(len(labels)), quotas, rng
  )
  owner = np.zeros(len(labels), np.int64)
  owner[server] = assignment.NOBODY
  return assignment.from_owners(
    owner, assignment.numbered_names(1), server, seed
  )


def build(
  name: str,
  source: Source,
  *,
  server_examples: int,
  seed: int,
  num_clients: int | None = None,
  noniid_r: float | None = None,
  server_writers: str | None = None,
) -> Partition:
  """Splits a source's training examples between a server and clients.

  Args:
    name: A name in `PARTITIONS`.
    source: The data.
    server_examples: N_s, the number of labelled examples at the server, equally
      many of each class. May be 0.
    seed: Fixes the partition; at least 0.
    num_clients: K. Required for `'r'`; for `'native'`, `None` keeps every
      client; for `'pooled'` it is 1.
    noniid_r: R in [0, 1], for `'r'` only.
    server_writers: `'held_out'` (also if `None`) or `'everyone'`, for
      `'native'` only; see `native_partition`.

  Raises:
    ValueError: If an argument is out of range, missing or unused, or the source
      does not have what the partition needs.
    TypeError: If an argument is of the wrong type.
  """
  if name not in PARTITIONS:
    raise ValueError(
      f'partition={name!r} is unknown: choose one of {sorted(PARTITIONS)}.'
    )
  spec = PARTITIONS[name]
  train = source.train
  _check_source(source.name, train, source.num_classes, spec)
  _check_whole_number('seed', seed, 0)
  _check_whole_number('server_examples', server_examples, 0)
  if server_examples >= len(train.labels):
    raise ValueError(
      f'server_examples={server_examples} leaves none of the '
      f'{len(train.labels)} examples of {source.name} to clients: lower it.'
    )
  if num_clients is not None:
    _check_whole_number('num_clients', num_clients, 1)
  _check_noniid_r(noniid_r, spec)
  server_writers = _checked_server_writers(server_writers, spec)
  drawn = {'server_examples': int(server_examples), 'seed': int(seed)}
  if name == 'r':
    if num_clients is None:
      raise ValueError("num_clients=None: partition 'r' needs a number.")
    held = r_partition(
      train.labels,
      source.num_classes,
      num_clients=num_clients,
      noniid_r=noniid_r,
      **drawn,
    )
  elif name == 'native':
    held = native_partition(
      train.client_ids,
      train.labels,
      source.num_classes,
      server_writers=server_writers,
      num_clients=num_clients,
      **drawn,
    )
  else:
    if num_clients not in (None, 1):
      raise ValueError(
        f"num_clients={num_clients}: partition 'pooled' has one client; "
        'leave num_clients out.'
      )
    held = pooled_partition(train.labels, source.num_classes, **drawn)
  return Partition(
    **vars(held),
    name=name,
    source_name=source.name,
    source_version=source.version,
    num_train=len(train.labels),
    seed=int(seed),
    arguments={
      'num_clients': None if num_clients is None else int(num_clients),
      'noniid_r': None if noniid_r is None else float(noniid_r),
      'server_examples': int(server_examples),
      'server_writers': server_writers,
    },
  )


def _check_source(
  name: str, train: Split, num_classes: int, spec: PartitionSpec
):
  labels = train.labels
  if not len(labels):
    raise ValueError(
      f'source {name!r} has no training examples: choose another.'
    )
  if labels.min() < 0 or labels.max() >= num_classes:
    raise ValueError(
      f'source {name!r} has labels from {labels.min()} to {labels.max()}, '
      f'outside [0, {num_classes}): correct them.'
    )
  if spec.needs_client_ids and train.client_ids is None:
    raise ValueError(
      f'partition={spec.name!r} needs to know who owns each example, which '
      f'source {name!r} does not say: choose --partition=r.'
    )


def _check_whole_number(argument: str, value: int, lowest: int):
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(
      f'{argument}={value!r} is a {type(value).__name__}: give a whole number.'
    )
  if value < lowest:
    raise ValueError(f'{argument}={value} is too small: at least {lowest}.')


def _check_noniid_r(value: float | None, spec: PartitionSpec):
  if not spec.uses_r:
    if value is not None:
      raise ValueError(
        f'noniid_r={value} does not apply to partition {spec.name!r}: leave it '
        'out, or choose --partition=r.'
      )
    return
  if value is None:
    raise ValueError(
      f'noniid_r=None: partition {spec.name!r} needs R in [0, 1].'
    )
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(
      f'noniid_r={value!r} is a {type(value).__name__}: give one in [0, 1].'
    )
  if math.isnan(value) or not 0 <= value <= 1:
    raise ValueError(f'noniid_r={value} is outside [0, 1]: choose one inside.')


def _checked_server_writers(
  value: str | None, spec: PartitionSpec
) -> str | None:
  if not spec.needs_client_ids:
    if value is not None:
      raise ValueError(
        f'server_writers={value!r} does not apply to partition {spec.name!r}: '
        'leave it out.'
      )
    return None
  if value is None:
    return HELD_OUT
  if value not in (HELD_OUT, EVERYONE):
    raise ValueError(
      f'server_writers={value!r} is unknown: choose {HELD_OUT!r} or '
      f'{EVERYONE!r}.'
    )
  return value
