"""Groups of finished runs that differ only by seed, and their measure."""

import contextlib
import dataclasses
import json
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.artifacts import results
from experiments.config import settings as settings_lib
from experiments.config.command_line import UsageError
from experiments.tables import measures
from experiments.tables.recipes import Recipe

# Flags that name folders of a run.
_PLACES = frozenset({'run_dir', 'cache_dir', 'data_dir'})


@dataclasses.dataclass(frozen=True)
class Group:
  """Runs that differ only by seed, the number to read from them, and its like.

  Attributes:
    name: The row, with the flags that tell it from other groups of that row.
    folders, summaries: The run folders and their summary.json, by seed.
    row, run: Row and TABLE:ROW of the recipe; without a recipe, the process.
    recipe_rounds: Rounds of the whole recipe, if there is one.
    changed: Settings in which the runs differ from their recipe.
    note: What a reader of the row must know.
  """

  name: str
  folders: tuple[pathlib.Path, ...]
  summaries: tuple[dict, ...]
  row: str
  run: str
  measure: measures.Measure = measures.ACCURACY
  published: float | None = None
  recipe_rounds: int | None = None
  changed: tuple[str, ...] = ()
  note: str = ''

  @property
  def command(self) -> str:
    """The command line that repeats these runs."""
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

  @property
  def scale(self) -> float | None:
    """The runs' share of the recipe's rounds, if they have one."""
    if self.recipe_rounds is None:
      return None
    return self.summaries[0]['rounds'] / self.recipe_rounds

  def runs(self) -> Iterator[tuple[pathlib.Path, dict, str]]:
    """Yields the folder, the summary and the name of each run."""
    for folder, summary in zip(self.folders, self.summaries, strict=True):
      yield folder, summary, f'{self.name}, seed {summary["seed"]}'

  def by_seed(self) -> dict[int, float | None]:
    """Returns the measure's value for each seed, `None` where it has none."""
    return {
      summary['seed']: self.measure.of_run(
        folder,
        summary['flags'].get('pretraining_rounds', 0),
        self.scale or 1,
        results.idle_rounds(summary['flags']),
      )
      for folder, summary, _ in self.runs()
    }


def read_groups(run_dirs: Sequence[pathlib.Path]) -> list[Group]:
  """Groups finished runs that differ only by seed, in the order of the first.

  Their summaries say which measure to read.
  """
  members = {}
  for folder in run_dirs:
    summary = _summary(folder)
    run = summary.get('recipe', summary['process'])
    read = {
      'row': _row(run, summary),
      'run': run,
      'measure': measures.parse(summary.get('measure', '')),
      'published': summary.get('published'),
      'recipe_rounds': summary.get('recipe_rounds'),
      'changed': tuple(summary.get('recipe_changes', ())),
    }
    members.setdefault(_key(summary), []).append((folder, summary, read))
  return _groups(members.values())


def of_recipes(runs: Sequence[tuple[Recipe, pathlib.Path]]) -> list[Group]:
  """Groups finished runs by the rows of a table, which may share a folder."""
  members = {}
  for recipe, folder in runs:
    summary = _summary(folder)
    read = {
      'row': recipe.row,
      'run': recipe.run_name,
      'measure': recipe.measure,
      'published': recipe.published,
      'recipe_rounds': recipe.flags()['total_rounds'],
      'changed': tuple(summary.get('recipe_changes', ())),
      'note': recipe.note,
    }
    key = (recipe.name, _key(summary))
    members.setdefault(key, []).append((folder, summary, read))
  return _groups(members.values())


def by_run(groups: Sequence[Group]) -> list[Group]:
  """Returns a group for each run, however many rows read it, with all seeds."""
  members = {}
  for group in groups:
    first = group.summaries[0]
    read = {'row': _row(group.run, first), 'run': group.run}
    runs = members.setdefault((group.run, _key(first)), {})
    for folder, summary, _ in group.runs():
      runs[folder] = (folder, summary, read)
  return _groups([list(runs.values()) for runs in members.values()])


def _summary(folder) -> dict:
  summary = results.read(folder)
  if summary is None:
    raise UsageError(
      f'{folder} holds no finished run (no summary.json): name the --run_dir '
      'of a run that has ended.'
    )
  # Without a sound one, nothing is known of the version.
  with contextlib.suppress(
    *(OSError, ValueError, TypeError, LookupError, RecursionError)
  ):
    split = json.loads((pathlib.Path(folder) / 'split.json').read_bytes())
    # Some splits are drawn by the seed.
    version = re.sub(r'-seed\d+', '', split['source']['version'])
    summary['data_version'] = version
  return summary


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
  """Returns whether two summaries are of the same data, maybe read in two ways.

  Data of one title may be files that were changed between the runs. Their
  versions differ then, but so they do where settings of the data set differ,
  such as --text_length.
  """
  if one['data'] != other['data']:
    return False
  versions = {each.get('data_version') for each in (one, other)} - {None}
  return len(versions) < 2 or _options(one) != _options(other)


def _options(summary) -> dict[str, object]:
  """Returns the settings of the data set alone."""
  beginning = f'{summary.get("dataset")}_'
  return {k: v for k, v in summary['flags'].items() if k.startswith(beginning)}


def _row(run, summary) -> str:
  """Returns the row of a run TABLE:ROW, or its process."""
  # A process of the user's own is module:NAME, and has no row.
  return run if run == summary['process'] else run.rpartition(':')[2]


def _groups(members) -> list[Group]:
  """Makes groups of lists of a folder, its summary, and what to read there."""
  members = [sorted(runs, key=lambda run: run[1]['seed']) for runs in members]
  names = _names([runs[0][1:] for runs in members])
  groups = []
  for name, runs in zip(names, members, strict=True):
    for (folder, one, _), (other, two, _) in zip(runs, runs[1:], strict=False):
      if one['seed'] == two['seed']:
        raise UsageError(
          f'{folder} and {other} hold the same run (seed {one["seed"]}): name '
          'one of them.'
        )
    folders, summaries, read = zip(*runs, strict=True)
    groups.append(Group(name, folders, summaries, **read[0]))
  return groups


def _facts(summary) -> dict[str, object]:
  """Returns what the runs of a group have in common, their flags among it."""
  left_out = settings_lib.FREE | settings_lib.REPETITION
  flags = {k: v for k, v in summary['flags'].items() if k not in left_out}
  return flags | {k: summary.get(k) for k in ('rounds', 'data', 'data_version')}


def _key(summary) -> str:
  return json.dumps(_facts(summary), sort_keys=True)


def _names(firsts) -> list[str]:
  """Names groups by row, and by what sets one apart from its namesakes."""
  facts = [(read['row'], _facts(summary)) for summary, read in firsts]
  names = []
  for row, own in facts:
    namesakes = [other for other_row, other in facts if other_row == row]
    apart = [
      f'{fact}={own.get(fact)}'
      for fact in sorted(set().union(*namesakes))
      if any(other.get(fact) != own.get(fact) for other in namesakes)
    ]
    names.append(' '.join([row, *apart]))
  return names
