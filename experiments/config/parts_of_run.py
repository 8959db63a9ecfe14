"""What the flags of a run choose, and the settings that come with it.

A process, a data set, a partition, an optimizer and a schedule are each chosen
by a flag, and have settings that others do not have. Together with those of
every run they are all that a run may be given.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from datasets.partition import partitions
from datasets.partition.partition_spec import PartitionSpec
from datasets.sources import catalogue
from datasets.sources.source_spec import SourceSpec
from datasets.splits.resplit import SPLIT
from experiments.config import run_settings, worker_settings
from experiments.config.usage import UsageError, check_name
from experiments.parts import networks, optimizers, schedules, views
from experiments.parts.part import Part
from tff_ssl import algorithms, user_modules
from tff_ssl.algorithms import ProcessSpec
from tff_ssl.models import ENCODERS, MODELS
from tff_ssl.setting import Scope, Setting

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
  'run': (
    *run_settings.SCHEDULE,
    *run_settings.RECIPE,
    *worker_settings.SETTINGS,
    *run_settings.ACTIONS,
  ),
}


# absl's own flags, and what `settings.make` adds to the values.
_NO_NAMES = ('flagfile', 'h', 'help', 'parts', 'undefok', 'used')


class Offer(NamedTuple):
  """Settings that one alternative has.

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
  """

  process: ProcessSpec
  source: SourceSpec
  partition: PartitionSpec
  optimizer: Part
  schedule: Part

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
    """Returns what the conditions of settings are asked with.

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
    UsageError: If there is none.
  """
  if not user_modules.is_reference(name):
    check_name('process', name, algorithms.PROCESSES)
  return _found(algorithms.find, name)


def find_source(name: str) -> SourceSpec:
  """Returns the entry of a data set; see `find_process`."""
  if not user_modules.is_reference(name):
    check_name('dataset', name, catalogue.SOURCES)
  return _found(catalogue.find, name)


def find_partition(name: str) -> PartitionSpec:
  """Returns the entry of a partition; see `find_process`."""
  if not user_modules.is_reference(name):
    check_name('partition', name, partitions.PARTITIONS)
  return _found(partitions.find, name)


def check_model(name: str) -> None:
  """Raises `UsageError` if there is no such network."""
  if user_modules.is_reference(name):
    _found(functools.partial(user_modules.load, 'model'), name)
  else:
    check_name('model', name, {**MODELS, **ENCODERS})


def _found(find, name):
  try:
    return find(name)
  except ValueError as error:
    raise UsageError(f'--{error}') from error


def offers_of_user(given: Mapping[str, Any]) -> list[Offer]:
  """Returns the settings of the parts that a run has from its user.

  Args:
    given: Flags by name.

  Raises:
    UsageError: If such a part cannot be had, or has a setting that cannot be a
      flag.
  """
  offers = []
  for flag, (find, offer_of) in OF_USERS.items():
    name = given.get(flag, '')
    if user_modules.is_reference(name):
      offer = offer_of(find(name))
      _check_own_settings(f'--{flag}={name}', offer)
      offers.append(offer)
  return offers


def _check_own_settings(given: str, offer: Offer) -> None:
  """Refuses settings of a user's part that would be taken for others."""
  of_every_run = {s.name: s for group in COMMON.values() for s in group}
  # Of the same kind in several processes, such as batch_size.
  shared = {s.name: s for o in alternatives() for s in o.settings}
  for setting in offer.settings:
    name = setting.name
    if not name.isidentifier() or name in _NO_NAMES:
      raise UsageError(
        f'{given}: a setting cannot be called {name!r}: give it another name.'
      )
    if name in of_every_run and name not in shared:
      raise UsageError(
        f'{given}: its setting {name} is called like one of every run: rename '
        'it.'
      )
    if name in shared and setting.type is not shared[name].type:
      raise UsageError(
        f'{given}: its setting {name} is of the type {setting.type.__name__}, '
        f'and --{name} is of the type {shared[name].type.__name__}: rename it.'
      )
    if setting.scope is not Scope.MODEL:
      raise UsageError(
        f'{given}: its setting {name} has the scope {setting.scope.name}, but '
        'those of a process, a data set and a partition change the model: '
        'leave the scope out.'
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


# What a user may bring: how it is found, and the settings that come with it.
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
  )


@functools.cache
def offers_of(name: str) -> tuple[Offer, ...]:
  """Returns those alternatives of the registries that have a setting.

  Args:
    name: Of the setting.
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
