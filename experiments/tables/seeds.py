"""Several seeds of one run, or a run and its bound, and what they gave."""

import dataclasses
import itertools
import os
import sys
from collections.abc import Sequence

import numpy as np
from scipy import stats

from experiments.artifacts import results
from experiments.config.command_line import UsageError
from experiments.tables import child_runs, lower_bound, measures, recipes

# Two values bound nothing: no interval is given below this.
_MIN_FOR_INTERVAL = 3
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Spread:
  """Mean and spread of a figure over n seeds.

  Attributes:
    std: Standard deviation with n - 1, `None` for one seed.
    low: Lower end of the 95% interval of the mean by Student's t, `None` below
      three seeds, as the upper end `high`.
  """

  n: int
  mean: float
  std: float | None = None
  low: float | None = None
  high: float | None = None

  def __str__(self) -> str:
    text = f'mean {self.mean:.4f}, '
    if self.std is not None:
      text += f'standard deviation {self.std:.4f}, '
    text += f'n {self.n}'
    if self.low is None:
      return f'{text} (no interval below {_MIN_FOR_INTERVAL} seeds)'
    return (
      f'{text}, 95% interval of the mean {self.low:.4f} to {self.high:.4f} '
      "(Student's t)"
    )


def spread(
  values: Sequence[float], least_for_interval: int = _MIN_FOR_INTERVAL
) -> Spread:
  """Returns mean, standard deviation and interval of one figure per seed."""
  values = np.asarray(values, np.float64)
  if not values.size or not np.isfinite(values).all():
    raise ValueError(f'values={values} must be finite numbers, one at least.')
  mean = float(values.mean())
  std = float(values.std(ddof=1)) if values.size > 1 else None
  if values.size < least_for_interval:
    return Spread(values.size, mean, std)
  reach = stats.t.ppf((1 + _CONFIDENCE) / 2, values.size - 1)
  half = float(reach * stats.sem(values))
  return Spread(values.size, mean, std, mean - half, mean + half)


def plan(given: dict[str, object]) -> list[child_runs.ChildRun]:
  """Returns the runs of a command line with `--seeds`, one for each seed.

  Seed n has the folder <run_dir>_seed<n>; without `--run_dir`, the one that
  `--seed=n` has.
  """
  if 'seed' in given:
    raise UsageError(
      f'--seed={given["seed"]} and --seeds={given["seeds"]} exclude each '
      'other: give one.'
    )
  one = {name: value for name, value in given.items() if name != 'seeds'}
  runs = []
  for seed in recipes.parse_seeds(given['seeds']):
    flags = {**one, 'seed': seed}
    if 'run_dir' in one:
      flags['run_dir'] = f'{os.path.normpath(one["run_dir"])}_seed{seed}'
    settings = recipes.make(flags)
    flags['run_dir'] = settings.run_dir
    runs.append(child_runs.ChildRun(f'seed {seed}', flags, settings))
  return runs


def plan_with_bounds(
  given: dict[str, object],
) -> list[tuple[child_runs.ChildRun, ...]]:
  """Returns the runs of a command line with `--seeds`, a bound, or both.

  Each stands before its bound, with `--with_lower_bound`.

  Raises:
    UsageError: If something else than to train them is asked for.
  """
  if form := given.get('export_form'):
    raise UsageError(
      f'--export_form={form} holds the process of one run: leave out --seeds '
      f'and --{lower_bound.FLAG}.'
    )
  if 'seeds' not in given:
    return [lower_bound.plan(given)]
  if given.get(lower_bound.FLAG):
    return [lower_bound.plan(one.given, one.name) for one in plan(given)]
  return [(one,) for one in plan(given)]


def run(given: dict[str, object], found: dict[str, object]) -> int:
  """Runs a command line with `--seeds`, `--with_lower_bound`, or both.

  Prints what the finished runs gave, puts it in `found`, and returns the exit
  code.
  """
  has_bounds = given.get(lower_bound.FLAG)
  runs = plan_with_bounds(given)
  outcome = child_runs.run_all(list(itertools.chain(*runs)), are_alike=True)
  if outcome.failed:
    print(f'error: {", ".join(outcome.failed)} failed.', file=sys.stderr)
  pairs = [[child.settings for child in own] for own in runs]
  done = [pair for pair in pairs if child_runs.is_finished(pair[0])]
  whole = [
    pair for pair in done if has_bounds and child_runs.is_finished(pair[1])
  ]
  if done:
    found['runs'] = [results.of_folder(own.run_dir) for own, *_ in done]
  if whole:
    found['bounds'] = [results.of_folder(alone.run_dir) for _, alone in whole]
  if 'seeds' not in given:
    for pair in whole:
      found['gain'] = lower_bound.gain(*pair)
      print(lower_bound.compare(*pair))
    return outcome.exit_code
  if done:
    measure, means = measures.of_last_evaluations(
      (own.run_dir, own.used) for own, *_ in done
    )
    last = spread([run['accuracy'] for run in found['runs']])
    found |= {'mean_of_last': vars(spread(means)), 'accuracy': vars(last)}
    print(
      f'Final test accuracy, {results.in_words(measure.argument)}: '
      f'{spread(means)}\nAfter the last round: {last}'
    )
  if whole:
    gain = spread([lower_bound.gain(*pair) for pair in whole])
    found['gain'] = vars(gain)
    bound = lower_bound.in_words(whole[0][1])
    print(f'Unlabelled examples gave, beyond {bound}: {gain}')
  return outcome.exit_code
