"""From class posteriors to posteriors of a client's sets: FedUL's layer Q_c.

Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients (arXiv 2204.03304), Theorem 1. A client has M
sets; set m is a share rho_m of its examples and holds class k with prior
Pi_mk. Where the classes look the same in all sets, the probability that an
example x lies in set m is

```
q_m(x) = rho_m sum_k Pi_mk eta_k(x) / pi_k  /  sum_j (the same of set j)
```

with eta the class posterior under the class prior pi of the test data. It is
computed in log space, so that neither value nor gradient suffers where a
probability underflows.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# The logarithm of an impossible case: finite, so that no gradient is NaN, and
# further down than any logit takes a possible one.
_NEVER = -1e30


def log_transition(
  logits: tf.Tensor,
  class_priors: tf.Tensor,
  set_shares: tf.Tensor,
  test_prior: Sequence[float] | None = None,
) -> tf.Tensor:
  """The logarithm of Q_c, the posteriors of the sets (Theorem 1).

  Args:
    logits: `float [n, d]` of the classes; their softmax is eta.
    class_priors: Pi, `float [M, d]`; rows of sets that the client does not have
      are zeros.
    set_shares: rho, `float [M]`.
    test_prior: pi, d positive numbers; by default uniform.

  Returns:
    `[n, M]` in the type of `logits`, in nats. Sets that have no examples, or no
    classes, get less than -1e29, of which the exponential is 0.
  """
  class_priors, set_shares = (
    tf.cast(values, logits.dtype) for values in (class_priors, set_shares)
  )
  log_joint = tf.math.log(set_shares)[:, tf.newaxis] + tf.math.log(class_priors)
  if test_prior is not None:
    # Of a uniform one, the logarithm is the same for all.
    log_joint -= tf.constant(np.log(test_prior), logits.dtype)
  log_joint = tf.maximum(log_joint, _NEVER)
  log_eta = tf.nn.log_softmax(logits)
  log_unnormalized = tf.reduce_logsumexp(
    log_eta[:, tf.newaxis, :] + log_joint, axis=2
  )
  return tf.nn.log_softmax(log_unnormalized)


def log_loss(log_q: tf.Tensor, sets: tf.Tensor) -> tf.Tensor:
  """The surrogate task's cross-entropy -log q_y (Eqs. 6 and 9, Theorem 4).

  Args:
    log_q: As `log_transition` gives it, `float [n, M]`.
    sets: The set of each example, `int32 [n]`.

  Returns:
    `float [n]`, in nats. NaN for an example of a set that does not exist or has
    no share or no class, so that a client whose sets contradict its constants
    is left out of the round and counted.
  """
  index = tf.clip_by_value(sets, 0, tf.shape(log_q)[1] - 1)
  log_own = tf.gather(log_q, index, batch_dims=1)
  exists = tf.equal(index, sets) & (log_own > _NEVER / 10)
  return tf.where(exists, -log_own, np.nan)


def published_code_loss(log_q: tf.Tensor, sets: tf.Tensor) -> tf.Tensor:
  """The loss of the authors' code: cross-entropy of the softmax of Q.

  Their code gives the probabilities Q to a loss that takes logits. As logits
  they lie in [0, 1], so that even a perfect model keeps a loss of about
  log(1 + (M - 1) / e). Sets without examples take no part.

  Args:
    log_q: As `log_transition` gives it for a uniform test prior, since the code
      knows no other one; `float [n, M]`.
    sets: The set of each example, `int32 [n]`.

  Returns:
    `float [n]`, in nats.
  """
  exists = log_q > _NEVER / 10
  logits = tf.where(exists, tf.exp(log_q), _NEVER)
  return log_loss(tf.nn.log_softmax(logits), sets)
