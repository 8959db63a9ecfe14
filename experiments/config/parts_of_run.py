"""The parts that the flags of a run choose, and the settings of each.

A flag chooses the process, another one the data set, and so on for partition,
optimizer and schedule. Each choice brings settings that others do not have.
With the settings that every run has, these are all that a run can be given.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from datasets.partition import partitions
from datasets.partition.partition_spec import PartitionSpec
from datasets.partition.resplit import SPLIT
from datasets.sources import catalogue
from datasets.sources.source_spec import SourceSpec
from experiments.config import cohort_settings, computing_settings, run_settings
from experiments.config.usage import UsageError, check_name
from experiments.parts import (
  aggregators,
  networks,
  optimizers,
  schedules,
  views,
)
from experiments.parts.part import Part
from tff_ssl import algorithms
from tff_ssl.algorithms import ProcessSpec
from tff_ssl.common import user_modules
from tff_ssl.common.setting import Scope, Setting
from tff_ssl.models import ENCODERS, MODELS

# The settings that every run may have, by the heading of the help text.
COMMON: Mapping[str, tuple[Setting, ...]] = {
  'data': (
    *run_settings.CHOSEN,
    SPLIT,
    *run_settings.PLACES,
  ),
  'partition': (run_settings.PARTITION, *partitions.SETTINGS),
  'process': networks.SETTINGS,
  'augmentation': views.SETTINGS,
  'client training': (*optimizers.SETTINGS, *schedules.SETTINGS),
  'server training': optimizers.SERVER_SETTINGS,
  'taking part': cohort_settings.SETTINGS,
  'aggregation': aggregators.SETTINGS,
  'run': (
    *run_settings.SCHEDULE,
    *run_settings.RECIPE,
    *computing_settings.SETTINGS,
    *run_settings.ACTIONS,
  ),
}


# absl's own flags, and what `settings.make` adds to the values.
_NO_NAMES = (
  *('effective', 'flagfile', 'labels_decide', 'origins', 'parts'),
  *('recommendation', 'undefok', 'used'),
)
# The names of processes and data sets are parts of folders' names.
_FOLDER_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]*')


class Offer(NamedTuple):
  """The settings of one alternative, such as one process.

  Attributes:
    flag: Name of the flag that chooses among the alternatives.
    name: Its value.
    settings: What comes with it.
    heading: Of the help text.
  """

  flag: str
  name: str
  settings: tuple[Setting, ...]
  heading: str


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a run is put together from.

  Attributes:
    process: The entry of the process, over its base process where it has one.
    source: That of the data set.
    partition: That of the partition.
    optimizer: The clients' optimizer.
    schedule: The schedule of the learning rate.
    aggregator: How the clients' model deltas meet.
  """

  process: ProcessSpec
  source: SourceSpec
  partition: PartitionSpec
  optimizer: Part
  schedule: Part
  aggregator: Part

  @property
  def offers(self) -> tuple[Offer, ...]:
    """The settings that come with each of them."""
    return (
      of_process(self.process),
      of_source(self.source),
      of_partition(self.partition),
      Offer(
        'client_optimizer',
        self.optimizer.name,
        self.optimizer.settings,
        'client training',
      ),
      Offer(
        'schedule',
        self.schedule.name,
        self.schedule.settings,
        'client training',
      ),
      Offer(
        'aggregator',
        self.aggregator.name,
        self.aggregator.settings,
        'aggregation',
      ),
    )

  @functools.cached_property
  def settings(self) -> Mapping[str, Setting]:
    """The settings of the run, by name.

    Where an alternative has a setting that every run may have, its record
    counts.
    """
    common = {s.name: s for group in COMMON.values() for s in group}
    return common | {s.name: s for o in self.offers for s in o.settings}

  def context(self, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the conditions of settings (`used_when`) look at.

    Args:
      values: The values of settings, by name.

    Returns:
      These, and facts of the process, the data set and the partition.
    """
    process = self.process
    facts = {
      field.name: getattr(process, field.name)
      for field in dataclasses.fields(process)
      if field.type in ('bool', 'str', bool, str)
    }
    is_native = self.partition.needs_client_ids
    return {
      **facts,
      **values,
      'process': process.name,
      'may_lack_labels': self.source.may_lack_labels,
      'form': self.source.form,
      'has_tested_clients': self.partition.deals_test
      or (is_native and self.source.has_native_split),
      'can_be_central': (
        {'client_momentum', 'local_epochs'} <= set(process.setting_names)
        and not process.has_server_training
        and process.labels_at == 'clients'
      ),
    }


def find_process(name: str) -> ProcessSpec:
  """Returns the entry of a process, without its base process.

  Args:
    name: Of the registry, or 'module:SPEC'.

  Raises:
    UsageError: If there is none, or a user's own has a name that cannot be
      used.
  """
  return _found('process', name, algorithms.find, algorithms.PROCESSES)


def find_source(name: str) -> SourceSpec:
  """Returns the entry of a data set; see `find_process`."""
  return _found('dataset', name, catalogue.find, catalogue.SOURCES)


def find_partition(name: str) -> PartitionSpec:
  """Returns the entry of a partition; see `find_process`."""
  return _found('partition', name, partitions.find, partitions.PARTITIONS)


def find_schedule(name: str) -> Part:
  """Returns a schedule of the learning rate; see `find_process`."""
  check_name('schedule', name, schedules.SCHEDULES)
  return schedules.SCHEDULES[name]


def partitions_in_sets(needs_sets: bool) -> list[str]:
  """Returns the names of the partitions that lay examples in sets.

  Args:
    needs_sets: Whether of data that come in sets, or of all others.
  """
  return [
    spec.name
    for spec in partitions.PARTITIONS.values()
    if spec.in_sets and spec.needs_sets == needs_sets
  ]


def networks_for(process: ProcessSpec, source: SourceSpec) -> list[str]:
  """Returns the names of the networks that a process can train on a data set.

  Args:
    process: The entry of the process, which may need an encoder.
    source: That of the data set.
  """
  networks = ENCODERS if process.needs_encoder else {**MODELS, **ENCODERS}
  return [name for name, spec in networks.items() if source.form in spec.forms]


def check_model(name: str) -> None:
  """Raises `UsageError` if there is no such network."""
  if user_modules.is_reference(name):
    _loaded(functools.partial(user_modules.load, 'model'), name)
  else:
    check_name('model', name, {**MODELS, **ENCODERS})


def _found(
  flag: str, name: str, find: Callable[[str], Any], known: Mapping[str, Any]
) -> Any:
  """Returns what a flag names: an entry of a registry, or a user's own.

  Args:
    flag: The flag.
    name: Its value.
    find: Finds the entry.
    known: The registry.

  Raises:
    UsageError: If there is none, or a user's own has a name that cannot be
      used.
  """
  if not user_modules.is_reference(name):
    check_name(flag, name, known)
    return find(name)
  entry = _loaded(find, name)
  given = f'--{flag}={name}: its name {entry.name!r}'
  if not _FOLDER_NAME.fullmatch(str(entry.name)):
    raise UsageError(
      f"{given} cannot be a part of a folder's name: write it with letters, "
      'digits, "_", "-" and ".", a letter or digit first.'
    )
  if entry.name in known:
    raise UsageError(
      f'{given} is that of --{flag}={entry.name}, which comes with the '
      'project: give it another.'
    )
  return entry


def _loaded(find: Callable[[str], Any], name: str) -> Any:
  """Returns what is found of a user's own."""
  try:
    return find(name)
  except ValueError as error:
    raise UsageError(f'--{error}') from error


def offers_of_user(given: Mapping[str, Any]) -> list[Offer]:
  """Returns the settings of those parts of a run that are its user's own.

  Args:
    given: Flags by name.

  Raises:
    UsageError: If such a part cannot be had, or has a setting that cannot be a
      flag.
  """
  offers: list[Offer] = []
  for flag, (find, offer_of) in OF_USERS.items():
    name = given.get(flag, '')
    if user_modules.is_reference(name):
      offer = offer_of(find(name))
      _check_own_settings(f'--{flag}={name}', offer, offers)
      offers.append(offer)
  return offers


def _check_own_settings(given: str, offer: Offer, others: list[Offer]) -> None:
  """Refuses settings of a user's part that would be taken for others.

  Args:
    given: The flag that names the part, with its value.
    offer: What comes with it.
    others: What comes with the user's other parts.
  """
  of_every_run = {s.name: s for group in COMMON.values() for s in group}
  # Of the same kind in several processes, such as batch_size.
  shared = {s.name: s for o in (*others, *alternatives()) for s in o.settings}
  # What each flag, under whichever name, sets.
  taken = {
    text: setting.name
    for setting in (of_every_run | shared).values()
    for text in (setting.name, *setting.aliases)
  }
  seen = set()
  for setting in offer.settings:
    if not isinstance(setting, Setting):
      raise UsageError(
        f'{given}: its settings hold {setting!r}, which is no Setting: correct '
        'that.'
      )
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
  """Refuses names and aliases that are no flags, or those of others.

  Args:
    given: The flag that names a user's part, with its value.
    setting: One of its settings.
    taken: What each flag that there is sets, under whichever of its names.
  """
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


def of_process(spec: ProcessSpec) -> Offer:
  """Returns the settings that come with a process."""
  return Offer('process', spec.name, spec.settings, 'process')


def of_source(spec: SourceSpec) -> Offer:
  """Returns the settings that come with a data set."""
  return Offer('dataset', spec.name, spec.settings, 'data')


def of_partition(spec: PartitionSpec) -> Offer:
  """Returns the settings that come with a partition."""
  return Offer('partition', spec.name, spec.settings, 'partition')


# Parts that may be a user's own: how each is found, and its settings.
OF_USERS = {
  'process': (find_process, of_process),
  'dataset': (find_source, of_source),
  'partition': (find_partition, of_partition),
}


@functools.cache
def alternatives() -> tuple[Offer, ...]:
  """Returns the settings of all alternatives of the registries."""
  return (
    *map(of_process, algorithms.PROCESSES.values()),
    *map(of_source, catalogue.SOURCES.values()),
    *map(of_partition, partitions.PARTITIONS.values()),
    *(
      Offer('client_optimizer', p.name, p.settings, 'client training')
      for p in optimizers.OPTIMIZERS.values()
    ),
    *(
      Offer('schedule', p.name, p.settings, 'client training')
      for p in schedules.SCHEDULES.values()
    ),
    *(
      Offer('aggregator', p.name, p.settings, 'aggregation')
      for p in aggregators.AGGREGATORS.values()
    ),
  )


@functools.cache
def offers_of(name: str) -> tuple[Offer, ...]:
  """Returns those alternatives of the registries that have a setting.

  Args:
    name: The name of the setting.
  """
  return tuple(
    offer
    for offer in alternatives()
    if any(setting.name == name for setting in offer.settings)
  )


def by_heading(
  more: Iterable[Offer] = (),
) -> dict[str, dict[str, Setting]]:
  """Returns all settings by heading and name, each once.

  Args:
    more: Settings of a user's own alternatives.
  """
  headings: dict[str, dict[str, Setting]] = {name: {} for name in COMMON}
  seen = set()
  groups = [
    *((heading, settings) for heading, settings in COMMON.items()),
    *((o.heading, o.settings) for o in (*alternatives(), *more)),
  ]
  for heading, settings in groups:
    for setting in settings:
      if setting.name not in seen:
        seen.add(setting.name)
        under = headings.setdefault(setting.group or heading, {})
        under[setting.name] = setting
  return headings


def all_settings(more: Iterable[Offer] = ()) -> dict[str, Setting]:
  """Returns all settings by name; see `by_heading`."""
  return {
    name: setting
    for settings in by_heading(more).values()
    for name, setting in settings.items()
  }


def headings_of(parts: Parts) -> dict[str, list[Setting]]:
  """Returns the settings of a run by heading.

  Args:
    parts: The parts of the run.
  """
  headings: dict[str, list[Setting]] = {name: [] for name in COMMON}
  own = {s.name: o.heading for o in parts.offers for s in o.settings}
  common = {s.name: name for name, group in COMMON.items() for s in group}
  for name, setting in parts.settings.items():
    heading = setting.group or own.get(name) or common[name]
    headings.setdefault(heading, []).append(setting)
  return headings


def phases_of(used: Mapping[str, Any]) -> list[tuple[str, int]]:
  """Returns the phases of a run: what its first rounds are for, and how many.

  Args:
    used: The flags that the run uses, by name.

  Raises:
    UsageError: If a part of the user's own cannot be had.
  """
  phases = [
    (setting.phase, used[name])
    for name, setting in all_settings(offers_of_user(used)).items()
    if setting.phase and used.get(name)
  ]
  return sorted(phases, key=lambda phase: phase[1])
