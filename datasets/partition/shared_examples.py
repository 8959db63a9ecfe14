"""A set of examples that all clients share (Zhao et al., arXiv 1806.00582).

Section 4 there: a set G, equally many examples of each class, is taken out of
the data. Each client k gets a random share alpha of it beside its own n_k,

```
|G| = beta sum_k n_k,    D_k <- D_k + alpha G
```

which brings clients nearer to each other: their non-iidness R becomes R n / (n
+ alpha |G|), where all have n examples.
"""

import dataclasses

import numpy as np

from datasets.partition import assignment
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting, needs_process

_USED = (
  needs_process(
    'shared_examples', words='a process whose clients share some examples'
  ),
)
SHARED_FRACTION = Setting(
  'shared_fraction',
  float,
  'beta, the size of the set that clients share, over the number of all their '
  'other examples. It has equally many examples of each class.',
  default=0.05,
  above=0,
  at_most=10,
  used_when=_USED,
)
SHARED_SHARE = Setting(
  'shared_share',
  float,
  'alpha, the share of that set that a client gets, in (0, 1].',
  default=1.0,
  above=0,
  at_most=1,
  used_when=_USED,
)


def size(num_examples: int, num_classes: int, shared_fraction: float) -> int:
  """Returns |G|, as many of each class, rounded down, of all examples."""
  SHARED_FRACTION.check(shared_fraction)
  each = int(
    num_examples * shared_fraction / (1 + shared_fraction) / num_classes
  )
  if not each:
    raise ValueError(
      f'shared_fraction={shared_fraction} of {num_examples} examples is less '
      f'than one of each of {num_classes} classes: raise it.'
    )
  return each * num_classes


def deal(
  held: assignment.Assignment, shared_share: float, seed: int
) -> assignment.Assignment:
  """Gives each client the random share alpha of the server's examples, G."""
  SHARED_SHARE.check(shared_share)
  shared = held.server_indices
  count = int(shared_share * len(shared))
  if not count:
    raise ValueError(
      f'shared_share={shared_share} of {len(shared)} shared examples is less '
      'than one: raise it.'
    )
  rng = generator(Purpose.SHARED_EXAMPLES, seed)
  parts = [
    rng.permutation(
      np.concatenate(
        [held.client_indices(client), rng.choice(shared, count, replace=False)]
      )
    )
    for client in range(held.num_clients)
  ]
  return dataclasses.replace(
    held,
    examples=np.concatenate(parts),
    offsets=np.cumsum([0, *map(len, parts)]),
  )
