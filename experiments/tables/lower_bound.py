"""A run with its lower bound beside it: what do unlabelled clients give?

`--with_lower_bound` trains the server alone, too: `server_only` with the same
seed, data, network, rounds and server steps, in <run_dir>_server_only. The
difference of both is what the clients' unlabelled examples gave.

Its learning rate is the one that was given beside the recipe, if any, or else
that of `server_only`, which suits a server without clients better than the
run's own.
"""

import dataclasses
import math
import os
import sys
from collections.abc import Mapping, Sequence

from experiments.artifacts import results
from experiments.config import settings as settings_lib
from experiments.tables import child_runs, measures, recipes

FLAG = 'with_lower_bound'
_BOUND = 'server_only'
# Evaluations whose mean is compared: it varies less than the last one.
_MEASURE = measures.parse('mean_of_last@5')
_RATES = ('learning_rate', 'server_learning_rate')
_OF_THE_RUN = ('recipe', 'recipe_scale', *_RATES)


def plan(given: Mapping[str, object]) -> list[child_runs.ChildRun]:
  """Returns the run of such a command line, and that of its bound."""
  recipes.make(given)  # Refuses the flag where there is no such bound.
  flags = {name: value for name, value in given.items() if name != FLAG}
  settings = recipes.make(flags)
  flags['run_dir'] = settings.run_dir
  bound = _settings_of_bound(settings, flags)
  return [
    child_runs.ChildRun(settings.process, flags, settings),
    child_runs.ChildRun('the server alone', bound.used, bound),
  ]


def plan_seeds(
  runs: Sequence[child_runs.ChildRun],
) -> list[child_runs.ChildRun]:
  """Returns the runs of command lines with `--with_lower_bound`, and bounds."""
  planned = []
  for each in runs:
    own, bound = plan(each.given)
    planned += [
      dataclasses.replace(own, name=each.name),
      dataclasses.replace(bound, name=f'{each.name}, {bound.name}'),
    ]
  return planned


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


def run(given: Mapping[str, object]) -> int:
  """Runs a command line with `--with_lower_bound`; returns the exit code."""
  runs = plan(given)
  outcome = child_runs.run_all(runs, are_alike=True)
  if outcome.failed:
    print(f'error: {", ".join(outcome.failed)} failed.', file=sys.stderr)
  if all(child_runs.is_finished(run.settings) for run in runs):
    print(compare(*(run.settings for run in runs)))
  return outcome.exit_code


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


def gains(runs: Sequence[child_runs.ChildRun]) -> list[float]:
  """Returns what unlabelled examples gave in each run of `plan_seeds`.

  Those that are not finished, or whose bound is not, are left out.
  """
  found = []
  for run in runs:
    own, bound = (child.settings for child in plan(run.given))
    if child_runs.is_finished(bound) and child_runs.is_finished(own):
      with_clients, alone, _ = _figures(own, bound)
      found.append(with_clients - alone)
  return found


def _figures(settings, bound) -> tuple[float, float, str]:
  """Returns both accuracies, the run's first, and what they are."""
  figures = [_MEASURE.of_run(each.run_dir) for each in (settings, bound)]
  if None not in figures:
    return *figures, f'mean of the last {_MEASURE.argument} evaluations'
  figures = [  # Fewer evaluations than that.
    results.read(each.run_dir)['accuracy'] for each in (settings, bound)
  ]
  return *figures, 'after the last round'
