"""Which process we recommend, by where the labels are.

What stands here follows from the project's own comparisons, which each entry
names, and changes with them. It is not the verdict of a paper.
"""

import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Recommendation:
  """A process for one kind of data.

  Attributes:
    process: Its name in `tff_ssl.PROCESSES`.
    labels: Where the labels are, as the middle of a sentence.
    reason: Why this process, in one sentence.
  """

  process: str
  labels: str
  reason: str


RECOMMENDATIONS: Mapping[str, Recommendation] = types.MappingProxyType(
  {
    'server': Recommendation(
      'grouping_robust',
      'the server has all labels',
      'pseudo-labels of an averaged model that the server has just trained did '
      'not collapse, and on four of five data sets it was clearly above the '
      'server alone (results/gain.md). See for yourself: --with_lower_bound.',
    ),
    'clients': Recommendation(
      'fedavg_uda',
      'clients have a few labels of their own',
      'with 2% and with 20% of the labels no process that we compared is '
      'clearly above it (results/fedlabel.md).',
    ),
    'sets': Recommendation(
      'fedul',
      'nobody has labels, but class priors of sets are known',
      'it comes closest to training with labels (results/fedul.md).',
    ),
  }
)


def recommend(labels_at: str) -> Recommendation:
  """Returns the process that we recommend.

  Args:
    labels_at: 'server'; 'clients', each with labels of some of its examples; or
      'sets', whose class priors the clients know.

  Raises:
    ValueError: If `labels_at` is none of these.
  """
  if labels_at not in RECOMMENDATIONS:
    raise ValueError(
      f'labels_at={labels_at!r} must be one of {tuple(RECOMMENDATIONS)}.'
    )
  return RECOMMENDATIONS[labels_at]
