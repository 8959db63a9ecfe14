"""FedUL's objective: which set does an example come from?"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import checks, protocols
from tff_ssl.common.setting import Setting, unless

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives.maths import class_priors, transition

SURROGATE_LOSS = Setting(
  'surrogate_loss',
  str,
  'Loss of FedUL: log_transition, or published_code (a second softmax).',
  choices=('log_transition', 'published_code'),
)


def parse_prior(text: str) -> tuple[float, ...]:
  """Returns the numbers of a prior such as '0.5,0.3,0.2'.

  Args:
    text: Numbers between commas.

  Raises:
    ValueError: If it is something else, or no distribution without zeros.
  """
  try:
    prior = tuple(float(part) for part in text.split(','))
  except ValueError as error:
    raise ValueError(
      f'test_prior={text} must be numbers between commas, such as 0.5,0.3,0.2.'
    ) from error
  checks.positive_distribution(test_prior=prior)
  return prior


TEST_PRIOR = Setting(
  'test_prior',
  str,
  'Class prior of the test data, such as 0.5,0.3,0.2, in the order of the '
  'classes; by default uniform.',
  parse=parse_prior,
  optional=True,
  used_when=(
    unless('surrogate_loss', 'published_code', 'takes it as uniform'),
  ),
  refused=((0.5, 0.5), (0.2,) * 10, (0.0, 0.2) * 5, 'uniform'),
)


@dataclasses.dataclass(frozen=True)
class SurrogateSets:
  """Cross-entropy of the index of an example's set, through the layer Q_c.

  Source: Lu et al. (arXiv 2204.03304), Eqs. 6, 8 and 9. A minibatch's `y` is
  the index of the set, and the client's `class_priors` and `set_shares` stand
  beside it. What is learnt is the class posterior, the model without the layer.

  The metrics are `loss`; `accuracy`, the share of right classes among examples
  whose `true_y` a simulation knows; and `set_accuracy`, of right sets among
  all.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    surrogate_loss: 'log_transition', -log Q_c (Theorem 4); or 'published_code',
      as `transition.Transition` describes it.
    test_prior: pi, one positive number per class; by default uniform.
  """

  views: protocols.Views
  surrogate_loss: str = 'log_transition'
  test_prior: tuple[float, ...] | None = None

  metric_names = ('loss', 'accuracy', 'set_accuracy')

  def __post_init__(self):
    SURROGATE_LOSS.check(self.surrogate_loss)
    if self.test_prior is None:
      return
    checks.positive_distribution(test_prior=self.test_prior)
    if self.surrogate_loss == 'published_code':
      raise ValueError(
        f'test_prior={self.test_prior!r} does not fit '
        "surrogate_loss='published_code', which takes it for uniform: leave "
        "it out, or choose 'log_transition'."
      )

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    logits = tf.cast(
      predict(x, training=True, seed=randomness.fold_in(seed, 1)), tf.float32
    )
    layer = transition.build_transition(
      batch['class_priors'], batch['set_shares'], self.test_prior
    )
    loss = (
      layer.log_loss
      if self.surrogate_loss == 'log_transition'
      else layer.published_code_loss
    )
    sets = batch['y']
    total = tf.reduce_sum(loss(logits, sets))
    count = tf.cast(tf.size(sets), tf.float32)
    return total / tf.maximum(count, 1.0), collections.OrderedDict(
      loss=(total, count),
      accuracy=class_priors.count_right(_largest(logits), batch),
      set_accuracy=(
        tf.reduce_sum(
          tf.cast(
            tf.equal(_largest(layer.probabilities(logits)), sets), tf.float32
          )
        ),
        count,
      ),
    )


def _largest(scores):
  return tf.argmax(scores, axis=1, output_type=tf.int32)
