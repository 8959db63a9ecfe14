"""Schedules of the learning rate: their settings, and builders."""

from __future__ import annotations

from etils import epy

from experiments.parts.part import Part
from tff_ssl.common.setting import Setting

with epy.lazy_imports():
  from tff_ssl import optimizers


def _build_cosine(
  *, schedule_steps, schedule_coefficient, schedule_warmup_steps, schedule_scale
):
  return optimizers.cosine(
    schedule_steps,
    schedule_coefficient,
    schedule_warmup_steps,
    scale=schedule_scale,
  )


def _shorten_cosine(given, share):
  return {'schedule_scale': given.get('schedule_scale', 1.0) * share}


def _shorten_exponential(given, share):
  """Lets the rate fall as far in fewer rounds: the decay is by the round."""
  if 'schedule_decay' not in given:
    return {}
  return {'schedule_decay': given['schedule_decay'] ** (1 / share)}


SCHEDULES = {
  part.name: part
  for part in (
    Part('constant', lambda: None),
    Part(
      'cosine',
      _build_cosine,
      # The values of the grouping paper, Eq. 11.
      (
        Setting(
          'schedule_steps',
          int,
          'Cosine: E M / B, steps of the whole schedule.',
          default=100 * 1024,
          at_least=1,
        ),
        Setting(
          'schedule_coefficient',
          float,
          'Cosine: the coefficient c.',
          default=7 / 16,
          at_least=0,
        ),
        Setting(
          'schedule_warmup_steps',
          int,
          'Cosine: e M / B, steps of warm-up.',
          default=0,
          at_least=0,
        ),
        Setting(
          'schedule_scale',
          float,
          'Cosine: the factor by which the schedule is stretched.',
          default=1.0,
          above=0,
        ),
      ),
      shorten=_shorten_cosine,
    ),
    Part(
      'exponential',
      lambda *, schedule_decay: optimizers.exponential(schedule_decay),
      (
        Setting(
          'schedule_decay',
          float,
          'Exponential: the factor of each round, in (0, 1].',
          default=0.97,
          above=0,
          at_most=1,
        ),
      ),
      shorten=_shorten_exponential,
    ),
  )
}

SETTINGS = (
  Setting(
    'schedule',
    str,
    'Learning rate: constant, cosine over steps (grouping paper, Eq. 11) or '
    'exponential over rounds.',
    default='constant',
    choices=tuple(SCHEDULES),
  ),
)


def build(settings):
  """Returns the schedule, or `None` for a constant learning rate.

  Args:
    settings: What has `schedule` and the settings of that.
  """
  part = SCHEDULES[settings.schedule]
  values = {s.name: getattr(settings, s.name) for s in part.settings}
  return part.build(**values)
