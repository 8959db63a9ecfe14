"""Finished runs as tables: groups that differ by seed, and what was published.

Every figure is read from the runs' summary.json.
"""

import dataclasses
import json
import pathlib
import shlex
from collections.abc import Sequence

import pandas as pd

from experiments import child_runs, seeds
from experiments import settings as settings_lib
from experiments.flags import UsageError

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
  's per round': 'seconds_per_round',
}

# Flags that tell where a run lay.
_PLACES = frozenset({'run_dir', 'cache_dir', 'data_dir'})


@dataclasses.dataclass(frozen=True)
class Group:
  """Runs that differ by seed only.

  Attributes:
    name: Row of the recipe, or process and the flags that tell it from others.
    folders: The run folders, by seed.
    summaries: Their summary.json, likewise.
  """

  name: str
  folders: tuple[pathlib.Path, ...]
  summaries: tuple[dict, ...]

  @property
  def command(self) -> str:
    """The command line that makes these runs."""
    flags = {
      name: value
      for name, value in self.summaries[0]['flags'].items()
      if name not in _PLACES | {'seed'}
    }
    numbers = [str(summary['seed']) for summary in self.summaries]
    flags['seed' if len(numbers) == 1 else 'seeds'] = ','.join(numbers)
    return 'python -m experiments.run ' + ' '.join(
      f'--{name}={shlex.quote(str(value))}' for name, value in flags.items()
    )


def read_groups(run_dirs: Sequence[pathlib.Path]) -> list[Group]:
  """Reads finished runs and puts those together that differ by seed only.

  Args:
    run_dirs: Their folders.

  Returns:
    The groups, in the order of their first runs.

  Raises:
    UsageError: If a folder holds no finished run, or two have the same seed and
      settings.
  """
  members = {}
  for folder in run_dirs:
    summary = child_runs.read_summary(folder)
    if summary is None:
      raise UsageError(
        f'{folder} holds no finished run (no summary.json): name the --run_dir '
        'of a run that has ended.'
      )
    members.setdefault(_key(summary), []).append((folder, summary))
  names = _names([runs[0][1] for runs in members.values()])
  groups = []
  for name, runs in zip(names, members.values(), strict=True):
    runs.sort(key=lambda run: run[1]['seed'])
    for (folder, one), (other, two) in zip(runs, runs[1:], strict=False):
      if one['seed'] == two['seed']:
        raise UsageError(
          f'{folder} and {other} hold the same run (seed {one["seed"]}): name '
          'one of them.'
        )
    groups.append(Group(name, *map(tuple, zip(*runs, strict=True))))
  return groups


def _identity(summary) -> dict[str, object]:
  """Returns the flags that make a run what it is, without its seed."""
  left_out = settings_lib.FREE | {'seed'}
  return {k: v for k, v in summary['flags'].items() if k not in left_out}


def _key(summary) -> str:
  """Returns what the runs of a group have in common, as text."""
  facts = [summary['data'], summary['rounds'], _identity(summary)]
  return json.dumps(facts, sort_keys=True)


def _names(summaries) -> list[str]:
  """Names groups: row or process, and what sets one apart from namesakes."""
  stems = [
    summary.get('recipe', summary['process']).rpartition(':')[2]
    for summary in summaries
  ]
  facts = [
    _identity(summary) | {k: summary[k] for k in ('rounds', 'data')}
    for summary in summaries
  ]
  names = []
  for stem, own in zip(stems, facts, strict=True):
    namesakes = [
      other
      for other, other_stem in zip(facts, stems, strict=True)
      if other_stem == stem
    ]
    apart = [
      f'{fact}={own.get(fact)}'
      for fact in sorted(set().union(*namesakes))
      if any(other.get(fact) != own.get(fact) for other in namesakes)
    ]
    names.append(' '.join([stem, *apart]))
  return names


def of_groups(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the table of groups, a row each.

  Columns: `published` accuracy; `mean`, `std` (n - 1), `low` and `high` (95%
  bootstrap interval of the mean) of the final test accuracy over `n` seeds,
  the last three empty below three seeds; `difference` of mean and published,
  empty where the run is not its recipe; `rounds` and their share `scale` of the
  recipe's; `changed` settings; `data`, which names a subset.

  Args:
    groups: From `read_groups`.
  """
  rows = []
  for group in groups:
    first = group.summaries[0]
    ours = seeds.spread([summary['accuracy'] for summary in group.summaries])
    published, changed = first.get('published'), first.get('recipe_changes', [])
    rows.append(
      {
        'name': group.name,
        'published': published,
        **{k: getattr(ours, k) for k in ('mean', 'std', 'n', 'low', 'high')},
        'difference': ours.mean - published
        if published is not None and not changed
        else None,
        'rounds': first['rounds'],
        'scale': first['rounds'] / first['recipe_rounds']
        if 'recipe_rounds' in first
        else None,
        'changed': ' '.join(changed) or None,
        'data': first['data'],
      }
    )
  return pd.DataFrame(rows).round(4)


def of_runs(groups: Sequence[Group]) -> pd.DataFrame:
  """Returns the table of runs, a row each."""
  return pd.DataFrame(
    [
      {column: summary[key] for column, key in _RUN_COLUMNS.items()}
      for group in groups
      for summary in group.summaries
    ]
  ).round({'accuracy': 4, 'best accuracy': 4, 's per round': 2})


def as_text(table: pd.DataFrame) -> str:
  """Returns a table of groups for people: data below it, no empty columns."""
  shown = table.drop(columns='data').dropna(axis='columns', how='all')
  cells = shown.astype(object).where(shown.notna(), None)
  lines = [cells.to_markdown(index=False, missingval='')]
  for data, rows in table.groupby('data', sort=False):
    which = '' if len(rows) == len(table) else f' ({", ".join(rows["name"])})'
    lines.append(f'Data{which}: {data}.')
  return '\n\n'.join(lines)
