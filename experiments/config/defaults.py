"""The values of a run where a flag is not given.

Later values replace earlier ones: those of the records and of the builders,
those of the data set, those of the process, and what partition, optimizer and
schedule impose. They make a first run show the point of a method on a small
machine. The papers' own values are those of the recipes: 16 steps of 64 images
are half an epoch for a client with 2,283 images, but 13 epochs for a writer
with 76, who then fits his own pseudo-labels.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from experiments.config import parts_of_run
from experiments.config.parts_of_run import Parts
from experiments.config.usage import check_name
from experiments.parts.optimizers import OPTIMIZERS
from experiments.parts.schedules import SCHEDULES
from tff_ssl.setting import Setting

_DATA_DIR = 'TFF_SSL_DATA_DIR'

# The momentum of the one client goes on, and a round is an epoch.
_CENTRAL = {
  'partition': 'pooled',
  'local_epochs': 1,
  'client_momentum': 'slot',
  'rounds_per_evaluation': 1,
}


def displaced(
  given: Collection[str], settings: Mapping[str, Setting]
) -> set[str]:
  """Returns the names of the settings whose place the given ones take.

  Args:
    given: Names of settings.
    settings: The records by name.
  """
  taken = {settings[name].instead_of for name in given if name in settings}
  return {name for name in taken if name and name not in given}


class _Layers:
  """Values by name, with where each comes from."""

  def __init__(self, settings: Mapping[str, Setting]):
    self.values: dict[str, Any] = {}
    self.origins: dict[str, str] = {}
    self._settings = settings

  def put(self, origin: str, layer: Mapping[str, Any]) -> None:
    """Puts values over those that there are; `None` takes a value away."""
    for name in displaced(layer, self._settings):
      self.values.pop(name, None)
    for name, value in layer.items():
      self.values[name] = value
      self.origins[name] = origin
      if value is None:
        del self.values[name]

  def put_below(self, origin: str, layer: Mapping[str, Any]) -> None:
    """Adds those values whose settings have none yet."""
    self.put(origin, {k: v for k, v in layer.items() if k not in self.values})


class Resolved(NamedTuple):
  """A run's settings before they are checked.

  Attributes:
    values: All settings that have a value, also those without an effect.
    origins: Where each value comes from, in a word or two.
    parts: The parts of the run.
  """

  values: dict[str, Any]
  origins: dict[str, str]
  parts: Parts


def with_environment(given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what was given, and what the environment says beside it.

  Args:
    given: Flags by name.
  """
  folder = os.environ.get(_DATA_DIR)
  return {**({'data_dir': folder} if folder else {}), **given}


def resolve(given: Mapping[str, Any]) -> Resolved:
  """Fills in what was not given.

  Args:
    given: Flags by name; `process` and `dataset` are among them.

  Raises:
    UsageError: If a part is unknown.
  """
  process = parts_of_run.find_process(given['process'])
  source = parts_of_run.find_source(given['dataset'])
  layers = _Layers(
    parts_of_run.all_settings(parts_of_run.offers_of_user(given))
  )
  for group in (*parts_of_run.COMMON.values(), source.settings):
    layers.put('default', _of_records(group))
  layers.put('algorithm', _of_builder(process))
  layers.put('data set', _called(source.defaults, given))
  layers.put('process', _called(process.defaults, given))
  if given.get('setting') == 'central':
    layers.put('--setting', _CENTRAL)
  partition = _partition(process, given, layers)
  optimizer = _part(OPTIMIZERS, 'client_optimizer', given, layers)
  schedule = _part(SCHEDULES, 'schedule', given, layers)
  if process.derive is not None:
    layers.put('process', process.derive(layers.values, given))
  layers.put('your flag', given)
  if layers.values.get('data_dir') == os.environ.get(_DATA_DIR):
    layers.origins['data_dir'] = _DATA_DIR
  values = layers.values
  if process.bases:
    check_name('base_process', values['base_process'], process.bases)
    process = process.over(values['base_process'])
  parts = Parts(process, source, partition, optimizer, schedule)
  for setting in parts.settings.values():
    if setting.like in values:
      layers.put_below(
        f'--{setting.like}', {setting.name: values[setting.like]}
      )
  name = f'runs/{process.name}_{source.name}_seed{values["seed"]}'
  layers.put_below('default', {'run_dir': name})
  return Resolved(values, layers.origins, parts)


def _partition(process, given, layers):
  """Chooses the partition, and puts what it imposes."""
  if process.labels_at == 'sets' and layers.values['partition'] != 'own_sets':
    layers.put('process', {'partition': 'u_sets'})
  partition = parts_of_run.find_partition(
    given.get('partition', layers.values['partition'])
  )
  layers.put_below('partition', _of_records(partition.settings))
  if partition.overrides is not None:
    layers.put('partition', partition.overrides(layers.values, given))
  return partition


def _part(table, flag, given, layers):
  """Chooses an optimizer or a schedule, and puts what it imposes."""
  name = given.get(flag, layers.values[flag])
  check_name(flag, name, table)
  part = table[name]
  layers.put_below('default', _of_records(part.settings))
  layers.put(f'--{flag}', part.overrides)
  return part


def _of_builder(process) -> dict[str, Any]:
  """Returns the defaults of a process's builder."""
  values = {}
  for setting in process.settings:
    value = process.default_of(setting.name)
    value = setting.default if value is None else value
    if value is not None:
      values[setting.name] = value
  return values


def _of_records(settings) -> dict[str, Any]:
  return {s.name: s.default for s in settings if s.default is not None}


def _called(defaults: Mapping | Callable, given) -> Mapping[str, Any]:
  return defaults(given) if callable(defaults) else defaults
