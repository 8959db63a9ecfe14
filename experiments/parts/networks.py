"""The network of a run: its settings, and a function that builds it."""

from __future__ import annotations

from etils import epy

from tff_ssl import models
from tff_ssl.common.setting import Setting
from tff_ssl.models import NORM

with epy.lazy_imports():
  import tensorflow as tf

PRECISIONS = ('float32', 'bfloat16')

SETTINGS = (
  Setting(
    'model',
    str,
    'Name of the network (--list names them), or module:FUNCTION of your own, '
    'called with input_shape, num_classes and norm (for texts, num_tokens, '
    'too).',
    default='small_cnn',
  ),
  NORM,
  Setting(
    'precision',
    str,
    'Precision of the computations in the network; its weights are float32.',
    default='float32',
    choices=PRECISIONS,
    group='run',
  ),
)


def build(
  settings, input_shape, num_classes: int, num_tokens: int | None = None
):
  """Returns the `FunctionalModel` of a run; its weights are float32.

  Args:
    settings: What has `model`, `norm` and `precision`.
    input_shape: Height, width and channels; features; or words of a text.
    num_classes: Number of classes.
    num_tokens: For texts, how many numbers words may have.
  """
  earlier = tf.keras.mixed_precision.global_policy()
  if settings.precision == 'bfloat16':
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
  try:
    return models.build(
      settings.model, input_shape, num_classes, settings.norm, num_tokens
    )
  finally:
    tf.keras.mixed_precision.set_global_policy(earlier)
