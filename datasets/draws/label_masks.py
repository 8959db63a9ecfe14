"""Label masks hide the labels of a share of each client's examples.

This is the setting of "Label Hungry? Not Anymore: Towards Federated
Semi-supervised Learning" (Hegde et al.): each client keeps a few labels at any
mask ratio. Their code draws the mask anew in each epoch, so that clients see
every label in time. A mask of this module is drawn once, which makes the task
harder.

Some data have labels for a part of the examples only. Clients then know these.
"""

import dataclasses

import numpy as np

from datasets.draws import assignment
from datasets.sources.source import UNKNOWN
from tff_ssl.setting import Setting, needs_process, unless

FIXED, REDRAWN = 'fixed', 'redrawn'


def hidden_share(labelled_fraction: float) -> float:
  """Returns the mask ratio that leaves this share in (0, 1] of the labels."""
  LABELLED_FRACTION.check(labelled_fraction)
  # 1 - 0.9 is a little less than 0.1; users mean 0.1.
  return round(1 - labelled_fraction, 12)


_SOME_LABELS = needs_process(
  'labels_at',
  ', clients do not have all their labels',
  'clients',
  'a process whose clients have labels of their own',
)

MASK_RATIO = Setting(
  'mask_ratio',
  float,
  "The share of each client's labels that is hidden; each keeps at least one.",
  default=0.0,
  at_least=0,
  at_most=1,
  instead_of='labelled_fraction',
  used_when=(_SOME_LABELS,),
)
LABELLED_FRACTION = Setting(
  'labelled_fraction',
  float,
  "The share of each client's labels that is left: 1 - mask_ratio.",
  above=0,
  at_most=1,
  parse=hidden_share,
  instead_of=MASK_RATIO.name,
  used_when=(_SOME_LABELS,),
)
MASK = Setting(
  'mask',
  str,
  'Which labels are hidden: the same ones in the whole run (fixed), or others '
  'in every pass over the data (redrawn).',
  default=FIXED,
  choices=(FIXED, REDRAWN),
  used_when=(_SOME_LABELS, unless(MASK_RATIO.name, 0, 'hides no label')),
)


def num_masked(n: np.ndarray | int, mask_ratio: float) -> np.ndarray:
  """Returns how many of n examples lose their label, for `n` of any shape.

  It is `int(mask_ratio * n)` in double precision, as in the paper's code, but
  at most n - 1, so that one label remains.
  """
  MASK_RATIO.check(mask_ratio)
  n = np.asarray(n)
  if n.dtype.kind not in 'iu':
    raise TypeError(f'n is of {n.dtype}: give integers.')
  if n.size and n.min() < 0:
    raise ValueError(f'n={n.min()} is too small: at least 0.')
  n = n.astype(np.int64)
  masked = np.minimum((float(mask_ratio) * n).astype(np.int64), n - 1)
  return np.maximum(masked, 0)


def mask_labels(
  held: assignment.Assignment, mask_ratio: float, seed: int
) -> assignment.Assignment:
  """Hides labels of the clients' examples, the same ones for a whole run.

  Each client's examples are shuffled once, and the first `num_masked` lose
  their label; the others are `labelled_indices`. The shuffle does not depend on
  the ratio. So a higher ratio hides all labels that a lower one hides.
  """
  rng = assignment.generator(seed, assignment.Purpose.LABEL_MASKS)
  shuffled = rng.permutation(len(held.examples))
  owners = held.owners[shuffled]
  hidden = num_masked(held.client_sizes, mask_ratio)
  keeps = assignment.turns(owners) >= hidden[owners]
  return dataclasses.replace(
    held, labelled_indices=np.sort(held.examples[shuffled[keeps]])
  )


def keep_known(
  held: assignment.Assignment, labels: np.ndarray
) -> assignment.Assignment:
  """Lists as `labelled_indices` the clients' examples that have a label."""
  examples = np.unique(held.examples)
  known = examples[labels[examples] != UNKNOWN]
  if not len(known):
    raise ValueError(
      f"none of the clients' {len(examples):,} examples has a label: add "
      'labels to the training images, or choose a process that needs none at '
      'the clients.'
    )
  return dataclasses.replace(held, labelled_indices=known)


def check_all_known(name: str, labels: np.ndarray, mask_ratio: float) -> None:
  """Checks that the clients know all their labels, as a mask requires."""
  unknown = np.count_nonzero(labels == UNKNOWN)
  if unknown:
    raise ValueError(
      f'mask_ratio={mask_ratio} hides a share of the labels, but {unknown:,} '
      f"of the clients' images in source {name!r} have no label: give "
      '--mask_ratio=0 to train on the known labels.'
    )
