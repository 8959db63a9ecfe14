"""Cross-entropy with true labels (Zhang et al., Eqs. 3 and 6)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, check_arguments

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives import losses

SUPERVISED_LOSS = Setting(
  'supervised_loss',
  str,
  'cross_entropy, or double_softmax as in the code of FedUL for 10% of the '
  'labels.',
  choices=('cross_entropy', 'double_softmax'),
)

# The value of the setting that stands for weights by the sizes of the classes.
BALANCED = 'balanced'


def parse_class_weights(text: str) -> str | tuple[float, ...]:
  """Returns the positive numbers between commas of a text, or `BALANCED`."""
  if text == BALANCED:
    return text
  try:
    weights = tuple(float(part) for part in text.split(','))
  except ValueError:
    weights = ()
  if not _are_weights(weights):
    raise ValueError(
      f'class_weights={text} must be {BALANCED}, or a positive number for '
      'each class.'
    )
  return weights


def check_class_weights(weights: Sequence[float] | None) -> None:
  """Raises `ValueError` unless there is none, or one > 0 for each class."""
  if weights is not None and (
    isinstance(weights, str) or not _are_weights(weights)
  ):
    raise ValueError(
      f'class_weights={weights!r} must be a positive number for each class.'
    )


def _are_weights(weights: Sequence[float]) -> bool:
  return len(weights) > 0 and all(0 < w < math.inf for w in weights)


def forward_weak(views: protocols.Views, predict, batch, seed):
  """Returns the weak view of a minibatch, and its train-mode logits."""
  x = views.weak(batch['x'], randomness.fold_in(seed, 0))
  return x, predict(x, training=True, seed=randomness.fold_in(seed, 1))


CLASS_WEIGHTS = Setting(
  'class_weights',
  str,
  'Factors of the loss of labelled examples by class, for classes of unequal '
  'size: balanced (n / (d n_c), from all labels in training), or numbers '
  'such as 1,2.5. By default 1.',
  parse=parse_class_weights,
  refused=('even',),
  needed_by="a user's own data with classes of unequal size",
)


class Checked:
  """An objective whose fields its `settings` check when it is made."""

  settings: tuple[Setting, ...] = ()

  def __post_init__(self):
    check_arguments(self.settings, vars(self))
    check_class_weights(vars(self).get('class_weights'))


@dataclasses.dataclass(frozen=True)
class Supervised(Checked):
  """Mean cross-entropy on the weak view of the labelled examples of a batch.

  Examples without a label (`y` is -1) take no part: `LocalTraining` makes
  minibatches of the others, and where a minibatch holds some all the same, the
  mean runs over those that have a label. A batch without any has loss and
  gradient zero.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    supervised_loss: 'cross_entropy'; or 'double_softmax', which takes the
      probabilities for logits and so is never 0, as in the code of Lu et
      al. (arXiv 2204.03304) for FedAvg with 10% of the labels.
    class_weights: d positive factors of the loss of an example by its class, as
      in Keras; by default 1. The metric `loss` is without them.
  """

  views: protocols.Views
  supervised_loss: str = 'cross_entropy'
  class_weights: tuple[float, ...] | None = None

  metric_names = ('loss', 'accuracy')
  settings = (SUPERVISED_LOSS, CLASS_WEIGHTS)
  rows = 'labelled'

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    _, logits = forward_weak(self.views, predict, batch, seed)
    if self.supervised_loss == 'double_softmax':
      logits = tf.nn.softmax(tf.cast(logits, tf.float32))
    return losses.supervised(batch['y'], logits, self.class_weights)
