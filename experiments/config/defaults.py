"""Fills in the settings that a user does not give.

There are layers of defaults, and a later layer replaces values of an earlier
one: records and builders; the data set; the process; and what the partition,
the optimizer, the schedule and the aggregator impose. With the defaults, a
first run shows the point of a method on a small machine. The papers' own values
are in the recipes, since they do not suit all data: 16 steps of 64 images are
half an epoch for a client with 2,283 images, but 13 epochs for a writer with
76, who then fits his own pseudo-labels.
"""

import difflib
import os
import re
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from experiments.config import own_functions, parts_of_run
from experiments.config.parts_of_run import Parts
from experiments.config.usage import UsageError, check_name
from experiments.parts.aggregators import AGGREGATORS
from experiments.parts.optimizers import OPTIMIZERS
from experiments.parts.schedules import SCHEDULES
from tff_ssl.common.setting import Setting
from tff_ssl.models import ENCODERS, MODELS

# The environment variable of the folder of data files.
DATA_DIR = 'TFF_SSL_DATA_DIR'
_GIVEN = 'your flag'
# The settings that always have a value.
_NEEDED = frozenset(
  setting.name
  for group in parts_of_run.COMMON.values()
  for setting in group
  if setting.default is not None
)
# The flag that names what a default comes from.
_FLAGS_OF_ORIGINS = {
  'algorithm': 'process',
  'process': 'process',
  'data set': 'dataset',
  'partition': 'partition',
}

# Of --setting=central. The momentum of the one client goes on, and a round is
# an epoch.
CENTRAL = {
  'partition': 'pooled',
  'local_epochs': 1,
  'client_momentum': 'slot',
  'rounds_per_evaluation': 1,
}


def displaced(
  given: Collection[str], settings: Mapping[str, Setting]
) -> set[str]:
  """Returns the names of the settings that the given ones replace.

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
    """Puts values over earlier ones; `None` removes an earlier value."""
    for name in displaced(layer, self._settings):
      self.values.pop(name, None)
    for name, value in layer.items():
      self.values[name] = value
      self.origins[name] = origin
      if value is None:
        del self.values[name]

  def put_below(self, origin: str, layer: Mapping[str, Any]) -> None:
    """Adds those values whose settings do not have one yet."""
    self.put(origin, {k: v for k, v in layer.items() if k not in self.values})

  def put_of_part(
    self,
    origin: str,
    part: str,
    attribute: str,
    layer: Mapping[str, Any] | Callable[..., Mapping[str, Any]],
    *arguments: Mapping[str, Any],
  ) -> None:
    """Puts values that a part of the run brings.

    Args:
      origin: Where they come from.
      part: The flag that names the part, with its value.
      attribute: What the part calls the values.
      layer: The values, or a function that returns them.
      *arguments: Those of the function.

    Raises:
      UsageError: If the function fails, there is no setting of some name, or
        every run needs a value that is taken away.
    """
    if callable(layer):
      with own_functions.refusals(part, attribute):
        layer = layer(*arguments)
    if not isinstance(layer, Mapping):
      raise UsageError(
        f'{part}: {attribute} gives {layer!r}: make it a mapping from names of '
        'settings to values.'
      )
    for name, value in layer.items():
      if value is None and name in _NEEDED:
        raise UsageError(
          f'{part}: {attribute} takes the value of {name} away, which every '
          'run needs: leave it out.'
        )
      if name not in self._settings:
        near = difflib.get_close_matches(str(name), self._settings, n=1)
        hint = f'did you mean {near[0]!r}?' if near else 'leave it out.'
        raise UsageError(
          f'{part}: {attribute} names {name!r}, which is no setting: {hint}'
        )
    self.put(origin, layer)


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
  """Returns the given flags, with those that environment variables give.

  Args:
    given: Flags by name.
  """
  folder = os.environ.get(DATA_DIR)
  return {**({'data_dir': folder} if folder else {}), **given}


def resolve(
  given: Mapping[str, Any],
  origins: Mapping[str, str] = types.MappingProxyType({}),
) -> Resolved:
  """Fills in what was not given.

  Args:
    given: Flags by name; `process` and `dataset` are among them.
    origins: Where those flags come from that the user did not write.

  Raises:
    UsageError: If a part is unknown, or what it brings cannot be used.
  """
  process = parts_of_run.find_process(given['process'])
  source = parts_of_run.find_source(given['dataset'])
  of_process = f'--process={given["process"]}'
  layers = _Layers(
    parts_of_run.all_settings(parts_of_run.offers_of_user(given))
  )
  for group in (*parts_of_run.COMMON.values(), source.settings):
    layers.put('default', _of_records(group))
  layers.put('algorithm', _of_builder(process))
  layers.put_of_part(
    'data set',
    f'--dataset={given["dataset"]}',
    'defaults',
    source.defaults,
    given,
  )
  layers.put_of_part('process', of_process, 'defaults', process.defaults, given)
  _fit_network(process, source, layers)
  if given.get('setting') == 'central':
    layers.put('--setting', CENTRAL)
  partition = _partition(process, given, layers)
  optimizer = _part(OPTIMIZERS, 'client_optimizer', given, layers)
  schedule = _part(SCHEDULES, 'schedule', given, layers)
  aggregator = _part(AGGREGATORS, 'aggregator', given, layers)
  if process.derive is not None:
    layers.put_of_part(
      'process', of_process, 'derive', process.derive, layers.values, given
    )
  clients, in_round = given.get('num_clients', 0), 'clients_per_round'
  if process.needs_all_clients and 'num_clients' in partition.setting_names:
    clients = clients or layers.values.get('num_clients', 0)
    fits = clients == layers.values[in_round]
  else:
    fits = clients >= layers.values[in_round]
  if clients > 0 and not fits:
    layers.put('--num_clients', {in_round: clients})
  layers.put(_GIVEN, given)
  layers.origins |= {k: v for k, v in origins.items() if k in given}
  if layers.values.get('data_dir') == os.environ.get(DATA_DIR):
    layers.origins['data_dir'] = DATA_DIR
  values = layers.values
  if process.bases:
    check_name('base_process', values['base_process'], process.bases)
    process = process.over(values['base_process'])
  parts = Parts(process, source, partition, optimizer, schedule, aggregator)
  for setting in parts.settings.values():
    if setting.like in values:
      layers.put_below(
        f'--{setting.like}', {setting.name: values[setting.like]}
      )
  name = f'{process.name}_{_name_of_data(source, values)}'
  layers.put_below('default', {'run_dir': f'runs/{name}_seed{values["seed"]}'})
  return Resolved(values, layers.origins, parts)


def _name_of_data(source, values) -> str:
  """Returns what the folder of a run says of its data."""
  if not source.is_of_user or 'data_dir' not in values:
    return source.name
  folder = os.path.basename(os.path.abspath(values['data_dir']))
  # What a flag file and a shell take as it is.
  return f'{source.name}_{re.sub(r"[^A-Za-z0-9_.-]", "_", folder)}'


def blamed(
  error: UsageError,
  name: str,
  values: Mapping[str, Any],
  origins: Mapping[str, str],
) -> UsageError:
  """Returns the refusal of a value, with where the value comes from.

  Args:
    error: Of the value.
    name: The setting.
    values: All values, by name.
    origins: Where each of them comes from.

  Returns:
    The same where the user gave the value.
  """
  origin = origins.get(name, _GIVEN)
  if origin in _FLAGS_OF_ORIGINS:
    flag = _FLAGS_OF_ORIGINS[origin]
    origin = f'--{flag}={values[flag]}'
  elif origin != 'default' and not origin.startswith('--'):
    return error
  more = '' if origin == 'default' else f' of {origin}'
  return UsageError(
    f'{error} (It is a default{more}: correct it there, or give --{name}.)'
  )


def _fit_network(process, source, layers):
  """Replaces a default network that does not take what the data set has."""
  fitting = parts_of_run.networks_for(process, source)
  name = layers.values['model']
  if fitting and name in (*MODELS, *ENCODERS) and name not in fitting:
    layers.put('data set', {'model': fitting[0]})


def _partition(process, given, layers):
  """Chooses the partition, and puts what it imposes."""
  name = given.get('partition', layers.values['partition'])
  try:
    partition = parts_of_run.find_partition(name)
  except UsageError as error:
    raise _blamed_here(error, 'partition', given, layers) from error
  in_sets = process.labels_at != 'sets' or partition.in_sets
  if 'partition' not in given and not in_sets:
    name = parts_of_run.partitions_in_sets(needs_sets=False)[0]
    layers.put('process', {'partition': name})
    partition = parts_of_run.find_partition(name)
  layers.put_below('partition', _of_records(partition.settings))
  if partition.overrides is not None:
    layers.put_of_part(
      'partition',
      f'--partition={name}',
      'overrides',
      partition.overrides,
      layers.values,
      given,
    )
  return partition


def _part(table, flag, given, layers):
  """Chooses an optimizer, a schedule or the like; puts what it imposes."""
  name = given.get(flag, layers.values[flag])
  try:
    check_name(flag, name, table)
  except UsageError as error:
    raise _blamed_here(error, flag, given, layers) from error
  part = table[name]
  layers.put_below('default', _of_records(part.settings))
  layers.put(f'--{flag}', part.overrides)
  return part


def _blamed_here(error, name, given, layers):
  """Returns `blamed` before the flags that were given are put."""
  if name in given:
    return error
  return blamed(error, name, {**layers.values, **given}, layers.origins)


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
