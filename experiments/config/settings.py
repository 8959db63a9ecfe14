"""From flags to checked settings, before TensorFlow is imported.

What a user does not give is filled in: which parts a run has, and all settings.
There are layers of defaults, and a later layer replaces values of an earlier
one: records and builders; the data set; the process; and what the partition,
the optimizer, the schedule and the aggregator impose.

It is an error to give a flag that the run does not use, or a value that cannot
work. The error is one sentence that names the flag, its value and the remedy.
"""

import difflib
import os
import re
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from datasets.partition import client_labels, partitions
from datasets.sources.source import OWN_EXAMPLES
from experiments.config import (
  catalogue,
  checks,
  profiles,
  recommended,
  run_settings,
)
from experiments.config.command_line import UsageError, check_name
from tff_ssl.common import user_modules
from tff_ssl.common.choice import Values
from tff_ssl.common.setting import Scope, Setting
from tff_ssl.models import ENCODERS, MODELS, names_for

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
_FRACTION = client_labels.LABELLED_FRACTION
_ACTIONS = frozenset(setting.name for setting in run_settings.ACTIONS)


def _of_scopes(*scopes: Scope) -> frozenset[str]:
  return frozenset(
    setting.name
    for setting in catalogue.known().values()
    if setting.scope in scopes
  )


# The settings that may change when a run is resumed.
FREE = _of_scopes(Scope.RUN, Scope.MACHINE, Scope.NAME)
# The settings that say which repetition of an experiment a run is.
REPETITION = _of_scopes(Scope.REPETITION)
# The settings that never leave one of a recipe without effect.
APART = _of_scopes(Scope.REPETITION, Scope.MACHINE, Scope.NAME)


def make(
  given: dict[str, object],
  optional: Collection[str] = (),
  origins: Mapping[str, str] = types.MappingProxyType({}),
  found: recommended.Found | None = None,
) -> types.SimpleNamespace:
  """Resolves and checks the flags of a run.

  Args:
    given: The flags that were given, by name (`flags.parse`).
    optional: Names of flags among them that are dropped where they have no
      effect. For the others, this is an error.
    origins: Where those of `given` come from that the user did not write, by
      name.
    found: Where the labels are, for --process=recommended, if they have been
      read.

  Returns:
    A namespace with all flags as attributes: `None` where the run does not use
    them. `used` are those that it does, by name. `effective` has the names of
    all that would have an effect, with a value or without. `origins`,
    `defaults`, `replaced` and `chosen` are as in `Resolved`. `recommendation`
    says what --process=recommended has chosen, and why. `labels_decide` tells
    that it chooses anew once the labels are read: until then, it is the
    likeliest process that takes the flags.

  Raises:
    UsageError: If the flags cannot be run.
  """
  for flag in ('process', 'dataset'):
    if flag not in given:
      raise UsageError(
        f'--{flag} is missing: add --{flag}=NAME; --list names what there is.'
      )
  if given['process'] != recommended.NAME:
    return _make(given, optional, origins)
  candidates = recommended.candidates(given, found)
  origins = {**origins, 'process': recommended.NAME}
  refused = []
  for process, sentences in candidates:
    try:
      settings = _make({**given, 'process': process}, optional, origins)
    except UsageError as error:
      refused.append(error)
      continue
    settings.recommendation = sentences
    settings.labels_decide = len(candidates) > 1
    return settings
  if found is None:
    raise refused[0]
  raise UsageError(
    f'{refused[0]} (--process={recommended.NAME} chose it: {found.told}.)'
  )


def _make(given, optional, origins) -> types.SimpleNamespace:
  """Resolves and checks the flags of a run whose process is named."""
  folder = os.environ.get(DATA_DIR)
  given = {**({'data_dir': folder} if folder else {}), **given}
  try:
    resolved = resolve(given, origins)
    values, effective = checks.used(resolved, optional)
    checks.check(values, resolved.chosen)
  except ValueError as error:  # Of the product and of a user's parts, too.
    raise UsageError(error) from error
  names = list({**catalogue.known(), **resolved.rows})
  used = {k: values[k] for k in names if k in values and k not in _ACTIONS}
  # Those in `used` stay as written, without the home folder in them.
  folders = {k: os.path.expanduser(values[k]) for k in ('cache_dir', 'run_dir')}
  return types.SimpleNamespace(
    **{name: values.get(name) for name in names} | folders,
    used=used,
    recommendation=None,
    labels_decide=False,
    origins={name: resolved.origins[name] for name in values},
    defaults=resolved.defaults,
    replaced=resolved.replaced,
    effective=effective,
    chosen=resolved.chosen,
  )


class Resolved:
  """A run's settings before they are checked, filled in layer by layer.

  Attributes:
    written: The flags as they were given, by name.
    given: The same, one of several ways to say a thing alone.
    values: All settings that have a value, also those without an effect.
    origins: Where each value comes from, in a word or two.
    chosen: The `Choice`s that the run is put together from, by flag.
    rows: The settings of such a run by name, as rows of the catalogue.
    defaults: What the values would be if nobody had given them, as far as the
      rest that was given decides.
    replaced: The defaults of a process or data set in whose place a flag of
      another name put a value.
  """

  def __init__(self, written: Values, given: Values, known: Mapping):
    self.written = written
    self.given = given
    self.values: dict[str, Any] = {}
    self.origins: dict[str, str] = {}
    self.chosen: dict[str, Any] = {}
    self.rows: dict[str, catalogue.Row] = {}
    self.defaults: dict[str, Any] = {}
    self.replaced: dict[str, Any] = {}
    self._known = known

  def put(self, origin: str, layer: Values) -> None:
    """Puts values over earlier ones; `None` removes an earlier value."""
    for name in displaced(layer, self._known):
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

  def put_choice(self, origin: str, flag: str, defaults: Values) -> None:
    """Puts what a choice brings: its defaults, and what it derives of others.

    Raises:
      ValueError: If it fails, there is no setting of some name, or every run
        needs a value that is taken away.
    """
    choice = self.chosen[flag]
    part = f'--{flag}={self.given.get(flag, choice.name)}'
    self._check(part, 'defaults', defaults)
    self.put(origin, defaults)
    if choice.derive is not None:
      with user_modules.mistakes(part, 'derive'):
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
      if name not in self._known:
        near = difflib.get_close_matches(str(name), self._known, n=1)
        hint = f'did you mean {near[0]!r}?' if near else 'leave it out.'
        raise UsageError(
          f'{part}: {attribute} names {name!r}, which is no setting: {hint}'
        )

  def find(self, flag: str) -> Any:
    """Returns what a flag chooses, given or by default."""
    try:
      return catalogue.find(flag, self.given.get(flag, self.values.get(flag)))
    except UsageError as error:
      if flag in self.given:
        raise
      raise self.refusal(flag, str(error)) from error

  def refusal(self, name: str, text: str) -> UsageError:
    """Returns the error of a setting's value, with where that comes from.

    Nothing is said of that where the user gave the value.
    """
    origin = self.origins.get(name, _GIVEN)
    if origin in _FLAGS_OF_ORIGINS or origin.startswith('--'):
      flag = _FLAGS_OF_ORIGINS.get(origin, origin.removeprefix('--'))
      origin = f'--{flag}={({**self.values, **self.written})[flag]}'
    elif origin != 'default':
      return UsageError(text)
    more = '' if origin == 'default' else f' of {origin}'
    return UsageError(
      f'{text} (It is a default{more}: correct it there, or give --{name}.)'
    )


def resolve(
  written: Values, origins: Mapping[str, str] = types.MappingProxyType({})
) -> Resolved:
  """Fills in what was not given.

  Args:
    written: Flags by name; `process` and `dataset` are among them.
    origins: Where those flags come from that the user did not write.

  Raises:
    ValueError: If a part is unknown, or what it brings cannot be used.
  """
  known = catalogue.known(written)
  _check_exclusive(written, known)
  given = _without_revoked(_with_mask_ratio(written))
  if given.keys() - written.keys():
    origins = {**origins, _FRACTION.instead_of: f'--{_FRACTION.name}'}
  run = Resolved(written, given, known)
  run.chosen = {flag: run.find(flag) for flag in ('process', 'dataset')}
  process, source = run.chosen.values()
  run.put('default', _of_records(row.setting for row in catalogue.COMMON))
  run.put('default', _of_records(source.settings))
  defaults = {s.name: process.default_of(s.name) for s in process.settings}
  run.put('algorithm', {k: v for k, v in defaults.items() if v is not None})
  of_source, of_process = profile(source, process, given)
  run.put_choice('data set', 'dataset', of_source)
  run.put_choice('process', 'process', of_process)
  _fit_network(run)
  if given.get('setting') == 'central':
    run.put('--setting', run_settings.CENTRAL)
  _fit_partition(run)
  for flag in catalogue.REGISTRIES:
    if flag not in run.chosen:
      _choose(flag, run)
  _fit_cohort(run)
  run.defaults = dict(run.values)
  run.put(_GIVEN, given)
  values = run.values
  run.origins |= {k: v for k, v in origins.items() if k in given}
  if values.get('data_dir') == os.environ.get(DATA_DIR):
    run.origins['data_dir'] = DATA_DIR
  name = f'{process.name}_{_name_of_data(source, values)}'
  run.put_below('default', {'run_dir': f'runs/{name}_seed{values["seed"]}'})
  if process.bases:
    check_name('base_process', values['base_process'], process.bases)
    run.chosen['process'] = process.over(values['base_process'])
  run.rows = catalogue.of_run(run.chosen)
  for setting, *_ in run.rows.values():
    if setting.like in values:
      run.put_below(f'--{setting.like}', {setting.name: values[setting.like]})
  return run


def displaced(
  given: Collection[str], settings: Mapping[str, Setting]
) -> set[str]:
  """Returns the names of the settings whose place the given ones take."""
  taken = {settings[name].instead_of for name in given if name in settings}
  return {name for name in taken if name and name not in given}


def profile(source, process, given: Values) -> tuple[Values, Values]:
  """Returns the defaults of a data set, and those of a process on it."""
  # A user's own may bring none.
  of_source = source.defaults or ({} if source.derive else OWN_EXAMPLES)
  of_both = profiles.OF_BOTH.get(process.name, {})
  here = of_both.get(given['dataset'], of_both.get(source.form, {}))
  if given.get('setting') == 'central':
    here = profiles.OF_CENTRAL.get(process.name, here)
  of_process = {**process.defaults, **here}
  for name, value in here.items():
    if value is None:
      del of_process[name]
  return of_source, of_process


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
  if _FRACTION.name not in given:
    return given
  fraction = given[_FRACTION.name]
  try:
    _FRACTION.check_flag(fraction)
  except ValueError as error:
    raise UsageError(f'--{error}') from error
  rest = {k: v for k, v in given.items() if k != _FRACTION.name}
  return {**rest, _FRACTION.instead_of: _FRACTION.parse(fraction)}


def _without_revoked(given: Values) -> Values:
  """Returns the flags without those of a cluster, if there is to be none.

  So a run that began on a cluster can be resumed from its flag file without
  one: an empty --cluster revokes the file's.
  """
  if given.get('cluster') != '':
    return given
  revoked = ('cluster', *run_settings.OF_CLUSTERS)
  return {name: v for name, v in given.items() if name not in revoked}


def _choose(flag: str, run: Resolved) -> None:
  """Chooses a partition, an optimizer or the like; puts what it imposes."""
  choice = run.chosen[flag] = run.find(flag)
  is_partition = flag == 'partition'
  run.put_below(
    'partition' if is_partition else 'default', _of_records(choice.settings)
  )
  run.put_choice(
    'partition' if is_partition else f'--{flag}', flag, choice.defaults
  )


def _fit_network(run: Resolved) -> None:
  """Replaces a default network that does not take what the data set has."""
  process, source = run.chosen.values()
  fitting = names_for(source.form, with_encoder=process.needs.encoder)
  name = run.values['model']
  if fitting and name in (*MODELS, *ENCODERS) and name not in fitting:
    run.put('data set', {'model': fitting[0]})


def _fit_partition(run: Resolved) -> None:
  """Replaces a default partition that lays no examples in sets, if need be."""
  needs_sets = run.chosen['process'].needs.labels_at == 'sets'
  if not needs_sets or 'partition' in run.given:
    return
  if not run.find('partition').in_sets:
    name = partitions.names_in_sets(needs_sets=False)[0]
    run.put('process', {'partition': name})


def _fit_cohort(run: Resolved) -> None:
  """Lets by default no more clients take part than there are, or all."""
  clients, in_round = run.given.get('num_clients', 0), 'clients_per_round'
  if run.chosen['process'].needs.clients == 'all' and (
    'num_clients' in run.chosen['partition'].setting_names
  ):
    clients = clients or run.values.get('num_clients', 0)
    fits = clients == run.values[in_round]
  else:
    fits = clients >= run.values[in_round]
  if clients > 0 and not fits:
    run.put('--num_clients', {in_round: clients})


def _name_of_data(source, values) -> str:
  if not source.is_of_user or 'data_dir' not in values:
    return source.name
  folder = os.path.basename(os.path.abspath(values['data_dir']))
  # What a flag file and a shell take as it is.
  return f'{source.name}_{re.sub(r"[^A-Za-z0-9_.-]", "_", folder)}'


def _of_records(settings: Iterable[Setting]) -> dict[str, Any]:
  return {s.name: s.default for s in settings if s.default is not None}
