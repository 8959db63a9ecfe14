"""Which process we recommend, by where the labels are.

What stands here follows from the project's own comparisons, and changes with
them. It is not the verdict of a paper.
"""

import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Recommendation:
  """A process for one kind of data.

  Attributes:
    process: Its name in `tff_ssl.PROCESSES`.
    labels: Where the labels are, as the end of a sentence.
    reason: Why this process, in one sentence.
  """

  process: str
  labels: str
  reason: str


RECOMMENDATIONS: Mapping[str, Recommendation] = types.MappingProxyType(
  {
    'server': Recommendation(
      'grouping_robust',
      'labels are at the server',
      'Pseudo-labels of an averaged model that the server has just trained did '
      'not collapse, and on four of five data sets it was clearly above the '
      'server alone.',
    ),
    'clients': Recommendation(
      'fedavg_robust',
      'labels are at the clients',
      'Where clients held most classes, it was ahead of the labels alone with '
      'the same average over rounds; where each held few, it was not told '
      'apart from them.',
    ),
    'all_clients': Recommendation(
      'fedavg',
      'all labels are at the clients',
      'Nothing is unlabelled; where clients differ, compare it with fednova '
      'and scaffold.',
    ),
    'server_and_clients': Recommendation(
      'grouping_supervised',
      'all labels are at the server and at the clients',
      'It trains on both and, unlike data_sharing, hands no example on.',
    ),
    'sets': Recommendation(
      'fedul',
      'nobody has labels, but class priors of sets are known',
      'It comes closest to training with labels.',
    ),
  }
)


def recommend(labels_at: str) -> Recommendation:
  """Returns the process that we recommend.

  Args:
    labels_at: 'server'; 'clients', with labels of some of their examples;
      'all_clients', with labels of all of them; 'server_and_clients', the same
      beside labelled examples of the server; or 'sets', whose class priors the
      clients know.

  Raises:
    ValueError: If `labels_at` is none of these.
  """
  if labels_at not in RECOMMENDATIONS:
    raise ValueError(
      f'labels_at={labels_at!r} must be one of {tuple(RECOMMENDATIONS)}.'
    )
  return RECOMMENDATIONS[labels_at]
