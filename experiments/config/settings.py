"""From flags to checked settings, before TensorFlow is imported.

It is an error to give a flag that the run does not use, or a value that cannot
work. The error is one sentence that names the flag, its value and the remedy.
"""

import os
import types
from collections.abc import Collection, Mapping

from datasets.partition import client_labels
from experiments.config import (
  catalogue,
  checks,
  recommended,
  resolving,
  run_settings,
)
from experiments.config.usage import UsageError, refusals
from tff_ssl.common.setting import Scope

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
    them. `used` are those that it does, by name. `origins` says where each
    value comes from, and `defaults` what it would be if nobody had given it.
    `effective` has the names of all that would have an effect, with a value or
    without. `chosen` has the run's `Choice`s by flag. `recommendation` says
    what --process=recommended has chosen, and why. `labels_decide` tells that
    it chooses anew once the labels are read: until then, it is the likeliest
    process that takes the flags.

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
  given = resolving.with_environment(given)
  _check_exclusive(given)
  written = given
  given = run_settings.without_revoked(_with_mask_ratio(given))
  if given.keys() - written.keys():
    origins = {**origins, _FRACTION.instead_of: f'--{_FRACTION.name}'}
  resolved = resolving.resolve(given, origins)
  values, origins, chosen, _ = resolved
  rows = catalogue.of_run(chosen)
  try:
    catalogue.check_model(values['model'])
  except UsageError as error:
    raise resolving.blamed(error, 'model', values, origins) from error
  unused = _unused(values, chosen, rows)
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
      checks.check_value(name, value, rows[name].setting)
    except UsageError as error:
      raise resolving.blamed(error, name, values, origins) from error
  checks.check(values, chosen)
  names = list({**catalogue.known(), **rows})
  settings = types.SimpleNamespace(**{name: values.get(name) for name in names})
  settings.used = {
    name: values[name]
    for name in names
    if name in values and name not in _ACTIONS
  }
  settings.recommendation = None
  settings.labels_decide = False
  settings.origins = {name: origins[name] for name in values}
  settings.defaults = resolved.defaults
  settings.effective = rows.keys() - unused.keys()
  settings.chosen = chosen
  settings.cache_dir = os.path.expanduser(settings.cache_dir)
  settings.run_dir = os.path.expanduser(settings.run_dir)
  return settings


def _check_exclusive(given) -> None:
  """Refuses two flags of which one replaces the other."""
  settings = catalogue.known(given)
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
  checks.check_value(_FRACTION.name, fraction, _FRACTION)
  rest = {k: v for k, v in given.items() if k != _FRACTION.name}
  return {**rest, _FRACTION.instead_of: _FRACTION.parse(fraction)}


def _unused(values, chosen, rows) -> dict[str, str]:
  """Returns the settings that this run does not use, with the reason."""
  facts = checks.facts(values, chosen)
  unused = {}
  for name, row in rows.items():
    owner = f'--{row.flag}={values[row.flag]}' if row.flag else f'--{name}'
    with refusals(owner, f'used_when of the setting {name}'):
      if reason := row.setting.why_unused(facts):
        unused[name] = reason
  for name in values.keys() | catalogue.known().keys():
    if name not in rows:
      unused[name] = _why_not_offered(name, values, chosen)
  return unused


def _why_not_offered(name: str, values, chosen) -> str:
  """Returns why no choice of a run has a setting."""
  offers = [
    (row.flag, row.choice.name)
    for row in catalogue.every_row()
    if row.setting.name == name and row.choice is not None
  ]
  flags = {flag for flag, _ in offers}
  if not flags or 'process' in flags:
    return f'the process {chosen["process"]} does not use it'
  (flag,) = flags
  users = ' or '.join(f'--{flag}={choice}' for _, choice in offers)
  if flag == 'partition':
    return f'--partition={values["partition"]} does not use it ({users} does)'
  return f'only {users} uses it'
