"""A run with its lower bound beside it: what do unlabelled clients give?

`--with_lower_bound` trains the server alone, too: `server_only` with the same
seed, data, network, rounds and server steps, in <run_dir>_server_only. The
difference of both is what the clients' unlabelled examples gave.

Its learning rate is the one that was given beside the recipe, if any, or else
that of `server_only`, which suits a server without clients better than the
run's own.
"""

import math
import os
from collections.abc import Mapping

from experiments.artifacts import results
from experiments.config import settings as settings_lib
from experiments.tables import child_runs, measures, recipes

FLAG = 'with_lower_bound'
_BOUND = 'server_only'
# Evaluations whose mean is compared: it varies less than the last one.
_MEASURE = measures.parse('mean_of_last@5')
_RATES = ('learning_rate', 'server_learning_rate')
_OF_THE_RUN = ('recipe', 'recipe_scale', *_RATES)


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
  values |= {name: flags[name] for name in _RATES if name in flags}
  return settings_lib.make(values, optional=values)


def compare(settings, bound) -> str:
  """Returns a sentence on what a run gave beyond its bound, both finished."""
  own, alone, what = _figures(settings, bound)
  return (
    f'Unlabelled clients gave {own - alone:+.4f}: {own:.4f} with '
    f'{settings.process}, {alone:.4f} with the server alone at a learning rate '
    f'of {bound.server_learning_rate:g} (test accuracy, {what}; seed '
    f'{settings.seed}, which decides which examples are labelled: compare '
    'several with --seeds).'
  )


def gain(settings, bound) -> float:
  """Returns what unlabelled examples gave, once both runs are finished."""
  own, alone, _ = _figures(settings, bound)
  return own - alone


def _figures(settings, bound) -> tuple[float, float, str]:
  """Returns both accuracies, the run's first, and what they are."""
  figures = [_MEASURE.of_run(each.run_dir) for each in (settings, bound)]
  if None not in figures:
    return *figures, f'mean of the last {_MEASURE.argument} evaluations'
  figures = [  # Fewer evaluations than that.
    results.read(each.run_dir)['accuracy'] for each in (settings, bound)
  ]
  return *figures, 'after the last round'
