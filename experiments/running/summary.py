"""The result of a run: summary.json, pictures, and what is printed."""

import statistics
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.artifacts import csv_files, pictures, results, run_folder
from experiments.config import catalogue
from experiments.measuring import (
  client_evaluation,
  evaluation,
  proxy_evaluation,
)


def write(
  settings,
  folder: run_folder.RunFolder,
  weights,
  facts: Mapping[str, Any],
  by_class: evaluation.ClassFigures,
) -> list[str]:
  """Writes curves, confusion matrix and summary.json of a finished run.

  `weights` are the `ModelWeights` at the end, `facts` what the summary says of
  data and messages. Returns what is printed of the result.
  """
  csv_files.write_table(
    by_class.confusion(),
    folder.path / run_folder.CONFUSION,
    index_label='true class',
  )
  metrics_csv = folder.path / run_folder.METRICS
  found = _summarize(
    pd.read_csv(metrics_csv), settings, weights, facts, by_class
  )
  title = f'{settings.process} on {settings.dataset}, seed {settings.seed}'
  pictures.draw_curves(
    metrics_csv,
    folder.path / 'curves.png',
    title,
    catalogue.phases_of(settings.used),
  )
  # Last: a folder with a summary is taken for that of a finished run.
  results.write(folder, found)
  return [
    f'Final test accuracy {found["accuracy"]:.4f} after '
    f'{found["rounds"]} rounds '
    f'({results.in_words(found["evaluations_in_mean"])} '
    f'{found["mean_of_last"]:.4f}, best {found["best_accuracy"]:.4f}, '
    f'{facts["test_examples"]} test examples), in {found["seconds"]:.0f} s.',
    *_privacy_spent(found),
    f'Results are in {folder.path}',
  ]


def _summarize(
  table: pd.DataFrame, settings, weights, facts, by_class
) -> dict[str, Any]:
  """Returns what summary.json says; `table` is metrics.csv."""
  # Before, the classifier does not train.
  pretraining = settings.pretraining_rounds or 0
  accuracy = table[table['round'] > pretraining].set_index('round')['accuracy']
  accuracy = accuracy.dropna()
  last = results.last_evaluations(
    accuracy.rename(lambda number: number - 1).to_dict(),
    results.LAST_EVALUATIONS,
    results.idle_rounds(settings.used),
  )
  half = accuracy.index[accuracy >= 0.5] - pretraining
  seconds = table['seconds'].median()
  clients = settings.clients_per_round
  return {
    'process': settings.process,
    'dataset': settings.dataset,
    'data': facts['data'],
    'model': settings.model,
    'norm': settings.norm,
    'seed': settings.seed,
    'rounds': int(table['round'].iloc[-1]),
    'clients_per_round': clients,
    'accuracy': accuracy.iloc[-1],
    'mean_of_last': statistics.fmean(last),
    'evaluations_in_mean': len(last),
    'best_accuracy': accuracy.max(),
    **by_class.summary(),
    'rounds_to_half': int(half[0]) if len(half) else None,
    'test_loss': evaluation.last_test_loss(table),
    'weights_sha256': evaluation.weights_sha256(weights),
    'seconds': table['seconds'].sum(),
    'seconds_per_round': seconds,
    'seconds_per_client': seconds / clients if clients else None,
    **_passes(table),
    **facts,
    **evaluation.validation_figures(table, pretraining),
    **client_evaluation.last_figures(table),
    **proxy_evaluation.loss_figures(table, pretraining),
    'flags': settings.used,
  }


def _privacy_spent(summary: Mapping[str, Any]) -> list[str]:
  if 'epsilon' not in summary:
    return []
  return [
    f'Differential privacy of clients: epsilon {summary["epsilon"]:.3g} at '
    f'delta {summary["delta"]:.2g}; what that assumes and does not cover is in '
    'summary.json.'
  ]


def _passes(table) -> dict[str, float]:
  """Returns what summary.json says of passes; nothing without clients.

  Rounds in which no client trained do not count.
  """
  return {
    f'{name}_per_client': float(table[name].median())
    for name in ('forward_passes', 'backward_passes')
    if name in table and table[name].notna().any()
  }
