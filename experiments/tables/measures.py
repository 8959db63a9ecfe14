"""Measures: the one number of a run that is compared with a published figure.

A measure is read from the metrics of a run, the columns of its metrics.csv, but
for costs, which are read from its summary.json:

    accuracy       test accuracy after the last round
    best_accuracy  the highest test accuracy of the rounds that were evaluated
    accuracy@R     test accuracy after round R
    mean_of_last@N mean test accuracy of the last N rounds that were evaluated,
                   which varies less by chance than that of a single round; the
                   warm-up of a server is left out
    rounds_to@A    the first evaluated round after which test accuracy is A or
                   more
    accuracy_at_best_validation
                   test accuracy after the evaluated round with the highest
                   validation accuracy, the first one if there are several

    seconds_per_client, forward_passes_per_client, backward_passes_per_client
                   what a client costs in a round, as summary.json has it: the
                   median over rounds; passes are examples

Rounds are counted from 0, as in the tables: accuracy@0 is the accuracy after
one round. Rounds of pre-training do not count: the first round after them is
number 0.
"""

import csv
import dataclasses
import json
import math
import os
import pathlib
import re
import statistics
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.artifacts import results

_COSTS = (
  'seconds_per_client',
  'forward_passes_per_client',
  'backward_passes_per_client',
)
_PLAIN = ('accuracy', 'best_accuracy', 'accuracy_at_best_validation', *_COSTS)
_FORMS = (
  f'{", ".join(_PLAIN)}, accuracy@ROUND, mean_of_last@EVALUATIONS or '
  'rounds_to@ACCURACY'
)


@dataclasses.dataclass(frozen=True)
class Measure:
  """A number to read from a run.

  Attributes:
    kind: The part before the "@".
    argument: The part after it: a round, counted from 0, a number of
      evaluations or an accuracy in (0, 1]. `None` for a measure without it.
  """

  kind: str
  argument: int | float | None = None

  def __str__(self) -> str:
    return (
      self.kind if self.argument is None else f'{self.kind}@{self.argument}'
    )

  @property
  def counts_rounds(self) -> bool:
    """Whether the value is a number of rounds rather than an accuracy."""
    return self.kind == 'rounds_to'

  @property
  def is_cost(self) -> bool:
    """Whether the value is what a client costs rather than an accuracy."""
    return self.kind in _COSTS

  def published(self, text: str) -> float:
    """Returns the figure that a cell of a table has; a `ValueError` if none."""
    if self.counts_rounds:
      if not re.fullmatch('[0-9]+', text):
        raise ValueError(f'{text!r} must be a whole number of rounds, or empty')
      return float(text)
    kind, most = 'an accuracy in [0, 1]', 1.0
    if self.is_cost:
      kind, most = 'a number that is at least 0', sys.float_info.max
    try:
      value = float(text)
    except ValueError:
      value = math.nan
    if not 0 <= value <= most:
      raise ValueError(f'{text!r} must be {kind}, or empty')
    return value

  def of_run(
    self,
    run_dir: str | os.PathLike,
    pretraining_rounds: int = 0,
    scale: float = 1.0,
    idle_rounds: int = 0,
  ) -> float | None:
    """Returns its value for a run.

    Args:
      scale: The share of the rounds that a shortened run has. `@R` counts the
        rounds of the whole run; the corresponding round is read.
      idle_rounds: The first rounds, in which no client trains; a mean leaves
        them out, unless there are no others.

    Returns:
      An accuracy in [0, 1], a number of rounds or a cost. `None` if the
      accuracy was not reached, the round was not evaluated, fewer rounds were
      evaluated than are to be averaged, or no client trained.
    """
    if self.is_cost:
      summary = pathlib.Path(run_dir, 'summary.json').read_text()
      return json.loads(summary).get(self.kind)
    rounds, accuracies = _read(run_dir, pretraining_rounds)
    if not accuracies:
      return None
    if self.kind == 'best_accuracy':
      return max(accuracies.values())
    if self.kind == 'mean_of_last':
      idle = idle_rounds - pretraining_rounds
      last = results.last_evaluations(accuracies, self.argument, idle)
      return statistics.fmean(last) if len(last) == self.argument else None
    if self.kind == 'accuracy_at_best_validation':
      _, validated = _read(run_dir, pretraining_rounds, 'validation_accuracy')
      if not validated:
        return None
      return accuracies[max(validated, key=validated.get)]
    if self.counts_rounds:
      enough = (n for n, x in accuracies.items() if x >= self.argument)
      return min(enough, default=None)
    # In tables of 100 rounds, "round 100" is the last one.
    if self.argument is None:
      return accuracies.get(rounds - 1)
    wanted = round(self.argument * scale)
    return accuracies.get(rounds - 1 if wanted == rounds else wanted)


ACCURACY = Measure('accuracy')


def of_last_evaluations(
  runs: Iterable[tuple[str | os.PathLike, Mapping[str, Any]]],
) -> tuple[Measure, list[float | None]]:
  """Returns the mean of as many last evaluations as all runs have, up to 5.

  Args:
    runs: The folder of each run, and its flags.

  Returns:
    The measure, and its value for each run.
  """
  runs = list(runs)
  for number in range(results.LAST_EVALUATIONS, 0, -1):
    measure = Measure('mean_of_last', number)
    values = [
      measure.of_run(
        folder,
        flags.get('pretraining_rounds') or 0,
        idle_rounds=results.idle_rounds(flags),
      )
      for folder, flags in runs
    ]
    if None not in values:
      break
  return measure, values


def parse(text: str) -> Measure:
  """Returns the measure that a text names; an empty one means `accuracy`."""
  if text in ('', *_PLAIN):
    return Measure(text or 'accuracy')
  kind, _, argument = text.partition('@')
  if kind == 'accuracy' and re.fullmatch('[0-9]+', argument):
    return Measure(kind, int(argument))
  if kind == 'mean_of_last' and re.fullmatch('[1-9][0-9]*', argument):
    return Measure(kind, int(argument))
  if kind == 'rounds_to' and re.fullmatch(r'[0-9]*\.?[0-9]+', argument):
    accuracy = float(argument)
    if 0 < accuracy <= 1:
      return Measure(kind, accuracy)
  raise ValueError(
    f'{text!r} must be {_FORMS}, with rounds counted from 0 and an accuracy '
    'above 0 and at most 1'
  )


def _read(
  run_dir, pretraining_rounds, column='accuracy'
) -> tuple[int, dict[int, float]]:
  """Returns the number of rounds and the accuracies by round, from 0."""
  path = pathlib.Path(run_dir) / 'metrics.csv'
  rounds, accuracies = 0, {}
  with path.open(newline='', encoding='utf-8') as file:
    for row in csv.DictReader(file):
      number = int(row['round']) - pretraining_rounds - 1
      if number >= 0:
        rounds = number + 1
        if row.get(column):
          accuracies[number] = float(row[column])
  return rounds, accuracies
