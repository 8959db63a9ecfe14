"""The optimizers of clients and server: their settings, and builders."""

from __future__ import annotations

import dataclasses

from etils import epy

from experiments.parts.part import Part
from tff_ssl import shared_settings
from tff_ssl.common.setting import Setting, needs_process, unless

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers

LEARNING_RATE = Setting(
  'learning_rate',
  float,
  "The clients' learning rate.",
  default=0.03,
  above=0,
  aliases=('client_learning_rate',),
)
WEIGHT_DECAY = Setting(
  'weight_decay', float, 'Coupled weight decay.', default=1e-4, at_least=0
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


OPTIMIZERS = {
  part.name: part
  for part in (
    Part(
      'sgd',
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
    Part(
      'adam',
      _build_adam,
      (WEIGHT_DECAY,),
      overrides={'weight_decay': 0.0},
      follows_gradients=False,
    ),
  )
}

_CLIP_NORM = Setting(
  'client_clip_norm',
  float,
  "Largest norm of a client's gradient; by default, none is clipped.",
  above=0,
  used_when=(needs_process('has_client_training'),),
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
  LEARNING_RATE,
  _CLIP_NORM,
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
  """Returns a `tff.learning.optimizers.Optimizer`.

  Args:
    settings: What has `client_optimizer` and the settings of that.
    learning_rate: The learning rate.
    clip_norm: Largest norm of a gradient; `None` clips none.
  """
  part = OPTIMIZERS[settings.client_optimizer]
  values = {s.name: getattr(settings, s.name) for s in part.settings}
  optimizer = part.build(
    learning_rate, **{k: v for k, v in values.items() if v is not None}
  )
  if clip_norm is None:
    return optimizer
  return optimizers.clip_gradients(optimizer, clip_norm)
