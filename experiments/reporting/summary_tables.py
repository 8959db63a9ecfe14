"""Tables of finished runs, grouped over seeds, beside the published figures.

Every figure is read from the runs' summary.json and metrics.csv.
"""

import dataclasses
from collections.abc import Sequence

import pandas as pd

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
  """Returns whether a group has a measure other than the final accuracy.

  Args:
    groups: From `run_groups`.
  """
  return any(group.reading.measure != measures.ACCURACY for group in groups)


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

  Args:
    groups: From `run_groups`.
  """
  measured = has_measures(groups)
  rows = []
  for group in groups:
    first, reading = group.summaries[0], group.reading
    values = group.values()
    found = [value for value in values if value is not None]
    ours = dataclasses.asdict(seeds.spread(found)) if found else {'n': 0}
    comparable = (
      reading.published is not None
      and not reading.changed
      and len(found) == len(values)
      # Rounds of a shortened run are not those in print.
      and (group.scale == 1 or not reading.measure.counts_rounds)
    )
    rows.append(
      {
        'name': group.name,
        **({'measure': str(reading.measure)} if measured else {}),
        'published': reading.published,
        **{k: ours.get(k) for k in ('mean', 'std', 'n', 'low', 'high')},
        **({'reached': _reached(reading, found, values)} if measured else {}),
        'difference': ours['mean'] - reading.published if comparable else None,
        'rounds': first['rounds'],
        'scale': group.scale,
        'changed': ' '.join(reading.changed) or None,
        'data': first['data'],
      }
    )
  return pd.DataFrame(rows).round(4)


def _reached(reading, found, values) -> str | None:
  if not reading.measure.counts_rounds:
    return None
  return f'{len(found)} of {len(values)}'


def of_seeds(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the measure's value for each seed, a row per group.

  Columns: `name`, `measure` and one per seed, empty where it has no value.

  Args:
    groups: From `run_groups`.
  """
  rows = []
  for group in groups:
    numbers = [f'seed {summary["seed"]}' for summary in group.summaries]
    rows.append(
      {
        'name': group.name,
        'measure': str(group.reading.measure),
        **dict(zip(numbers, group.values(), strict=True)),
      }
    )
  return pd.DataFrame(rows).round(4)


def of_runs(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the table of runs, a row each; costs are of a client in a round.

  A figure that a run's summary lacks, as those of older runs may, stays empty.

  Args:
    groups: From `run_groups.by_run`.
  """
  return pd.DataFrame(
    [
      {
        'name': group.name,
        **{name: summary.get(key) for name, key in _RUN_COLUMNS.items()},
      }
      for group in groups
      for summary in group.summaries
    ]
  ).round(
    {
      'accuracy': 4,
      'best accuracy': 4,
      'macro F1': 4,
      'balanced accuracy': 4,
      's per round': 2,
      's per client': 4,
    }
  )


def notes(groups: Sequence[Group]) -> list[str]:
  """Returns the notes on the rows, a paragraph per note.

  Args:
    groups: From `run_groups`.
  """
  rows = {}
  for group in groups:
    if group.reading.note:
      rows.setdefault(group.reading.note, []).append(group.name)
  return [
    f'{"All rows" if len(names) == len(groups) else ", ".join(names)}: {note}.'
    for note, names in rows.items()
  ]


def as_text(table: pd.DataFrame) -> str:
  """Returns a table of groups to read, with the data described below it.

  Args:
    table: From `of_groups`. Its empty columns are left out.
  """
  lines = [as_markdown(table.drop(columns='data'))]
  for data, rows in table.groupby('data', sort=False):
    which = '' if len(rows) == len(table) else f' ({", ".join(rows["name"])})'
    lines.append(f'Data{which}: {data}.')
  return '\n\n'.join(lines)


def as_markdown(table: pd.DataFrame) -> str:
  """Returns a table as Markdown, without its empty columns.

  Args:
    table: Any table.
  """
  shown = table.dropna(axis='columns', how='all')
  cells = shown.astype(object).where(shown.notna(), None)
  return cells.to_markdown(index=False, missingval='')
