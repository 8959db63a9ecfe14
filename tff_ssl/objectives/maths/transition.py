"""From class posteriors to posteriors of a client's sets: FedUL's layer Q_c.

Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients (arXiv 2204.03304), Theorem 1. A client has M
sets; set m is a share rho_m of its examples and holds class k with prior
Pi_mk. Where the classes look the same in all sets, the probability that an
example x lies in set m is

```
q_m(x) = sum_k A_mk eta_k(x) / sum_jk A_jk eta_k(x)
A_mk = rho_m Pi_mk / pi_k
```

with eta the class posterior under the class prior pi of the test data. With
`a_k = sum_m A_mk` both of the sums over classes are logarithms of sums of
exponentials, and no more work than a softmax:

```
-log q_y = logsumexp_k(log eta_k + log a_k) - logsumexp_k(log eta_k + log A_yk)
```

so that neither value nor gradient suffers where a probability underflows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# The logarithm of an impossible case: finite, so that no gradient is NaN, and
# further down than any logit takes a possible one.
_NEVER = -1e30
_POSSIBLE = _NEVER / 10


class Transition(NamedTuple):
  """The layer Q_c of one client.

  Attributes:
    log_joint: log A, `float [M, d]`; at most -1e29 where A is 0.
    log_classes: log a, `float [d]`, likewise.
  """

  log_joint: tf.Tensor
  log_classes: tf.Tensor

  def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
    """Returns Q_c, the posteriors of the sets.

    As the client's own class posteriors times the shares of the sets in each
    class, `A_mk / a_k`: small ones underflow to 0.

    Args:
      logits: `float [n, d]` of the classes; their softmax is eta.

    Returns:
      `float [n, M]`; 0 for sets without examples or without classes.
    """
    classes = tf.nn.softmax(tf.nn.log_softmax(logits) + self.log_classes)
    sets_of_class = tf.where(
      self.log_joint > _POSSIBLE, tf.exp(self.log_joint - self.log_classes), 0
    )
    return tf.matmul(classes, sets_of_class, transpose_b=True)

  def log_loss(self, logits: tf.Tensor, sets: tf.Tensor) -> tf.Tensor:
    """The surrogate task's cross-entropy -log q_y (Eqs. 6 and 9, Theorem 4).

    Args:
      logits: `float [n, d]` of the classes.
      sets: The set of each example, `int32 [n]`.

    Returns:
      `float [n]`, in nats. NaN for an example of a set that does not exist or
      has no share or no class, so that a client whose sets contradict its
      constants is left out of the round and counted.
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
    """The loss of the authors' code: cross-entropy of the softmax of Q_c.

    Their code gives the probabilities to a loss that takes logits. As logits
    they lie in [0, 1], so that even a perfect model keeps a loss of about
    log(1 + (M - 1) / e). Sets without examples take no part.

    Args:
      logits: `float [n, d]` of the classes.
      sets: The set of each example, `int32 [n]`.

    Returns:
      `float [n]`, in nats; NaN as in `log_loss`.
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
    set_shares: rho, `float [M]`, of the same type.
    test_prior: pi, d positive numbers; by default uniform.

  Returns:
    A `Transition`.
  """
  log_joint = tf.math.log(set_shares)[:, tf.newaxis] + tf.math.log(class_priors)
  if test_prior is not None:
    # Of a uniform one, the logarithm is the same for all.
    log_joint -= tf.constant(np.log(test_prior), log_joint.dtype)
  log_joint = tf.maximum(log_joint, _NEVER)
  return Transition(log_joint, tf.reduce_logsumexp(log_joint, axis=0))
