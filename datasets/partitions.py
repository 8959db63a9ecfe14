"""The partitions by name, and the door through which they are built."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from datasets import (
  assignment,
  label_masks,
  labelled_clients,
  partition_arguments,
)
from datasets.dirichlet_partition import dirichlet_partition
from datasets.native_partition import SPREAD, native_partition
from datasets.pooled_partition import pooled_partition
from datasets.r_partition import r_partition
from datasets.source import Source


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
  """A partition as help texts and flag checks see it.

  Attributes:
    name: The name in `PARTITIONS`.
    summary: One line.
    arguments: Those arguments of `build` that apply to some partitions only and
      to this one.
    needs_client_ids: Whether the source must say who owns each example.
    in_sets: Whether each client's examples lie in sets; such a one is built by
      `datasets.set_partitions`.
    deals_test: Whether clients have test examples, dealt evenly in each class
      (`datasets.test_owners`).
  """

  name: str
  summary: str
  arguments: tuple[str, ...]
  needs_client_ids: bool = False
  in_sets: bool = False
  deals_test: bool = False

  def needs_labels(self, noniid_r: float | None) -> bool:
    """Returns whether the class of each example must be known."""
    return self.name in ('dirichlet', 'u_sets') or bool(noniid_r)


PARTITIONS = {
  spec.name: spec
  for spec in (
    PartitionSpec(
      'r', 'clients of a chosen non-iidness R', ('num_clients', 'noniid_r')
    ),
    PartitionSpec(
      'dirichlet',
      'shares of each class from Dir(alpha)',
      ('num_clients', 'dirichlet_alpha', 'min_client_examples'),
    ),
    PartitionSpec(
      'native',
      'each writer is one client',
      ('num_clients', 'server_writers'),
      needs_client_ids=True,
    ),
    PartitionSpec('pooled', 'one client with all the data', ()),
    PartitionSpec(
      'u_sets',
      'sets of known class priors, without labels',
      (
        *('num_clients', 'sets_per_client', 'client_examples', 'priors'),
        *('u_set_recipe', 'set_repeats', 'known_priors'),
        *('prior_noise', 'noise_formula'),
      ),
      in_sets=True,
      deals_test=True,
    ),
    PartitionSpec(
      'own_sets',
      'the sets that the data come in',
      ('prior_noise', 'noise_formula'),
      in_sets=True,
    ),
  )
}


_DEFAULTS = {
  'server_writers': SPREAD,
  'min_client_examples': 10,
}

# The fields of a partition that hold indices or offsets.
ARRAYS = ('server_indices', 'examples', 'offsets', 'labelled_indices')


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

  array_names: ClassVar[tuple[str, ...]] = ARRAYS

  def __post_init__(self):
    held = np.concatenate([self.server_indices, self.examples])
    if held.size and not 0 <= held.min() <= held.max() < self.num_train:
      raise ValueError(
        f'examples from {held.min()} to {held.max()} are not all in '
        f'[0, {self.num_train}): take the source the partition was made for.'
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
    if held.size and np.bincount(held).max() > 1:
      raise ValueError(
        f'example {np.argmax(np.bincount(held))} is given away more than once: '
        'build the partition anew.'
      )

  def digest(self) -> str:
    """Returns the sha256 of everything above, in hexadecimal."""
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


def _own_arguments(
  spec: PartitionSpec, given: Mapping[str, int | float | str | None]
) -> dict[str, int | float | str | None]:
  """Checks the arguments that only some partitions have.

  Args:
    spec: The partition.
    given: All of them, `None` where not given.

  Returns:
    Those of this partition, as plain Python values, with defaults.

  Raises:
    ValueError: If one is out of range, missing or does not apply.
    TypeError: If one is of the wrong type.
  """
  for argument, value in given.items():
    if value is not None and argument not in spec.arguments:
      users = [p.name for p in PARTITIONS.values() if argument in p.arguments]
      raise ValueError(
        f'{argument}={value!r} does not apply to partition {spec.name!r}: '
        f'leave it out, or choose --partition={" or ".join(users)}.'
      )
  own = {argument: given[argument] for argument in spec.arguments}
  for argument, default in _DEFAULTS.items():
    if argument in own and own[argument] is None:
      own[argument] = default
  for argument, value in own.items():
    if argument == 'num_clients' and spec.name == 'native' and value is None:
      continue
    if value is None:
      raise ValueError(
        f'{argument}=None: partition {spec.name!r} needs a number.'
      )
    own[argument] = partition_arguments.CHECKS[argument](value)
  return own


def _check_labelled(
  source: Source,
  server_examples: int,
  labelled_examples: int,
  server_writers: str | None,
):
  for argument, value in (
    ('server_examples', server_examples),
    ('labelled_examples', labelled_examples),
  ):
    partition_arguments.whole_number(argument, value, 0)
    if value >= len(source.train.labels):
      raise ValueError(
        f'{argument}={value} leaves none of the {len(source.train.labels)} '
        f'examples of {source.name} unlabelled at clients: lower it.'
      )
  if labelled_examples:
    for argument, value in (
      ('server_examples', server_examples),
      ('server_writers', server_writers),
    ):
      if value:
        raise ValueError(
          f'{argument}={value!r} and labelled_examples={labelled_examples} '
          'exclude each other: labels are at the server or at clients.'
        )


def _split(name, source, own, server_examples, seed) -> assignment.Assignment:
  """Calls the partition of this name."""
  labels, num_classes = source.train.labels, source.num_classes
  own = {**own, 'server_examples': server_examples, 'seed': seed}
  if name == 'native':
    return native_partition(source.train.client_ids, labels, num_classes, **own)
  function = {
    'r': r_partition,
    'dirichlet': dirichlet_partition,
    'pooled': pooled_partition,
  }[name]
  return function(labels, num_classes, **own)


def build(
  name: str,
  source: Source,
  *,
  seed: int,
  server_examples: int = 0,
  labelled_examples: int = 0,
  num_clients: int | None = None,
  noniid_r: float | None = None,
  dirichlet_alpha: float | None = None,
  min_client_examples: int | None = None,
  server_writers: str | None = None,
  mask_ratio: float | None = None,
) -> Partition:
  """Splits a source's training examples between a server and clients.

  Args:
    name: A name in `PARTITIONS`.
    source: The data.
    seed: Fixes the partition; at least 0.
    server_examples: N_s, the number of labelled examples at the server, equally
      many of each class. May be 0.
    labelled_examples: N_s, if the labels of these examples are the clients'
      instead (`datasets.labelled_clients`): they are drawn as the server's
      would be, then dealt to the clients evenly; of `'native'` clients each
      keeps his own, and nobody is held out.
    num_clients: K. Required for `'r'` and `'dirichlet'`; for `'native'`, `None`
      keeps every client.
    noniid_r: R in [0, 1], for `'r'` only. Must be 0 where the source has images
      without labels.
    dirichlet_alpha: The concentration in [0.001, 1e6], for `'dirichlet'` only.
    min_client_examples: The least number of examples of a client (10 if
      `None`), for `'dirichlet'` only.
    server_writers: `'spread'` (also if `None`), `'held_out'` or `'everyone'`,
      for `'native'` only and not with `labelled_examples`; see
      `native_partition`.
    mask_ratio: The share in [0, 1] of each client's labels that is hidden
      (`datasets.label_masks`), where all are known and not with
      `labelled_examples`. `None` stands for no mask and is not among
      `arguments`, so partitions without one keep their digest.

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
  if spec.in_sets:
    raise ValueError(
      f'partition={name!r} lays examples in sets: build it with '
      'datasets.set_partitions.build.'
    )
  given = {
    'num_clients': num_clients,
    'noniid_r': noniid_r,
    'dirichlet_alpha': dirichlet_alpha,
    'min_client_examples': min_client_examples,
    'server_writers': server_writers,
  }
  own = _own_arguments(spec, given)
  partition_arguments.whole_number('seed', seed, 0)
  train, num_classes = source.train, source.num_classes
  partition_arguments.check_source(
    source.name, train, num_classes, spec.needs_labels(noniid_r)
  )
  if spec.needs_client_ids and train.client_ids is None:
    raise ValueError(
      f'partition={name!r} needs to know who owns each example, which source '
      f'{source.name!r} does not say: choose --partition=r.'
    )
  _check_labelled(source, server_examples, labelled_examples, server_writers)
  if mask_ratio is not None:
    partition_arguments.check_mask(mask_ratio, labelled_examples)
  if labelled_examples and name == 'native':
    own['server_writers'] = None
    held = native_partition(
      train.client_ids,
      train.labels,
      num_classes,
      server_examples=0,
      seed=int(seed),
      num_clients=own['num_clients'],
    )
    held = labelled_clients.label_own_examples(
      held, train.labels, num_classes, int(labelled_examples), int(seed)
    )
  elif labelled_examples:
    try:
      held = _split(name, source, own, int(labelled_examples), int(seed))
    except ValueError as error:
      # Who gave no server set should not read of one.
      text = str(error).replace('server_examples', 'labelled_examples')
      raise ValueError(text) from error
    held = labelled_clients.deal_server_set(held, train.labels, int(seed))
  else:
    held = _split(name, source, own, int(server_examples), int(seed))
  masks = {}
  if mask_ratio is not None:
    partition_arguments.check_maskable(
      source.name, train.labels[held.examples], mask_ratio
    )
    held = label_masks.mask_labels(held, mask_ratio, int(seed))
    masks['mask_ratio'] = float(mask_ratio)
  return Partition(
    **vars(held),
    name=name,
    source_name=source.name,
    source_version=source.version,
    num_train=len(train.labels),
    seed=int(seed),
    arguments={
      **given,
      **own,
      'server_examples': int(server_examples),
      'labelled_examples': int(labelled_examples),
      **masks,
    },
  )
