"""`--process=recommended`: the process that we recommend for the data at hand.

What decides is where the labels are, as far as the flags and the data set's
record tell before the data are read.
"""

from collections.abc import Mapping

from datasets.draws import label_masks
from experiments.config import parts_of_run
from tff_ssl.algorithms import recommendation

NAME = 'recommended'
# Whoever gives one of these says that clients have some labels.
_OF_CLIENTS = (
  label_masks.LABELLED_FRACTION.name,
  'mask_ratio',
)


def resolve(
  given: Mapping[str, object],
) -> tuple[Mapping[str, object], str | None]:
  """Puts the name of the process in the place of `recommended`.

  Args:
    given: The flags by name.

  Returns:
    The flags, and a sentence that says what was chosen and why; `None` where
    another process was asked for.

  Raises:
    UsageError: If the data set or the partition is unknown.
  """
  if given.get('process') != NAME:
    return given, None
  labels_at, told_by = _find_labels(given)
  chosen = recommendation.recommend(labels_at)
  return {**given, 'process': chosen.process}, (
    f'Recommended here: --process={chosen.process}. {told_by}, '
    f'{chosen.labels}: {chosen.reason}'
  )


def _find_labels(given) -> tuple[str, str]:
  """Returns where the labels are, and how that is known."""
  source = parts_of_run.find_source(given['dataset'])
  if source.has_sets:
    return 'sets', f'With --dataset={source.name}'
  partition = given.get('partition')
  if partition and parts_of_run.find_partition(partition).in_sets:
    return 'sets', f'With --partition={partition}'
  for name in _OF_CLIENTS:
    if name in given:
      return 'clients', f'With --{name}={given[name]}'
  return 'server', 'With no flag that gives clients labels'
