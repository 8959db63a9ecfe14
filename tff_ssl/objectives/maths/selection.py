"""Which pseudo-labels count, and how much: fixed and adaptive thresholds.

With q the probabilities of an example by the teacher, B the minibatch, and
mu the mean of max q over B:

```
fixed           1[max q >= tau]                        FixMatch
self_adaptive   1[max q >= mu p(y) / max_c p(c)]       FreeMatch, Eqs. 5 to 8
                y = argmax q, p(c) the mean of q(c) over B
gaussian        1                       if max q >= mu SoftMatch, Eqs. 5 to 7
                exp(-(max q - mu)^2 / (2 s^2))    else
                s^2 the unbiased variance of max q over B
```

By either of the adaptive rules some examples always count, also those of a
model that knows nothing yet. `min_confidence` is a floor: below it no example
does. The papers have none, which is 0.

(Sohn et al., arXiv 2001.07685; Wang et al., arXiv 2205.07246; Chen et al.,
arXiv 2301.10921.) The latter two follow mu, p and s over the steps of a
training, with a decay. A client keeps no state between rounds, and so they are
those of the minibatch here. FreeMatch's fairness loss and SoftMatch's uniform
alignment are no part of this. SoftMatch's published code has a Gaussian half as
wide (`n_sigma=2`).
"""

from collections.abc import Callable

import tensorflow as tf

from tff_ssl.objectives.maths import losses

RULES = ('fixed', 'self_adaptive', 'gaussian')

# A mean of equal numbers may be rounded above them.
_ROUNDING = 1e-6


def pseudo_labels(
  logits: tf.Tensor,
  threshold: float,
  rule: str = 'fixed',
  min_confidence: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns pseudo-labels and their weights; no gradient flows through.

  Args:
    logits: The teacher's, `float [n, d]`.
    threshold: tau of the rule 'fixed'; above 1 nothing passes.
    rule: One of `RULES`.
    min_confidence: max q from which an example can count by an adaptive rule.

  Returns:
    Labels `int32 [n]` and weights `float32 [n]`, between 0 and 1.

  Raises:
    ValueError: If `rule` is none of these.
  """
  if rule not in RULES:
    raise ValueError(f'rule={rule!r} must be one of {RULES}.')
  if rule == 'fixed':
    return losses.pseudo_labels(logits, threshold)
  probabilities = tf.nn.softmax(tf.cast(tf.stop_gradient(logits), tf.float32))
  labels = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
  confidence = tf.reduce_max(probabilities, axis=-1)
  mean = tf.reduce_mean(confidence)
  sure = tf.cast(confidence >= min_confidence, tf.float32)
  if rule == 'self_adaptive':
    of_class = tf.reduce_mean(probabilities, axis=0)
    thresholds = mean * (of_class / tf.reduce_max(of_class))
    passes = confidence >= tf.gather(thresholds, labels) - _ROUNDING
    return labels, sure * tf.cast(passes, tf.float32)
  distance = tf.minimum(confidence - mean + _ROUNDING, 0.0)
  freedom = tf.maximum(tf.cast(tf.shape(confidence)[0], tf.float32) - 1.0, 1.0)
  variance = tf.reduce_sum(tf.square(confidence - mean)) / freedom
  # Of examples that are all alike, each weighs 1.
  weights = tf.exp(-tf.math.divide_no_nan(distance**2, 2.0 * variance))
  return labels, sure * weights


def from_threshold(
  threshold: float,
) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
  """Returns the function from logits to what passes a fixed threshold.

  Args:
    threshold: tau.
  """
  return lambda logits: losses.pseudo_labels(logits, threshold)
