"""`--process=recommended`: the process that we recommend for the data at hand.

What decides is where the labels are. Some flags and data sets tell it; of a
user's own data, only the labels themselves do, which are read elsewhere.
"""

from collections.abc import Mapping
from typing import NamedTuple

from datasets.partition import client_labels, native_partition
from experiments.config import catalogue
from tff_ssl.algorithms import recommendation
from tff_ssl.common import user_modules

NAME = 'recommended'
# Where whoever gives one of these says that the labels are.
_SAID = {
  client_labels.LABELLED_FRACTION.name: 'clients',
  client_labels.MASK_RATIO.name: 'clients',
  'server_examples': 'server',
  native_partition.SERVER_WRITERS.name: 'server',
}
# Where the comparisons stand from which a recommendation follows.
_PAGES = {
  'server': 'results/gain.md',
  'clients': 'results/leaderboard.md',
  'all_clients': 'docs/how_to/choose_method.md',
  'sets': 'results/fedul.md',
}
# Of a user's own data, the likeliest first.
_OF_USERS = ('clients', 'all_clients', 'server', 'server_and_clients')


class Found(NamedTuple):
  """Where labels are (`recommendation.recommend`), and how that is known."""

  labels_at: str
  told: str


class Candidate(NamedTuple):
  """A process that may be recommended, and what was chosen and why."""

  process: str
  sentences: str


def candidates(
  given: Mapping[str, object], found: Found | None = None
) -> list[Candidate]:
  """Returns the processes that may take the place of `recommended`.

  Returns:
    Several, the likeliest first, where only the labels tell, and they have not
    been read.
  """
  found = found or _said(given)
  if found is not None:
    chosen = recommendation.recommend(found.labels_at)
    reason = chosen.reason
    if page := _PAGES.get(found.labels_at):
      reason = f'{reason.removesuffix(".")} ({page}).'
    if found.labels_at in ('server', 'clients'):
      reason += ' See for yourself: --with_lower_bound.'
    return [
      Candidate(
        chosen.process,
        f'Recommended here: --process={chosen.process}. {found.told}: '
        f'{chosen.labels}. {reason}',
      )
    ]
  names = [recommendation.recommend(place).process for place in _OF_USERS]
  text = (
    f'--process={NAME} is one of {", ".join(names)}, by where the labels are '
    'once the data are read; these are the flags of '
  )
  return [Candidate(name, f'{text}{name}.') for name in names]


def is_same(process: str, other: object) -> bool:
  """Returns whether a process is another one, or what `recommended` becomes."""
  return process == other or (
    other == NAME
    and process in {r.process for r in recommendation.RECOMMENDATIONS.values()}
  )


def _said(given) -> Found | None:
  """Returns where flags and data set say that labels are, if they do."""
  source = catalogue.find('dataset', given['dataset'])
  if source.has_sets:
    return Found('sets', f'With --dataset={source.name}')
  partition = given.get('partition')
  if partition and catalogue.find('partition', partition).in_sets:
    return Found('sets', f'With --partition={partition}')
  for name, place in _SAID.items():
    if given.get(name):  # Of none, it says nothing.
      return Found(place, f'With --{name}={given[name]}')
  if source.is_of_user or user_modules.is_reference(given['dataset']):
    return None
  return Found('server', 'With no flag that gives clients labels')
