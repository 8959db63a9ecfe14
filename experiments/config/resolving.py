"""Fills in what a user does not give: which parts a run has, and all settings.

There are layers of defaults, and a later layer replaces values of an earlier
one: records and builders; the data set; the process; and what the partition,
the optimizer, the schedule and the aggregator impose.
"""

import difflib
import os
import re
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from datasets.partition import client_labels
from experiments.config import catalogue, profiles, run_settings
from experiments.config.usage import (
  UsageError,
  check_name,
  check_value,
  refusals,
)
from tff_ssl.common.choice import Choice, Values
from tff_ssl.common.setting import Setting
from tff_ssl.models import ENCODERS, MODELS

# The environment variable of the folder of data files.
DATA_DIR = 'TFF_SSL_DATA_DIR'
_GIVEN = 'your flag'
# The settings that always have a value.
_NEEDED = frozenset(
  row.setting.name
  for row in catalogue.COMMON
  if row.setting.default is not None
)
# The flag that names what a default comes from.
_FLAGS_OF_ORIGINS = {
  'algorithm': 'process',
  'process': 'process',
  'data set': 'dataset',
  'partition': 'partition',
}

FRACTION = client_labels.LABELLED_FRACTION
# Of --setting=central. The momentum of the one client goes on, and a round is
# an epoch.
CENTRAL = {
  'partition': 'pooled',
  'local_epochs': 1,
  'client_momentum': 'slot',
  'rounds_per_evaluation': 1,
}


class Resolved(NamedTuple):
  """A run's settings before they are checked.

  Attributes:
    written: The flags as they were given, by name.
    given: The same, one of several ways to say a thing alone.
    values: All settings that have a value, also those without an effect.
    origins: Where each value comes from, in a word or two.
    chosen: What the run is put together from, by the flag that chose it.
    defaults: What the values would be if nobody had given them, as far as the
      rest that was given decides.
    replaced: The defaults in whose place a flag of another name put a value.
  """

  written: Values
  given: Values
  values: dict[str, Any]
  origins: dict[str, str]
  chosen: dict[str, Choice]
  defaults: dict[str, Any]
  replaced: dict[str, Any]


def resolve(
  written: Values, origins: Mapping[str, str] = types.MappingProxyType({})
) -> Resolved:
  """Fills in what was not given.

  Args:
    written: Flags by name; `process` and `dataset` are among them.
    origins: Where those flags come from that the user did not write.

  Raises:
    UsageError: If a part is unknown, or what it brings cannot be used.
  """
  known = catalogue.known(written)
  _check_exclusive(written, known)
  given = _without_revoked(_with_mask_ratio(written))
  if given.keys() - written.keys():
    origins = {**origins, FRACTION.instead_of: f'--{FRACTION.name}'}
  process = catalogue.find('process', given['process'])
  source = catalogue.find('dataset', given['dataset'])
  layers = _Layers(given, known)
  layers.put('default', _of_records(row.setting for row in catalogue.COMMON))
  layers.put('default', _of_records(source.settings))
  layers.put('algorithm', _of_builder(process))
  of_source, of_process = profiles.defaults(source, process, given)
  layers.put_choice('data set', 'dataset', source, of_source)
  layers.put_choice('process', 'process', process, of_process)
  _fit_network(process, source, layers)
  if given.get('setting') == 'central':
    layers.put('--setting', CENTRAL)
  _fit_partition(process, layers)
  chosen: dict[str, Any] = {'process': process, 'dataset': source}
  for flag in catalogue.REGISTRIES:
    if flag not in chosen:
      chosen[flag] = _choose(flag, layers)
  _fit_cohort(process, chosen['partition'], layers)
  defaults = dict(layers.values)
  layers.put(_GIVEN, given)
  values = layers.values
  layers.origins |= {k: v for k, v in origins.items() if k in given}
  if values.get('data_dir') == os.environ.get(DATA_DIR):
    layers.origins['data_dir'] = DATA_DIR
  if process.bases:
    check_name('base_process', values['base_process'], process.bases)
    chosen['process'] = process.over(values['base_process'])
  for row in catalogue.of_run(chosen).values():
    if row.setting.like in values:
      layers.put_below(
        f'--{row.setting.like}', {row.setting.name: values[row.setting.like]}
      )
  name = f'{process.name}_{_name_of_data(source, values)}'
  layers.put_below('default', {'run_dir': f'runs/{name}_seed{values["seed"]}'})
  return Resolved(
    *(written, given, values, layers.origins, chosen, defaults),
    replaced=layers.replaced,
  )


def with_environment(given: Values) -> dict[str, Any]:
  """Returns the given flags, with those that environment variables give."""
  folder = os.environ.get(DATA_DIR)
  return {**({'data_dir': folder} if folder else {}), **given}


def displaced(
  given: Collection[str], settings: Mapping[str, Setting]
) -> set[str]:
  """Returns the names of the settings whose place the given ones take."""
  taken = {settings[name].instead_of for name in given if name in settings}
  return {name for name in taken if name and name not in given}


def blamed(
  error: UsageError, name: str, values: Values, origins: Mapping[str, str]
) -> UsageError:
  """Returns the refusal of a value, with where the value comes from.

  It is the same where the user gave the value.
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


def _check_exclusive(given, known) -> None:
  """Refuses two flags of which one replaces the other."""
  for name, value in given.items():
    other = known[name].instead_of if name in known else None
    if other in given:
      raise UsageError(
        f'--{name}={value} and --{other}={given[other]} exclude each other: '
        'give one.'
      )


def _with_mask_ratio(given: Values) -> Values:
  """Returns the flags with a mask ratio for the labelled fraction."""
  if FRACTION.name not in given:
    return given
  fraction = given[FRACTION.name]
  check_value(FRACTION, fraction)
  rest = {k: v for k, v in given.items() if k != FRACTION.name}
  return {**rest, FRACTION.instead_of: FRACTION.parse(fraction)}


def _without_revoked(given: Values) -> Values:
  """Returns the flags without those of a cluster, if there is to be none.

  So a run that began on a cluster can be resumed from its flag file without
  one: an empty --cluster revokes the file's.
  """
  if given.get('cluster') != '':
    return given
  revoked = ('cluster', *run_settings.OF_CLUSTERS)
  return {name: v for name, v in given.items() if name not in revoked}


def networks_for(process, source) -> list[str]:
  """Returns the names of the networks that a process trains on a data set."""
  names = ENCODERS if process.needs.encoder else {**MODELS, **ENCODERS}
  return [name for name, spec in names.items() if source.form in spec.forms]


def partitions_in_sets(needs_sets: bool) -> list[str]:
  """Returns the partitions that lay examples in sets, by name.

  Args:
    needs_sets: Whether of data that come in sets, or of all others.
  """
  return [
    spec.name
    for spec in catalogue.REGISTRIES['partition'].values()
    if spec.in_sets and spec.needs_sets == needs_sets
  ]


class _Layers:
  """Values by name, with where each comes from."""

  def __init__(self, given: Values, settings: Mapping[str, Setting]):
    self.given = given
    self.values: dict[str, Any] = {}
    self.origins: dict[str, str] = {}
    self.replaced: dict[str, Any] = {}
    self._settings = settings

  def put(self, origin: str, layer: Values) -> None:
    """Puts values over earlier ones; `None` removes an earlier value."""
    for name in displaced(layer, self._settings):
      self.values.pop(name, None)
    for name, value in layer.items():
      if origin.startswith('--') and name in self.values:
        self.replaced[name] = self.values[name]
      self.values[name] = value
      self.origins[name] = origin
      if value is None:
        del self.values[name]

  def put_below(self, origin: str, layer: Values) -> None:
    """Adds those values whose settings do not have one yet."""
    self.put(origin, {k: v for k, v in layer.items() if k not in self.values})

  def put_choice(
    self, origin: str, flag: str, choice: Choice, defaults: Values
  ) -> None:
    """Puts what a choice brings: its defaults, and what it derives of others.

    Raises:
      UsageError: If it fails, there is no setting of some name, or every run
        needs a value that is taken away.
    """
    part = f'--{flag}={self.given.get(flag, choice.name)}'
    self._check(part, 'defaults', defaults)
    self.put(origin, defaults)
    if choice.derive is not None:
      with refusals(part, 'derive'):
        derived = choice.derive(self.values, self.given)
      self._check(part, 'derive', derived)
      self.put(origin, derived)

  def _check(self, part: str, attribute: str, layer: Values) -> None:
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


def _choose(flag: str, layers: _Layers) -> Choice:
  """Chooses a partition, an optimizer or the like; puts what it imposes."""
  choice = _find(flag, layers)
  is_partition = flag == 'partition'
  layers.put_below(
    'partition' if is_partition else 'default', _of_records(choice.settings)
  )
  layers.put_choice(
    'partition' if is_partition else f'--{flag}', flag, choice, choice.defaults
  )
  return choice


def _find(flag: str, layers: _Layers) -> Any:
  try:
    return catalogue.find(flag, layers.given.get(flag, layers.values[flag]))
  except UsageError as error:
    if flag in layers.given:
      raise
    values = {**layers.values, **layers.given}
    raise blamed(error, flag, values, layers.origins) from error


def _fit_network(process, source, layers):
  """Replaces a default network that does not take what the data set has."""
  fitting = networks_for(process, source)
  name = layers.values['model']
  if fitting and name in (*MODELS, *ENCODERS) and name not in fitting:
    layers.put('data set', {'model': fitting[0]})


def _fit_partition(process, layers):
  """Replaces a default partition that lays no examples in sets, if need be."""
  if process.needs.labels_at != 'sets' or 'partition' in layers.given:
    return
  if not _find('partition', layers).in_sets:
    name = partitions_in_sets(needs_sets=False)[0]
    layers.put('process', {'partition': name})


def _fit_cohort(process, partition, layers):
  """Lets by default no more clients take part than there are, or all."""
  clients, in_round = layers.given.get('num_clients', 0), 'clients_per_round'
  if process.needs.clients == 'all' and (
    'num_clients' in partition.setting_names
  ):
    clients = clients or layers.values.get('num_clients', 0)
    fits = clients == layers.values[in_round]
  else:
    fits = clients >= layers.values[in_round]
  if clients > 0 and not fits:
    layers.put('--num_clients', {in_round: clients})


def _name_of_data(source, values) -> str:
  """Returns what the folder of a run says of its data."""
  if not source.is_of_user or 'data_dir' not in values:
    return source.name
  folder = os.path.basename(os.path.abspath(values['data_dir']))
  # What a flag file and a shell take as it is.
  return f'{source.name}_{re.sub(r"[^A-Za-z0-9_.-]", "_", folder)}'


def _of_builder(process) -> dict[str, Any]:
  """Returns the defaults of a process's builder."""
  values = {}
  for setting in process.settings:
    value = process.default_of(setting.name)
    value = setting.default if value is None else value
    if value is not None:
      values[setting.name] = value
  return values


def _of_records(settings: Iterable[Setting]) -> dict[str, Any]:
  return {s.name: s.default for s in settings if s.default is not None}
