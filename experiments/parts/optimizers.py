"""Optimizers of clients and server, and schedules of their learning rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from etils import epy

from tff_ssl import shared_settings
from tff_ssl.common.choice import Choice, Registry
from tff_ssl.common.setting import Setting, needs_process, unless

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers


@dataclasses.dataclass(frozen=True)
class Optimizer(Choice):
  """An optimizer; its builder takes the learning rate first.

  Attributes:
    follows_gradients: Whether its steps are in proportion to the gradients, so
      that a process can divide by their number.
  """

  _: dataclasses.KW_ONLY
  follows_gradients: bool = True


@dataclasses.dataclass(frozen=True)
class Schedule(Choice):
  """A schedule of the learning rate.

  Attributes:
    shorten: From the flags of a run, by name, and the share of the rounds that
      a shortened run keeps, to the flags that change.
  """

  _: dataclasses.KW_ONLY
  shorten: Callable[[Mapping[str, Any], float], Mapping[str, Any]] = (
    lambda given, share: {}
  )


def _build_sgd(learning_rate, *, momentum, nesterov=False, weight_decay):
  return optimizers.build_nesterov_sgd(
    learning_rate, momentum, nesterov=nesterov, weight_decay=weight_decay
  )


def _build_adam(learning_rate, *, weight_decay):
  optimizer = tff.learning.optimizers.build_adam(learning_rate)
  if weight_decay:
    optimizer = optimizers.add_weight_decay(optimizer, weight_decay)
  return optimizer


def _build_cosine(
  *, schedule_steps, schedule_coefficient, schedule_warmup_steps, schedule_scale
):
  return optimizers.cosine(
    schedule_steps,
    schedule_coefficient,
    schedule_warmup_steps,
    scale=schedule_scale,
  )


def _shorten_exponential(given, share):
  """Lets the rate fall as far in fewer rounds: the decay is by the round."""
  if 'schedule_decay' not in given:
    return {}
  return {'schedule_decay': given['schedule_decay'] ** (1 / share)}


WEIGHT_DECAY = Setting(
  'weight_decay', float, 'Coupled weight decay.', default=1e-4, at_least=0
)
OPTIMIZERS: Registry[Optimizer] = Registry(
  'client_optimizer',
  (
    Optimizer(
      'sgd',
      'Stochastic gradient descent with momentum.',
      _build_sgd,
      (
        Setting(
          'momentum',
          float,
          'Momentum, in [0, 1).',
          default=0.9,
          at_least=0,
          below=1,
        ),
        Setting(
          'nesterov',
          bool,
          "Whether momentum is Nesterov's.",
          default=True,
          used_when=(unless('momentum', 0, 'leaves nothing to look ahead to'),),
        ),
        WEIGHT_DECAY,
      ),
    ),
    Optimizer(
      'adam',
      'Adam.',
      _build_adam,
      (WEIGHT_DECAY,),
      defaults={'weight_decay': 0.0},
      follows_gradients=False,
    ),
  ),
)
SCHEDULES: Registry[Schedule] = Registry(
  'schedule',
  (
    Schedule('constant', 'The same rate in all rounds.', lambda: None),
    Schedule(
      'cosine',
      'By steps, as in the grouping paper, Eq. 11.',
      _build_cosine,
      # The values of that equation.
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
          needed_by='a schedule that is shortened with its run',
        ),
      ),
      shorten=lambda given, share: {
        'schedule_scale': given.get('schedule_scale', 1.0) * share
      },
    ),
    Schedule(
      'exponential',
      'By rounds, each with a share of the rate of the one before.',
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
  ),
)

_CLIP_NORM = Setting(
  'client_clip_norm',
  float,
  "Largest norm of a client's gradient; by default, none is clipped.",
  above=0,
  used_when=(needs_process('has_client_training'),),
  needed_by='SemiFL, whose authors clip to 1',
)
# The settings of every optimizer.
SETTINGS = (
  Setting(
    'client_optimizer',
    str,
    "The clients' optimizer; also that of labelled training at the server.",
    default='sgd',
    choices=tuple(OPTIMIZERS),
  ),
  Setting(
    'learning_rate',
    float,
    "The clients' learning rate.",
    default=0.03,
    above=0,
    aliases=('client_learning_rate',),
  ),
  _CLIP_NORM,
  Setting(
    'schedule',
    str,
    'Learning rate: constant, cosine over steps (grouping paper, Eq. 11) or '
    'exponential over rounds.',
    default='constant',
    choices=tuple(SCHEDULES),
  ),
)
SERVER_SETTINGS = (
  dataclasses.replace(
    shared_settings.SERVER_LEARNING_RATE,
    used_when=(needs_process('has_server_training'),),
  ),
  dataclasses.replace(
    _CLIP_NORM,
    name='server_clip_norm',
    help="Largest norm of the server's gradient; by default "
    '--client_clip_norm.',
    like='client_clip_norm',
    used_when=(needs_process('has_server_training'),),
  ),
)


def build(settings, learning_rate: float, clip_norm: float | None):
  """Returns the `tff.learning.optimizers.Optimizer` that a run names.

  Without a norm, no gradient is clipped.
  """
  chosen = OPTIMIZERS[settings.client_optimizer]
  optimizer = chosen.builder(learning_rate, **chosen.arguments(vars(settings)))
  if clip_norm is None:
    return optimizer
  return optimizers.clip_gradients(optimizer, clip_norm)


def build_schedule(settings):
  """Returns the schedule that a run names; `None` for a constant rate."""
  chosen = SCHEDULES[settings.schedule]
  return chosen.builder(**chosen.arguments(vars(settings)))
