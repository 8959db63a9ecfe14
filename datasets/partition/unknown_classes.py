"""Classes that clients have examples of, and the server has none.

Clients' unlabelled examples are rarely all of what somebody has labelled. Here
the last classes of a data set are unknown: they are none of the model's
outputs, nobody is tested on them, and the labels of their examples are gone
before anything is divided. A share of what each client has is of them.

All else stays the same whatever the share is: the server's examples, the test
examples, and what each client has of the known classes.
"""

import dataclasses

import numpy as np

from datasets.partition import resplit
from datasets.partition.assignment import Assignment
from datasets.sources.source import UNKNOWN, Source
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting, needs, only_with

UNKNOWN_CLASSES = Setting(
  'unknown_classes',
  int,
  'How many classes, the last ones, the server does not have: clients alone '
  'have examples of them, without label.',
  at_least=1,
  optional=True,
  used_when=(
    needs(
      'a process with all labels at the server',
      'clients of the process {process} have labels',
      'server_has_all_labels',
    ),
  ),
)
UNKNOWN_SHARE = Setting(
  'unknown_share',
  float,
  "The share of each client's examples that is of classes which the server "
  'does not have, in [0, 1).',
  default=0.2,
  at_least=0,
  below=1,
  used_when=(only_with(UNKNOWN_CLASSES.name),),
)


def take_out(source: Source, unknown_classes: int | None) -> Source:
  """Returns the data to whoever does not know the last classes.

  Their training examples come behind all others, without label. `None`
  changes nothing.

  Raises:
    ValueError: If fewer than two classes are left, or some training example has
      no label, so that nobody knows its class.
  """
  if unknown_classes is None:
    return source
  known, train = source.num_classes - unknown_classes, source.train
  if known < 2:
    raise ValueError(
      f'{UNKNOWN_CLASSES.name}={unknown_classes} leaves {max(known, 0)} of the '
      f'{source.num_classes} classes of {source.name}: give at most '
      f'{source.num_classes - 2}.'
    )
  if (train.labels == UNKNOWN).any():
    raise ValueError(
      f'{UNKNOWN_CLASSES.name}={unknown_classes} needs the class of each '
      f'training example, and {source.name} has some without label: leave it '
      'out.'
    )
  others = {
    name: split.part(split.labels < known)
    for name, split in source.splits.items()
    if name != 'train'
  }
  train = train.part(np.argsort(train.labels >= known, kind='stable'))
  labels = np.where(train.labels < known, train.labels, UNKNOWN)
  return resplit.changed(
    source,
    f'{known}-classes',
    f'the classes {", ".join(source.class_names[known:])} are unknown: '
    f'{(labels != UNKNOWN).sum():,} train and {len(others["test"].labels):,} '
    'test examples are of others',
    train=dataclasses.replace(train, labels=labels.astype(train.labels.dtype)),
    num_classes=known,
    names=source.names and source.names[:known],
    **others,
  )


def deal(
  held: Assignment, unknown: np.ndarray, unknown_share: float, seed: int
) -> Assignment:
  """Gives clients examples of unknown classes, at random.

  A client with n examples gets `n s / (1 - s)` more, rounded, so that the share
  s of all is of them.

  Args:
    unknown: `int64 [U]`, the examples of unknown classes.
  """
  UNKNOWN_SHARE.check(unknown_share)
  odds = unknown_share / (1 - unknown_share)
  counts = np.rint(held.client_sizes * odds).astype(np.int64)
  if counts.sum() > len(unknown):
    raise ValueError(
      f'{UNKNOWN_SHARE.name}={unknown_share} asks for {counts.sum():,} '
      f'examples of unknown classes, and there are {len(unknown):,}: lower it, '
      f'or raise {UNKNOWN_CLASSES.name}.'
    )
  rng = generator(Purpose.UNKNOWN_CLASSES, seed)
  given = np.split(rng.permutation(unknown), np.cumsum(counts))
  parts = [
    rng.permutation(np.concatenate([held.client_indices(client), more]))
    for client, more in enumerate(given[:-1])
  ]
  return dataclasses.replace(
    held,
    examples=np.concatenate(parts),
    offsets=np.cumsum([0, *map(len, parts)]),
  )
