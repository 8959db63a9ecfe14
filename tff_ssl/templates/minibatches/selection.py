"""Which of its examples a participant trains on."""

import collections
import dataclasses

import tensorflow as tf

from tff_ssl import checks
from tff_ssl.models import structures

_ROWS = ('all', 'labelled', 'unlabelled', 'either', 'sets')


@dataclasses.dataclass(frozen=True)
class Selection:
  """Which of its examples a participant trains on.

  Attributes:
    rows: 'all', 'labelled', 'unlabelled', or 'either': each minibatch is all
      labelled or all unlabelled, drawn at random (Hegde et al., Label Hungry?
      Not Anymore, the joint method). 'sets': each set of examples with the
      same `y` >= 0 is a minibatch, once per pass, in random order.
    labelled_probability: For 'either', the probability of a labelled minibatch;
      by default the labelled examples' share of all. Where there is but one
      kind of examples, minibatches are of that kind.
    redrawn_mask_ratio: If given, the share of labels that is hidden at random,
      others in every epoch: `min(int(ratio * n), n - 1)` of n, so that one is
      left. Every example must have a label then. An epoch is a pass; where all
      minibatches are full, it is as many of them as hold n examples.
  """

  rows: str = 'all'
  labelled_probability: float | None = None
  redrawn_mask_ratio: float | None = None

  def __post_init__(self):
    checks.choice(_ROWS, rows=self.rows)
    if self.labelled_probability is not None:
      checks.fractions(labelled_probability=self.labelled_probability)
      if self.rows != 'either':
        raise ValueError(
          f'labelled_probability={self.labelled_probability} does not fit '
          f"rows={self.rows!r}: only 'either' draws."
        )
    if self.redrawn_mask_ratio is not None:
      checks.fractions(redrawn_mask_ratio=self.redrawn_mask_ratio)
      if self.rows in ('all', 'sets'):
        raise ValueError(
          f'redrawn_mask_ratio={self.redrawn_mask_ratio} does not fit '
          f"rows={self.rows!r}, which hides no label: take 'labelled'."
        )

  def of(
    self, examples: collections.OrderedDict[str, tf.Tensor]
  ) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns those examples that some minibatch may hold."""
    if self.rows not in ('labelled', 'unlabelled'):
      return examples
    if self.redrawn_mask_ratio is not None:
      return examples
    wanted = examples['y'] >= 0
    if self.rows == 'unlabelled':
      wanted = ~wanted
    return gather(examples, tf.where(wanted)[:, 0])


def gather(
  examples: collections.OrderedDict[str, tf.Tensor], indices: tf.Tensor
) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns the examples with these indices, `int [n]`, as a batch."""
  return collections.OrderedDict(
    (key, structures.gather(value, indices)) for key, value in examples.items()
  )
