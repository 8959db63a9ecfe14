"""A run with its lower bound beside it: what do unlabelled clients give?

`--with_lower_bound` trains the server alone, too: `server_only` with the same
seed, data, network, rounds and server steps, in <run_dir>_server_only. The
difference of both is what the clients' unlabelled examples gave.

Its optimizer and schedule are what was given beside the recipe, if anything, or
else those of `server_only` on these data, which suit a server without clients
better than the run's own.
"""

import math
import os
from collections.abc import Mapping

from experiments.artifacts import results
from experiments.config import catalogue
from experiments.config import settings as settings_lib
from experiments.tables import child_runs, measures, recipes

FLAG = 'with_lower_bound'
_BOUND = 'server_only'
# How weights are changed, by any participant.
_OPTIMIZING = {
  row.setting.name
  for row in catalogue.every_row()
  if row.flag in ('client_optimizer', 'schedule')
  or (row.flag is None and row.heading.endswith(' training'))
}
_OF_THE_RUN = {'recipe', 'recipe_scale', *_OPTIMIZING}


def plan(
  given: Mapping[str, object], name: str | None = None
) -> tuple[child_runs.ChildRun, child_runs.ChildRun]:
  """Returns the run of such a command line, and that of its bound.

  Their names begin with `name`, such as that of a seed.
  """
  recipes.make(given)  # Refuses the flag where there is no such bound.
  flags = {name: value for name, value in given.items() if name != FLAG}
  settings = recipes.make(flags)
  flags['run_dir'] = settings.run_dir
  bound = _settings_of_bound(settings, flags)
  alone = 'the server alone' if name is None else f'{name}, the server alone'
  return (
    child_runs.ChildRun(name or settings.process, flags, settings),
    child_runs.ChildRun(alone, bound.used, bound),
  )


def _settings_of_bound(settings, flags):
  """Returns the settings of the server alone, for those of the run."""
  values = {k: v for k, v in settings.used.items() if k not in _OF_THE_RUN}
  values |= {
    'process': _BOUND,
    'run_dir': f'{os.path.normpath(settings.run_dir)}_{_BOUND}',
  }
  if settings.server_epochs:
    # The steps of so many passes.
    passes = math.ceil(settings.server_examples / settings.server_batch_size)
    values['server_steps'] = settings.server_epochs * passes
  values |= {name: flags[name] for name in _OPTIMIZING & flags.keys()}
  return settings_lib.make(values, optional=values)


def compare(settings, bound) -> str:
  """Returns a sentence on what a run gave beyond its bound, both finished."""
  measure, (own, alone) = _figures(settings, bound)
  last = [results.read(each.run_dir)['accuracy'] for each in (settings, bound)]
  return (
    f'Unlabelled clients gave {own - alone:+.4f}: {own:.4f} with '
    f'{settings.process}, {alone:.4f} with the server alone'
    f'{_changes(settings, bound)} (test accuracy, '
    f'{results.in_words(measure.argument)}; {last[0] - last[1]:+.4f} after the '
    f'last round; seed {settings.seed}, which decides which examples are '
    'labelled: compare several with --seeds).'
  )


def _changes(settings, bound) -> str:
  """Returns how the optimizer of a bound differs from that of the run."""
  # A client's rate, which the bound has none of, is like the server's.
  changes = [
    f'--{name}={bound.used[name]} for {settings.used.get(name, "none")}'
    for name in sorted(_OPTIMIZING & bound.used.keys() - {'learning_rate'})
    if bound.used[name] != settings.used.get(name)
  ]
  return f', which takes {", ".join(changes)}' if changes else ''


def gain(settings, bound) -> float:
  """Returns what unlabelled examples gave, once both runs are finished."""
  _, (own, alone) = _figures(settings, bound)
  return own - alone


def _figures(settings, bound):
  """Returns the measure, and its value for the run and for its bound."""
  return measures.of_last_evaluations(
    (each.run_dir, each.used) for each in (settings, bound)
  )
