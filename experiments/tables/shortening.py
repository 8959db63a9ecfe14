"""Shortened runs: the flags of a run with a share of its rounds."""

import collections
import math

from experiments.config import parts_of_run


def shorten(given: dict[str, object], scale: float) -> dict[str, object]:
  """Returns what the flags of a run become when it is shortened.

  All settings that count rounds shrink together, each as its record says
  (`Setting.rounds`), and so does the schedule of the learning rate. A
  shortened run is evaluated ten times or more, or after each round.

  Args:
    given: The flags by name, `total_rounds` among them.
    scale: Share of the rounds, in (0, 1).

  Returns:
    The flags that change, of those that are given.

  Raises:
    UsageError: If there is no such schedule.
  """
  offers = parts_of_run.offers_of_user(given)
  settings = parts_of_run.all_settings(offers)
  counting: dict[str | None, list[str]] = collections.defaultdict(list)
  for name in given:
    counting[settings[name].rounds].append(name)
  rounds = max(1, round(given['total_rounds'] * scale))
  shorter = {}
  for name in counting['phase']:
    least = 1 if given[name] else 0
    shorter[name] = max(least, round(given[name] * scale))
    rounds = max(rounds, shorter[name] + 1)
  for name in counting['head']:
    shorter[name] = min(round(given[name] * scale), rounds - 1)
  for name in counting['share']:
    shorter[name] = math.ceil(given[name] * scale)
  shorter['total_rounds'] = rounds
  if 'schedule' in given:
    schedule = parts_of_run.find_schedule(given['schedule'])
    shorter |= schedule.shorten(given, scale)
  if 'rounds_per_evaluation' in given:
    interval = max(1, min(given['rounds_per_evaluation'], rounds // 10))
    shorter['rounds_per_evaluation'] = interval
    if 'evaluation_offset' in given:
      # The same rounds as with the whole offset, and below the interval.
      shorter['evaluation_offset'] = given['evaluation_offset'] % interval
  return shorter
