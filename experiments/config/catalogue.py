"""The catalogue: what each flag chooses, and all settings that a run can have.

A flag chooses the process, another one the data set, and so on for partition,
optimizer, schedule and aggregator: each among the `Choice`s of a registry. Each
choice brings settings that others do not have. With those that every run has,
these are all that a run can be given; `every_row` lists them.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from datasets.partition import label_folds, partitions
from datasets.partition.resplit import SPLIT
from datasets.sources import catalogue as sources
from experiments.config import run_settings
from experiments.config.command_line import UsageError
from experiments.parts import aggregators, optimizers, views
from tff_ssl import algorithms
from tff_ssl.common import user_modules
from tff_ssl.common.choice import Choice, Registry
from tff_ssl.common.setting import Scope, Setting

# By the flag that chooses, in the order in which a run is put together.
REGISTRIES: Mapping[str, Registry] = {
  registry.setting: registry
  for registry in (
    algorithms.PROCESSES,
    sources.SOURCES,
    partitions.PARTITIONS,
    optimizers.OPTIMIZERS,
    optimizers.SCHEDULES,
    aggregators.AGGREGATORS,
  )
}
# The headings of the help text under which their settings stand.
_HEADINGS = {
  'process': 'process',
  'dataset': 'data',
  'partition': 'partition',
  'client_optimizer': 'client training',
  'schedule': 'client training',
  'aggregator': 'aggregation',
}
# The settings that every run may have, by heading.
_COMMON: Mapping[str, tuple[Setting, ...]] = {
  'data': (
    *run_settings.CHOSEN,
    SPLIT,
    label_folds.FOLD,
    *run_settings.PLACES,
  ),
  'partition': (run_settings.PARTITION, *partitions.SETTINGS),
  'process': run_settings.NETWORK,
  'augmentation': views.SETTINGS,
  'client training': optimizers.SETTINGS,
  'server training': optimizers.SERVER_SETTINGS,
  'taking part': run_settings.TAKING_PART,
  'aggregation': aggregators.SETTINGS,
  'run': (
    *run_settings.SCHEDULE,
    *run_settings.RECIPE,
    *run_settings.COMPUTING,
    *run_settings.ACTIONS,
  ),
}

# absl's own flags, and what `settings.make` adds to the values.
_NO_NAMES = (
  *('chosen', 'defaults', 'effective', 'flagfile', 'labels_decide', 'origins'),
  *('recommendation', 'replaced', 'undefok', 'used'),
)
# The names of processes, data sets and rows are parts of folders' names.
FOLDER_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]*')


class Row(NamedTuple):
  """A setting, and the choice that brings it; without one, all runs have it."""

  setting: Setting
  heading: str
  flag: str | None = None
  choice: Choice | None = None


def _rows_of(flag: str, choice: Choice) -> list[Row]:
  heading = _HEADINGS[flag]
  return [
    Row(setting, setting.group or heading, flag, choice)
    for setting in choice.settings
  ]


COMMON: tuple[Row, ...] = tuple(
  Row(setting, setting.group or heading)
  for heading, settings in _COMMON.items()
  for setting in settings
)


@functools.cache
def every_row() -> tuple[Row, ...]:
  """Returns the settings of every run, and those of all choices."""
  return (
    *COMMON,
    *(
      row
      for flag, registry in REGISTRIES.items()
      for choice in registry.values()
      for row in _rows_of(flag, choice)
    ),
  )


def first_rows(given: Mapping[str, Any] | None = None) -> dict[str, Row]:
  """Returns each setting once, by name, in the order of the headings.

  The flags may name choices of the user's own. A `UsageError` says which of
  these cannot be had, or has a setting that cannot be a flag.
  """
  rows: dict[str, Row] = {}
  for row in (*every_row(), *_rows_of_user(given or {})):
    rows.setdefault(row.setting.name, row)
  return {
    row.setting.name: row
    for under in by_heading(rows.values()).values()
    for row in under
  }


def known(given: Mapping[str, Any] | None = None) -> dict[str, Setting]:
  """Returns all settings by name; see `first_rows`."""
  return {name: row.setting for name, row in first_rows(given).items()}


def of_run(chosen: Mapping[str, Choice]) -> dict[str, Row]:
  """Returns the settings of a run by name; those of its choices count more."""
  own = (row for item in chosen.items() for row in _rows_of(*item))
  return {row.setting.name: row for row in (*COMMON, *own)}


def by_heading(rows: Iterable[Row]) -> dict[str, list[Row]]:
  """Returns rows by heading, in the order of the help text."""
  headings: dict[str, list[Row]] = {heading: [] for heading in _COMMON}
  for row in rows:
    headings.setdefault(row.heading, []).append(row)
  return headings


def find(flag: str, name: str) -> Any:
  """Returns what a flag chooses: of its registry, or a user's own.

  A `UsageError` says that there is none, or that the user's own has a name that
  cannot be used.
  """
  registry = REGISTRIES[flag]
  try:
    choice = registry.find(name)
  except ValueError as error:
    raise UsageError(f'--{error}') from error
  if name in registry:
    return choice
  given = f'--{flag}={name}: its name {choice.name!r}'
  if not FOLDER_NAME.fullmatch(str(choice.name)):
    raise UsageError(
      f"{given} cannot be a part of a folder's name: write it with letters, "
      'digits, "_", "-" and ".", a letter or digit first.'
    )
  if choice.name in registry:
    raise UsageError(
      f'{given} is that of --{flag}={choice.name}, which comes with the '
      'project: give it another.'
    )
  return choice


def phases_of(used: Mapping[str, Any]) -> list[tuple[str, int]]:
  """Returns what the first rounds of a run are for, and how many they are."""
  phases = [
    (setting.phase, used[name])
    for name, setting in known(used).items()
    if setting.phase and used.get(name)
  ]
  return sorted(phases, key=lambda phase: phase[1])


def _rows_of_user(given: Mapping[str, Any]) -> list[Row]:
  """Returns the settings of those choices that are the user's own, checked."""
  rows: list[Row] = []
  for flag, registry in REGISTRIES.items():
    name = given.get(flag, '')
    if registry.kind is not None and user_modules.is_reference(name):
      choice = find(flag, name)
      for setting in choice.settings:
        if not isinstance(setting, Setting):
          raise UsageError(
            f'--{flag}={name}: its settings hold {setting!r}, which is no '
            'Setting: correct that.'
          )
      own = _rows_of(flag, choice)
      _check_settings(f'--{flag}={name}', own, rows)
      rows += own
  return rows


def _check_settings(given: str, own: list[Row], others: list[Row]) -> None:
  """Refuses settings of a user's choice that would be taken for others.

  Those are the settings of the project, and of the user's other choices.
  """
  of_every_run = {row.setting.name: row.setting for row in COMMON}
  # Of the same kind in several choices, such as batch_size.
  shared = {
    row.setting.name: row.setting
    for row in (*others, *every_row())
    if row.choice is not None
  }
  # What each flag, under whichever name, sets.
  taken = {
    text: setting.name
    for setting in (of_every_run | shared).values()
    for text in (setting.name, *setting.aliases)
  }
  seen = set()
  for setting in (row.setting for row in own):
    name = setting.name
    if name in seen:
      raise UsageError(
        f'{given}: it has two settings {name}: leave one of them out.'
      )
    seen.add(name)
    _check_own_names(given, setting, taken)
    if name in of_every_run and name not in shared:
      raise UsageError(
        f'{given}: its setting {name} is called like one of every run: rename '
        'it.'
      )
    if name in shared:
      _check_is_alike(given, setting, shared[name])
    if setting.scope is not Scope.MODEL:
      raise UsageError(
        f'{given}: its setting {name} has the scope {setting.scope.name}, but '
        'those of a process, a data set and a partition change the model: '
        'leave the scope out.'
      )
    taken |= dict.fromkeys((name, *setting.aliases), name)


def _check_own_names(
  given: str, setting: Setting, taken: Mapping[str, str]
) -> None:
  """Refuses names and aliases that are no flags, or those of others."""
  for text in (setting.name, *setting.aliases):
    if not str(text).isidentifier() or text in _NO_NAMES:
      raise UsageError(
        f'{given}: a setting cannot be called {text!r}: give it another name.'
      )
    owner = taken.get(text, setting.name)
    if owner != setting.name:
      what = 'name' if text == setting.name else f'alias {text}'
      other = 'the name' if text == owner else 'an alias'
      raise UsageError(
        f'{given}: the {what} of its setting {setting.name} is {other} of '
        f'--{owner}: choose another.'
      )


def _check_is_alike(given: str, setting: Setting, other: Setting) -> None:
  """Refuses a setting that shares a flag with another of a different kind."""
  name = setting.name
  if setting.type is not other.type:
    raise UsageError(
      f'{given}: its setting {name} is of the type {setting.type.__name__}, '
      f'and --{name} is of the type {other.type.__name__}: rename it.'
    )
  if more := sorted(set(setting.aliases) - set(other.aliases)):
    raise UsageError(
      f'{given}: its setting {name} has the alias {more[0]}, which --{name} '
      'of others has not: leave the alias out, or rename the setting.'
    )
