"""The result of a run: summary.json, the curves, and what is printed."""

import json
import pathlib

import pandas as pd

from experiments.artifacts import curves
from experiments.measuring import (
  client_evaluation,
  evaluation,
  proxy_evaluation,
)

# Processes whose results say how good one between them is, with what each is.
_BOUNDS = (
  ('server_only', 'labels of the server alone'),
  ('fedavg', 'all labels at clients'),
)


def write(settings, folder, weights, facts) -> list[str]:
  """Writes summary.json and the curves of a finished run.

  Args:
    settings: From `experiments.config.settings.make`.
    folder: The `RunFolder`, which holds its metrics.
    weights: The `ModelWeights` at the end.
    facts: What the summary says of data and messages.

  Returns:
    What is printed of the result.
  """
  table = pd.read_csv(folder.metrics)
  # Before, the classifier does not train.
  pretraining = settings.pretraining_rounds or 0
  accuracy = table.loc[table['round'] > pretraining, 'accuracy'].dropna()
  half = table.loc[accuracy.index[accuracy >= 0.5], 'round'] - pretraining
  summary = {
    'process': settings.process,
    'dataset': settings.dataset,
    'data': facts['data'],
    'model': settings.model,
    'norm': settings.norm,
    'seed': settings.seed,
    'rounds': int(table['round'].iloc[-1]),
    'accuracy': accuracy.iloc[-1],
    'best_accuracy': accuracy.max(),
    'rounds_to_half': int(half.iloc[0]) if len(half) else None,
    'test_loss': evaluation.last_test_loss(table),
    'weights_sha256': evaluation.weights_sha256(weights),
    'seconds': table['seconds'].sum(),
    'seconds_per_round': table['seconds'].median(),
    'seconds_per_client': (
      table['seconds'].median() / settings.clients_per_round
      if settings.clients_per_round
      else None
    ),
    **_passes(table),
    **facts,
    **evaluation.validation_figures(table, pretraining),
    **client_evaluation.last_figures(table),
    **proxy_evaluation.loss_figures(table, pretraining),
    'flags': settings.used,
  }
  folder.write_summary(summary)
  curves.plot(
    folder.metrics,
    folder.path / 'curves.png',
    f'{settings.process} on {settings.dataset}, seed {settings.seed}',
  )
  return [
    f'Final test accuracy {summary["accuracy"]:.4f} after '
    f'{summary["rounds"]} rounds (best {summary["best_accuracy"]:.4f}, '
    f'{facts["test_examples"]} test examples), in {summary["seconds"]:.0f} s.',
    *_bounds_beside(folder.path, summary),
    f'Results are in {folder.path}',
  ]


def _bounds_beside(path: pathlib.Path, summary) -> list[str]:
  """Returns the results of bounds whose finished runs are in folders beside."""
  lines = []
  for process, what in _BOUNDS:
    name = f'{process}_{summary["dataset"]}_seed{summary["seed"]}'
    other = path.absolute().parent / name / 'summary.json'
    if process == summary['process'] or not other.exists():
      continue
    bound = json.loads(other.read_text())
    lines.append(
      f'  {process} ({what}): {bound["accuracy"]:.4f} after '
      f'{bound["rounds"]} rounds'
    )
  return ['Bounds in folders beside it:', *lines] if lines else []


def _passes(table) -> dict[str, float]:
  """Returns what summary.json says of passes; nothing without clients.

  Rounds in which no client trained do not count.
  """
  return {
    f'{name}_per_client': float(table[name].median())
    for name in ('forward_passes', 'backward_passes')
    if name in table
  }
