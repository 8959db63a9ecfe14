"""Shortened runs: the flags of a run with a share of its rounds."""

import math


def shorten(given: dict[str, object], scale: float) -> dict[str, object]:
  """Returns what the flags of a run become when it is shortened.

  The rounds, those of pre-training and of supervised training, the clock of the
  learning-rate schedule, the rounds of warm-up and those between choices of
  helpers shrink together; pre-training, what follows it, the warm-up and the
  interval keep a round at least. A shortened run is evaluated ten times or
  more, or after each round.

  Args:
    given: The flags by name, `total_rounds` among them.
    scale: Share of the rounds, in (0, 1).

  Returns:
    The flags that change, of those that are given.
  """
  rounds = max(1, round(given['total_rounds'] * scale))
  shorter = {}
  if 'pretraining_rounds' in given:
    pretraining = round(given['pretraining_rounds'] * scale)
    if given['pretraining_rounds']:
      pretraining = max(1, pretraining)
    shorter['pretraining_rounds'] = pretraining
    rounds = max(rounds, pretraining + 1)
  shorter['total_rounds'] = rounds
  if 'supervised_rounds' in given:
    supervised = round(given['supervised_rounds'] * scale)
    shorter['supervised_rounds'] = min(supervised, rounds - 1)
  if given.get('schedule') == 'cosine':
    shorter['schedule_scale'] = given.get('schedule_scale', 1.0) * scale
  if 'schedule_decay' in given:
    # A factor per round: over the fewer rounds, the rate falls as far.
    shorter['schedule_decay'] = given['schedule_decay'] ** (1 / scale)
  for name in ('server_warmup_rounds', 'warmup_rounds', 'helper_interval'):
    if name in given:
      shorter[name] = math.ceil(given[name] * scale)
  if 'rounds_per_evaluation' in given:
    interval = max(1, min(given['rounds_per_evaluation'], rounds // 10))
    shorter['rounds_per_evaluation'] = interval
    if 'evaluation_offset' in given:
      # The same rounds as with the whole offset, and below the interval.
      shorter['evaluation_offset'] = given['evaluation_offset'] % interval
  return shorter
