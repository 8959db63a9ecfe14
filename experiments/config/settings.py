"""From flags to checked settings, before TensorFlow is imported.

It is an error to give a flag that the run does not use, or a value that cannot
work. The error is one sentence that names the flag, its value and the remedy.
"""

import os
import types
from collections.abc import Collection, Mapping

from experiments.config import (
  catalogue,
  checks,
  recommended,
  resolving,
  run_settings,
)
from experiments.config.usage import UsageError
from tff_ssl.common.setting import Scope

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
    value comes from, `defaults` what it would be if nobody had given it, and
    `replaced` the default of a process or data set where another flag imposes
    the value.
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
  resolved = resolving.resolve(resolving.with_environment(given), origins)
  values, effective = checks.used(resolved, optional)
  checks.check(values, resolved.chosen)
  rows = catalogue.of_run(resolved.chosen)
  names = list({**catalogue.known(), **rows})
  settings = types.SimpleNamespace(**{name: values.get(name) for name in names})
  settings.used = {
    name: values[name]
    for name in names
    if name in values and name not in _ACTIONS
  }
  settings.recommendation = None
  settings.labels_decide = False
  settings.origins = {name: resolved.origins[name] for name in values}
  settings.defaults = resolved.defaults
  settings.replaced = resolved.replaced
  settings.effective = effective
  settings.chosen = resolved.chosen
  settings.cache_dir = os.path.expanduser(settings.cache_dir)
  settings.run_dir = os.path.expanduser(settings.run_dir)
  return settings
