"""How long a run takes on this machine, as a few rounds on the side tell."""

import math
import os
import time
from collections.abc import Sequence

import numpy as np
import tree

from experiments.config import catalogue
from experiments.measuring import evaluation
from experiments.preparing import building
from experiments.running import participants

# A round that would take longer is not timed whole.
_LONGEST_ROUND_S = 30.0
# The clients of a round may be few or none by chance.
_DRAWS = 9


def measure(
  opened: building.Run, cohorts: participants.Cohorts, rounds_left: int
) -> dict[str, float]:
  """Returns `seconds_per_round` of a run, and the `hours` that are left.

  It trains a few rounds from the initial model, which nothing keeps: those of
  the last phase, after the server's warm-up or pre-training.
  """
  settings = opened.settings
  begins = [rounds for _, rounds in catalogue.phases_of(settings.used)]
  # Of a run that ends before, all rounds are as the first.
  begin = max((n for n in begins if n < settings.total_rounds), default=0)
  state = tree.map_structure_with_path(
    lambda path, value: np.int32(begin) if path[-1] == 'round' else value,
    opened.process.initialize(),
  )
  per_round = _of_a_round(opened.process, state, typical_keys(cohorts, begin))
  test = opened.data.source.test
  evaluate = evaluation.Evaluator(opened.model, opened.views, test)
  weights = opened.over_data.read_model_weights(state)
  evaluate(weights)  # Compiles.
  evaluations = math.ceil(rounds_left / settings.rounds_per_evaluation)
  whole = rounds_left * per_round + evaluations * _timed(evaluate, weights)
  return {'seconds_per_round': per_round, 'hours': whole / 3600}


def typical_keys(
  cohorts: participants.Cohorts, round_num: int
) -> Sequence[np.ndarray]:
  """Returns the clients of the draw of median size, among several."""
  nobody_yet = participants.Participation()
  draws = [
    cohorts.draw(round_num, attempt, participation=nobody_yet).keys
    for attempt in range(_DRAWS)
  ]
  return sorted(draws, key=len)[_DRAWS // 2]


def _of_a_round(process, state, keys) -> float:
  """Returns the seconds of a round, or at most so many if it takes long."""
  # As many at once as there are cores, which share the others alike.
  few = min(len(keys), len(os.sched_getaffinity(0)))
  for count in sorted({few, len(keys)}):
    # The first time, it compiles.
    for _ in range(2):
      seconds = _timed(process.next, state, keys[:count])
      if seconds > _LONGEST_ROUND_S:
        break
    if seconds * len(keys) > _LONGEST_ROUND_S * count:
      return seconds * len(keys) / count
  return seconds


def _timed(function, *arguments) -> float:
  started = time.monotonic()
  function(*arguments)
  return time.monotonic() - started
