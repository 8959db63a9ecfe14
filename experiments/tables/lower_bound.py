"""A run with its lower bound beside it: what do unlabelled examples give?

`--with_lower_bound` trains on the labels alone, too, with the same seed, data,
network, rounds, average over rounds, weight decay, and as many steps:
`server_only` where the server has them, else `fedavg`, in <run_dir>_<process>.
For processes whose clients do not augment it is `fsl`, which does not, either.
The difference of both is what the clients' unlabelled examples gave.

Its rate, momentum and schedule are what was given beside the recipe, if
anything, or else those of its process on these data, which suit it better than
the run's own.
"""

import math
import os
from collections.abc import Mapping

from experiments.artifacts import results
from experiments.config import catalogue
from experiments.config import settings as settings_lib
from experiments.preparing import data
from experiments.tables import child_runs, measures, recipes

FLAG = 'with_lower_bound'
_IN_WORDS = {
  'server_only': 'the server alone',
  'fedavg': 'the labels alone',
  'fsl': 'the labels alone',
}
# How weights are changed, by any participant.
_OPTIMIZING = {
  row.setting.name
  for row in catalogue.every_row()
  if row.flag in ('client_optimizer', 'schedule')
  or (row.flag is None and row.heading.endswith(' training'))
}
# Weight decay is left to the run: what it gives to few labels, as an average
# over rounds does, is not given by unlabelled examples.
_OF_THE_RUN = {'recipe', 'recipe_scale', *(_OPTIMIZING - {'weight_decay'})}


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
  alone = ', '.join(filter(None, (name, in_words(bound))))
  return (
    child_runs.ChildRun(name or settings.process, flags, settings),
    child_runs.ChildRun(alone, bound.used, bound),
  )


def in_words(bound) -> str:
  """Returns what trains in the run of a bound, by its settings."""
  return _IN_WORDS[bound.process]


def _settings_of_bound(settings, flags):
  """Returns the settings of the labels alone, for those of the run."""
  needs = catalogue.find('process', settings.process).needs
  if needs.labels_at == 'server':
    process = 'server_only'
  else:
    process = 'fsl' if needs.views == 'none' else 'fedavg'
  values = {k: v for k, v in settings.used.items() if k not in _OF_THE_RUN}
  if not data.hides_labels(settings):
    values.pop('mask_ratio', None)
    values.pop('mask', None)
  values |= {
    'process': process,
    'run_dir': f'{os.path.normpath(settings.run_dir)}_{process}',
  }
  if settings.server_epochs:
    # The steps of so many passes.
    passes = math.ceil(settings.server_examples / settings.server_batch_size)
    values['server_steps'] = settings.server_epochs * passes
  if tau := settings.labelled_steps:
    values['local_steps'] = tau + (settings.unlabelled_steps or tau)
  elif settings.local_epochs:
    # The run's passes go over what has no label, too.
    values['match_local_steps'] = True
  values |= {name: flags[name] for name in _OPTIMIZING & flags.keys()}
  return settings_lib.make(values, optional=values)


def compare(settings, bound) -> str:
  """Returns a sentence on what a run gave beyond its bound, both finished."""
  measure, (own, alone) = _figures(settings, bound)
  last = [results.read(each.run_dir)['accuracy'] for each in (settings, bound)]
  return (
    f'Unlabelled examples gave {own - alone:+.4f}: {own:.4f} with '
    f'{settings.process}, {alone:.4f} with {in_words(bound)}'
    f'{_changes(settings, bound)} (test accuracy, '
    f'{results.in_words(measure.argument)}; {last[0] - last[1]:+.4f} after the '
    f'last round; seed {settings.seed}, which decides which examples are '
    'labelled: compare several with --seeds).'
  )


def _changes(settings, bound) -> str:
  """Returns how the optimizer of a bound differs from that of the run."""
  # What a server alone has none of, a client's rate, is like its own.
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
