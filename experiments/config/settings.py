"""From flags to checked settings, before TensorFlow is imported.

It is an error to give a flag that the run does not use, or a value that cannot
work. The error is one sentence that names the flag, its value and the remedy.
"""

import os
import types
from collections.abc import Collection, Mapping
from typing import Any

from datasets.partition import client_labels
from experiments.config import (
  computing_settings,
  conflicts,
  defaults,
  own_functions,
  parts_of_run,
  recommended,
  run_settings,
)
from experiments.config.parts_of_run import Parts
from experiments.config.usage import UsageError, check_name
from tff_ssl.common.setting import Scope, Setting

_FRACTION = client_labels.LABELLED_FRACTION
_ACTIONS = frozenset(setting.name for setting in run_settings.ACTIONS)


def _of_scopes(*scopes: Scope) -> frozenset[str]:
  return frozenset(
    setting.name
    for setting in parts_of_run.all_settings().values()
    if setting.scope in scopes
  )


# The settings that may change when a run is resumed.
FREE = _of_scopes(Scope.RUN, Scope.MACHINE, Scope.NAME)
# The settings that say which repetition of an experiment a run is.
REPETITION = _of_scopes(Scope.REPETITION)
# The settings that say what a run is called and where it is.
NAMES = _of_scopes(Scope.NAME)
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
    them. `used` are those that it does, by name. `origins` says where each
    value comes from. `effective` has the names of all that would have an
    effect, with a value or without. `parts` are the run's `Parts`.
    `recommendation` says what --process=recommended has chosen, and why.
    `labels_decide` tells that it chooses anew once the labels are read: until
    then, it is the likeliest process that takes the flags.

  Raises:
    UsageError: If the flags cannot be run.
  """
  for flag in ('process', 'dataset'):
    if flag not in given:
      raise UsageError(
        f'--{flag} is missing: add --{flag}=NAME; --list names what there is.'
      )
  candidates = recommended.candidates(given, found)
  if not candidates:
    return _make(given, optional, origins)
  origins = {**origins, 'process': recommended.NAME}
  refusals = []
  for process, sentences in candidates:
    try:
      settings = _make({**given, 'process': process}, optional, origins)
    except UsageError as error:
      refusals.append(error)
      continue
    settings.recommendation = sentences
    settings.labels_decide = len(candidates) > 1
    return settings
  if found is None:
    raise refusals[0]
  raise UsageError(
    f'{refusals[0]} (--process={recommended.NAME} chose it: {found.told}.)'
  )


def _make(given, optional, origins) -> types.SimpleNamespace:
  """Resolves and checks the flags of a run whose process is named."""
  given = defaults.with_environment(given)
  _check_exclusive(given)
  written = given
  given = _with_mask_ratio(given)
  given = computing_settings.without_revoked(given)
  if given.keys() - written.keys():
    origins = {**origins, _FRACTION.instead_of: f'--{_FRACTION.name}'}
  values, origins, parts = defaults.resolve(given, origins)
  try:
    parts_of_run.check_model(values['model'])
  except UsageError as error:
    raise defaults.blamed(error, 'model', values, origins) from error
  unused = _unused(values, parts)
  for name in given:
    if name in unused and name not in optional:
      reason = unused[name]
      if name not in written:
        name = _FRACTION.name
      value = written[name]
      text = str(value).lower() if isinstance(value, bool) else value
      raise UsageError(
        f'--{name}={text} has no effect: {reason}; leave it out.'
      )
  values = {k: v for k, v in values.items() if k not in unused}
  for name, value in values.items():
    try:
      _check_value(name, value, parts.settings[name])
    except UsageError as error:
      raise defaults.blamed(error, name, values, origins) from error
  conflicts.check(values, parts)
  names = list({**parts_of_run.all_settings(), **parts.settings})
  settings = types.SimpleNamespace(**{name: values.get(name) for name in names})
  settings.used = {
    name: values[name]
    for name in names
    if name in values and name not in _ACTIONS
  }
  settings.recommendation = None
  settings.labels_decide = False
  settings.origins = {name: origins[name] for name in values}
  settings.effective = parts.settings.keys() - unused.keys()
  settings.parts = parts
  settings.cache_dir = os.path.expanduser(settings.cache_dir)
  settings.run_dir = os.path.expanduser(settings.run_dir)
  return settings


def default_of(settings: types.SimpleNamespace, name: str) -> Any:
  """Returns what a setting would be if nobody had given it.

  Also of a run that is resumed, whose flags are all given.

  Args:
    settings: From `make`.
    name: The setting.
  """
  others = {k: v for k, v in settings.used.items() if k != name}
  return getattr(make(others, optional=others), name)


def _check_exclusive(given) -> None:
  """Refuses two flags of which one replaces the other."""
  settings = parts_of_run.all_settings(parts_of_run.offers_of_user(given))
  for name, value in given.items():
    other = settings[name].instead_of if name in settings else None
    if other in given:
      raise UsageError(
        f'--{name}={value} and --{other}={given[other]} exclude each other: '
        'give one.'
      )


def _with_mask_ratio(given: dict[str, object]) -> dict[str, object]:
  """Returns the flags with a mask ratio for the labelled fraction."""
  if _FRACTION.name not in given:
    return given
  fraction = given[_FRACTION.name]
  _check_value(_FRACTION.name, fraction, _FRACTION)
  rest = {k: v for k, v in given.items() if k != _FRACTION.name}
  return {**rest, _FRACTION.instead_of: _FRACTION.parse(fraction)}


def _unused(values: dict[str, Any], parts: Parts) -> dict[str, str]:
  """Returns the settings that this run does not use, with the reason."""
  context = parts.context(values)
  own = parts.settings
  owners = {
    s.name: f'--{o.flag}={values[o.flag]}'
    for o in parts.offers
    for s in o.settings
  }
  unused = {}
  for name, setting in own.items():
    with own_functions.refusals(
      owners.get(name, f'--{name}'), f'used_when of the setting {name}'
    ):
      if reason := setting.why_unused(context):
        unused[name] = reason
  for name in values.keys() | parts_of_run.all_settings().keys():
    if name not in own:
      unused[name] = _why_not_offered(name, parts, values)
  return unused


def _why_not_offered(name: str, parts: Parts, values: dict[str, Any]) -> str:
  """Returns why no part of a run has a setting."""
  offers = parts_of_run.offers_of(name)
  flags = {offer.flag for offer in offers}
  if not flags or 'process' in flags:
    return f'the process {parts.process.name} does not use it'
  (flag,) = flags
  users = ' or '.join(f'--{flag}={offer.name}' for offer in offers)
  if flag == 'partition':
    return f'--partition={values["partition"]} does not use it ({users} does)'
  return f'only {users} uses it'


def _check_value(name: str, value: Any, setting: Setting) -> None:
  """Raises `UsageError` if a value is not one that its setting can have."""
  if name in run_settings.FOLDERS and not value:
    raise UsageError(f'--{name}={value} must be a folder.')
  if setting.choices:
    check_name(name, value, setting.choices)
  elif not setting.allows(value):
    raise UsageError(f'--{name}={value} must be {setting.expected_for(value)}.')
  elif setting.parse is not None:
    with own_functions.refusals(f'--{name}={value}', 'parse'):
      try:
        setting.parse(value)
      except ValueError as error:
        raise UsageError(f'--{name}={value}: {error}') from error
