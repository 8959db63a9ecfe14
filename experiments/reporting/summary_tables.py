"""Tables of finished runs, grouped over seeds, beside the published figures.

Every figure is read from the runs' summary.json and metrics.csv.
"""

import dataclasses
from collections.abc import Sequence

import pandas as pd

from experiments.config import command_line
from experiments.reporting import run_groups
from experiments.reporting.run_groups import Group
from experiments.tables import measures, seeds

# Columns of the table of runs -> key in summary.json.
_RUN_COLUMNS = {
  'process': 'process',
  'dataset': 'dataset',
  'model': 'model',
  'seed': 'seed',
  'clients': 'clients',
  'server labels': 'server_examples',
  'rounds': 'rounds',
  'accuracy': 'accuracy',
  'mean of last': 'mean_of_last',
  'best accuracy': 'best_accuracy',
  'macro F1': 'macro_f1',
  'balanced accuracy': 'balanced_accuracy',
  's per round': 'seconds_per_round',
  's per client': 'seconds_per_client',
  'bytes down': 'bytes_down_per_client',
  'bytes up': 'bytes_up_per_client',
  'forward passes': 'forward_passes_per_client',
  'backward passes': 'backward_passes_per_client',
}


def has_measures(groups: Sequence[Group]) -> bool:
  """Returns whether a group has a measure other than the final accuracy."""
  return any(group.measure != measures.ACCURACY for group in groups)


def of_groups(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the table of groups, a row each.

  Columns: `published` figure; `mean`, `std` (n - 1), `low` and `high` (95%
  interval of the mean by Student's t) of the measure over the `n` seeds that
  have a value, the last two empty below three of them; `difference` of mean and
  published, empty where the run is not its recipe or a seed has no value;
  `rounds` and their share `scale` of the recipe's; `changed` settings; `data`,
  which names a subset. Where any row has another measure than the final
  accuracy: `measure`, and `reached`, for numbers of rounds: how many of the
  seeds reached the accuracy.
  """
  measured = has_measures(groups)
  rows = []
  for group in groups:
    first = group.summaries[0]
    values = group.by_seed().values()
    found = [value for value in values if value is not None]
    ours = dataclasses.asdict(seeds.spread(found)) if found else {'n': 0}
    counts_rounds = group.measure.counts_rounds
    comparable = (
      group.published is not None
      and not group.changed
      and len(found) == len(values)
      # Rounds of a shortened run are not those in print.
      and (group.scale == 1 or not counts_rounds)
    )
    reached = f'{len(found)} of {len(values)}' if counts_rounds else None
    rows.append(
      {
        'name': group.name,
        **({'measure': str(group.measure)} if measured else {}),
        'published': group.published,
        **{k: ours.get(k) for k in ('mean', 'std', 'n', 'low', 'high')},
        **({'reached': reached} if measured else {}),
        'difference': ours['mean'] - group.published if comparable else None,
        'rounds': first['rounds'],
        'scale': group.scale,
        'changed': ' '.join(group.changed) or None,
        'data': first['data'],
      }
    )
  return pd.DataFrame(rows).round(4)


def of_seeds(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the measure's value in a column for each seed, a row per group."""
  rows = [
    {
      'name': group.name,
      'measure': str(group.measure),
      **{f'seed {seed}': value for seed, value in group.by_seed().items()},
    }
    for group in groups
  ]
  return pd.DataFrame(rows).round(4)


def of_runs(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the table of runs, a row each; costs are of a client in a round."""
  rows = [
    {
      'name': group.name,
      **{name: summary.get(key) for name, key in _RUN_COLUMNS.items()},
    }
    for group in groups
    for summary in group.summaries
  ]
  return pd.DataFrame(rows).round({'s per round': 2}).round(4)


def differences(groups: Sequence[Group], baseline: str) -> pd.DataFrame:
  """Returns the differences to a baseline, paired by seed, a row per group.

  Two runs with the same seed share split, partition and participating clients.
  So much of the variation between seeds cancels in their difference. Groups
  with another measure, other data or no common seed are left out. `ahead` is
  the mean of group minus baseline over the `n` seeds for which both have a
  value; the other columns are those of `seeds.Spread`.
  """
  by_name = {group.name: group for group in groups}
  command_line.check_name('against', baseline, by_name)
  base = by_name[baseline]
  theirs = pd.Series(base.by_seed(), dtype=float)
  rows = []
  for group in groups:
    differences = (pd.Series(group.by_seed(), dtype=float) - theirs).dropna()
    if group is base or differences.empty or not _are_comparable(group, base):
      continue
    spread = seeds.spread(differences, least_for_interval=2)
    rows.append({'name': group.name, 'ahead': spread.mean, **vars(spread)})
  columns = ['name', 'ahead', 'std', 'n', 'low', 'high']
  return pd.DataFrame(rows, columns=columns).round(4)


def _are_comparable(group, base) -> bool:
  return str(group.measure) == str(base.measure) and (
    run_groups.same_data(group.summaries[0], base.summaries[0])
  )


def differences_as_text(groups: Sequence[Group], baseline: str) -> str:
  """Returns the differences for people: a caption, and a table below it."""
  table = differences(groups, baseline)
  if table.empty:
    return f'No other row has data, measure and a seed of {baseline}.'
  return (
    f'Minus {baseline}, paired by seed, with the 95% interval of the mean by '
    f"Student's t:\n\n{as_markdown(table)}"
  )


def notes(groups: Sequence[Group]) -> list[str]:
  """Returns the notes on the rows, a paragraph per note."""
  rows = {}
  for group in groups:
    if group.note:
      rows.setdefault(group.note, []).append(group.name)
  return [
    f'{"All rows" if len(names) == len(groups) else ", ".join(names)}: {note}.'
    for note, names in rows.items()
  ]


def as_text(table: pd.DataFrame) -> str:
  """Returns the table `of_groups` to read, with the data described below it."""
  lines = [as_markdown(table.drop(columns='data'))]
  for data, rows in table.groupby('data', sort=False):
    which = '' if len(rows) == len(table) else f' ({", ".join(rows["name"])})'
    lines.append(f'Data{which}: {data}.')
  return '\n\n'.join(lines)


def as_markdown(table: pd.DataFrame, form: str = 'pipe') -> str:
  """Returns a table as Markdown, without its empty columns.

  It is LaTeX where `form` is a name that tabulate has for that.
  """
  shown = table.dropna(axis='columns', how='all')
  cells = shown.astype(object).where(shown.notna(), None)
  return cells.to_markdown(index=False, missingval='', tablefmt=form)
