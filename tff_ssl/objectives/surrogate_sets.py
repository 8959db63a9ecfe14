"""FedUL: examples whose sets are known, and the class priors of the sets.

Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients (arXiv 2204.03304), Theorem 1. The `y` of an
example is the index of its set, and no class. A client has M sets; set m is a
share rho_m of its examples and holds class k with prior Pi_mk. Where the
classes look the same in all sets, the probability that an example x lies in set
m is that of the layer Q_c (`Transition`),

```math
q_m(x) = sum_k A_mk eta_k(x) / sum_jk A_jk eta_k(x)
A_mk = rho_m Pi_mk / pi_k
```

with eta the class posterior under the class prior pi of the test data. With
`a_k = sum_m A_mk` both of the sums over classes are logarithms of sums of
exponentials, and no more work than a softmax:

```math
-log q_y = logsumexp_k(log eta_k + log a_k) - logsumexp_k(log eta_k + log A_yk)
```

so that neither value nor gradient suffers where a probability underflows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from etils import epy

from tff_ssl import checks, protocols
from tff_ssl.common.setting import Setting, unless
from tff_ssl.objectives.supervised import Checked, forward_weak

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl.objectives import losses

# The logarithm of an impossible case: finite, so that no gradient is NaN, and
# further down than any logit takes a possible one.
_NEVER = -1e30
_POSSIBLE = _NEVER / 10

SURROGATE_LOSS = Setting(
  'surrogate_loss',
  str,
  'Loss of FedUL: log_transition, or published_code (a second softmax).',
  choices=('log_transition', 'published_code'),
)


def parse_prior(text: str) -> tuple[float, ...]:
  """Returns the numbers of a prior such as '0.5,0.3,0.2'."""
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
  needed_by='FedUL, Theorem 1',
)


def class_priors(
  batch: protocols.Structure, sets: tf.Tensor, logits: tf.Tensor
) -> tf.Tensor:
  """Returns the class priors of some sets, `float32 [n, d]`.

  A row is NaN where the client has no such set, so that it is left out of the
  round and counted. `ValueError` if the model gives logits of other classes.
  """
  table = batch['class_priors']
  if table.shape[1] != logits.shape[-1]:
    raise ValueError(
      f'priors_shape={tuple(table.shape)} of data_spec has {table.shape[1]} '
      f'classes, but the model gives {logits.shape[-1]} outputs: build the '
      'model with as many classes.'
    )
  priors = tf.one_hot(sets, tf.shape(table)[0]) @ table
  is_known = tf.reduce_sum(priors, axis=-1, keepdims=True) > 0
  return tf.where(is_known, priors, float('nan'))


def count_right(
  classes: tf.Tensor, batch: protocols.Structure, mask: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
  """Counts right classes, and those that are known, where the mask is 1."""
  if mask is None:
    mask = tf.ones(tf.shape(classes))
  unknown = tf.fill(tf.shape(classes), -1)
  truth = collections.OrderedDict(y=batch.get('true_y', unknown))
  return losses.pseudo_label_accuracy(classes, mask, truth)


class Transition(NamedTuple):
  """The layer Q_c of one client.

  Attributes:
    log_joint: log A, `float [M, d]`; at most -1e29 where A is 0.
    log_classes: log a, `float [d]`, likewise.
  """

  log_joint: tf.Tensor
  log_classes: tf.Tensor

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """Returns Q_c, the posteriors of the sets, `float [n, M]`.

    As the client's own class posteriors times the shares of the sets in each
    class, `A_mk / a_k`: small ones underflow to 0, as those of sets without
    examples or without classes are. The softmax of `logits` is eta.
    """
    classes = tf.nn.softmax(tf.nn.log_softmax(logits) + self.log_classes)
    sets_of_class = tf.where(
      self.log_joint > _POSSIBLE, tf.exp(self.log_joint - self.log_classes), 0
    )
    return tf.matmul(classes, sets_of_class, transpose_b=True)

  def log_loss(self, logits: tf.Tensor, sets: tf.Tensor) -> tf.Tensor:
    """Returns the cross-entropy -log q_y (Eqs. 6 and 9, Theorem 4), in nats.

    It is NaN for an example of a set that does not exist or has no share or no
    class, so that a client whose sets contradict its constants is left out of
    the round and counted.
    """
    log_eta = tf.nn.log_softmax(logits)
    index, exists = self._find(sets)
    log_own = tf.reduce_logsumexp(
      log_eta + tf.gather(self.log_joint, index), axis=1
    )
    log_all = tf.reduce_logsumexp(log_eta + self.log_classes, axis=1)
    return tf.where(exists, log_all - log_own, np.nan)

  def published_code_loss(
    self, logits: tf.Tensor, sets: tf.Tensor
  ) -> tf.Tensor:
    """Returns the authors' code's loss: cross-entropy of the softmax of Q_c.

    Their code gives the probabilities to a loss that takes logits. As logits
    they lie in [0, 1], so that even a perfect model keeps a loss of about
    log(1 + (M - 1) / e). Sets without examples take no part.
    """
    index, exists = self._find(sets)
    scores = tf.where(self._exist(), self.probabilities(logits), _NEVER)
    log_p = tf.gather(tf.nn.log_softmax(scores), index, batch_dims=1)
    return tf.where(exists, -log_p, np.nan)

  def _exist(self):
    return tf.reduce_any(self.log_joint > _POSSIBLE, axis=1)

  def _find(self, sets):
    """Returns indices that are in range, and whether these sets exist."""
    index = tf.clip_by_value(sets, 0, tf.shape(self.log_joint)[0] - 1)
    return index, tf.equal(index, sets) & tf.gather(self._exist(), index)


def build_transition(
  class_priors: tf.Tensor,
  set_shares: tf.Tensor,
  test_prior: Sequence[float] | None = None,
) -> Transition:
  """Makes the layer of a client (Theorem 1).

  Args:
    class_priors: Pi, `float [M, d]`; rows of sets that the client does not have
      are zeros.
    set_shares: rho, `float [M]`.
    test_prior: pi, d positive numbers; by default uniform.
  """
  log_joint = tf.math.log(set_shares)[:, tf.newaxis] + tf.math.log(class_priors)
  if test_prior is not None:
    # Of a uniform one, the logarithm is the same for all.
    log_joint -= tf.constant(np.log(test_prior), log_joint.dtype)
  log_joint = tf.maximum(log_joint, _NEVER)
  return Transition(log_joint, tf.reduce_logsumexp(log_joint, axis=0))


@dataclasses.dataclass(frozen=True)
class SurrogateSets(Checked):
  """Cross-entropy of the index of an example's set, through the layer Q_c.

  Source: Lu et al. (arXiv 2204.03304), Eqs. 6, 8 and 9. The client's
  `class_priors` and `set_shares` stand beside the minibatch. What is learnt is
  the class posterior, the model without the layer.

  The metrics are `loss`; `accuracy`, the share of right classes among examples
  whose `true_y` a simulation knows; and `set_accuracy`, of right sets among
  all.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    surrogate_loss: 'log_transition', -log Q_c (Theorem 4); or 'published_code',
      as `tff_ssl.objectives.surrogate_sets.Transition` describes it.
    test_prior: pi, one positive number per class; by default uniform.
  """

  views: protocols.Views
  surrogate_loss: str = 'log_transition'
  test_prior: tuple[float, ...] | None = None

  metric_names = ('loss', 'accuracy', 'set_accuracy')
  settings = (SURROGATE_LOSS, TEST_PRIOR)

  def __post_init__(self):
    super().__post_init__()
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
    del anchors
    _, logits = forward_weak(self.views, predict, batch, seed)
    logits = tf.cast(logits, tf.float32)
    layer = build_transition(
      batch['class_priors'], batch['set_shares'], self.test_prior
    )
    loss = (
      layer.log_loss
      if self.surrogate_loss == 'log_transition'
      else layer.published_code_loss
    )
    total = tf.reduce_sum(loss(logits, batch['y']))
    count = tf.cast(tf.size(batch['y']), tf.float32)
    right_sets = tf.equal(_largest(layer.probabilities(logits)), batch['y'])
    return total / tf.maximum(count, 1.0), collections.OrderedDict(
      loss=(total, count),
      accuracy=count_right(_largest(logits), batch),
      set_accuracy=(tf.reduce_sum(tf.cast(right_sets, tf.float32)), count),
    )


def _largest(scores):
  return tf.argmax(scores, axis=1, output_type=tf.int32)
