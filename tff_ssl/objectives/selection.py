"""Which pseudo-labels count, how much, and a pass of those that do.

With q the probabilities of an example by the teacher, B the minibatch, and
mu the mean of max q over B:

```
fixed           1[max q >= tau]                        FixMatch
self_adaptive   1[max q >= mu p(y) / max_c p(c)]       FreeMatch, Eqs. 5 to 8
                y = argmax q, p(c) the mean of q(c) over B
client_adaptive the same, with mu and p over all examples of the client, by the
                model that it received: (FL)^2
gaussian        1                       if max q >= mu SoftMatch, Eqs. 5 to 7
                exp(-(max q - mu)^2 / (2 s^2))    else
                s^2 the unbiased variance of max q over B
energy          1[-log sum_c exp f(c) <= E]            Liu et al., T = 1
                f the logits whose softmax is q
```

The energy is to tell examples of no class of the model, which q must give to
some class (Liu et al., Energy-based Out-of-distribution Detection, arXiv
2010.03759, Section 3). E is on the scale of the logits, which grows while a
model trains.

By any of the adaptive rules some examples always count, also those of a
model that knows nothing yet. `min_confidence` is a floor: below it no example
does. The papers have none, which is 0.

(Sohn et al., arXiv 2001.07685; Wang et al., arXiv 2205.07246; Chen et al.,
arXiv 2301.10921; Lee et al., arXiv 2410.23227.) FreeMatch and SoftMatch follow
mu, p and s over the steps of a training, with a decay. A client keeps no state
between rounds, and so they are those of the minibatch here. FreeMatch's
fairness loss and SoftMatch's uniform alignment are no part of this. SoftMatch's
published code has a Gaussian half as wide (`n_sigma=2`).
"""

from __future__ import annotations

from etils import epy

from tff_ssl.common.setting import Setting, only_with, unless

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl.models import structures
  from tff_ssl.objectives import losses

THRESHOLD = Setting(
  'threshold',
  float,
  'tau, the confidence from which an example gets a pseudo-label, in [0, 1]; '
  'above 1, none does.',
  at_least=0,
  # A percentage is a mistake; a little above 1 turns pseudo-labels off.
  below=2,
  used_when=(
    unless('pseudo_label_rule', 'self_adaptive', 'finds its own thresholds'),
    unless('pseudo_label_rule', 'client_adaptive', 'finds its own thresholds'),
    unless('pseudo_label_rule', 'gaussian', 'weighs by the mean confidence'),
    unless('pseudo_label_rule', 'energy', 'has `max_energy`'),
    unless('experts', 'truth', 'asks no model'),
  ),
)
PSEUDO_LABEL_RULE = Setting(
  'pseudo_label_rule',
  str,
  'Which pseudo-labels count: those from the threshold on (fixed); from the '
  "minibatch's mean confidence on, less for rare classes (self_adaptive, "
  "FreeMatch), or the same by all of a client's examples (client_adaptive, "
  '(FL)^2, with `teacher=received`); all, the less the further below that '
  'mean (gaussian, SoftMatch); or those of low energy (energy), where some '
  'examples may be of no class.',
  choices=('fixed', 'self_adaptive', 'client_adaptive', 'gaussian', 'energy'),
)
MIN_CONFIDENCE = Setting(
  'min_confidence',
  float,
  'By a rule that is not fixed, the confidence below which no example counts, '
  'in [0, 1]; 0 in the papers.',
  at_least=0,
  at_most=1,
  used_when=(unless('pseudo_label_rule', 'fixed', 'has `threshold`'),),
)
MAX_ENERGY = Setting(
  'max_energy',
  float,
  'The energy, minus the logarithm of the sum of exp(logit), above which no '
  'example counts. Choose it by the column server_mask_rate of metrics.csv: '
  "the share of the server's own labelled examples that it lets pass.",
  used_when=(only_with('pseudo_label_rule', 'energy'),),
)
SELECTION = (THRESHOLD, PSEUDO_LABEL_RULE, MIN_CONFIDENCE, MAX_ENERGY)

# A mean of equal numbers may be rounded above them.
_ROUNDING = 1e-6


def pseudo_labels(
  logits: tf.Tensor,
  threshold: float,
  rule: str = 'fixed',
  min_confidence: float = 0.0,
  thresholds: tf.Tensor | None = None,
  max_energy: float = -5.0,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns pseudo-labels and their weights; no gradient flows through.

  Args:
    logits: The teacher's, `float [n, d]`.
    threshold: tau of the rule 'fixed'; above 1 nothing passes.
    rule: 'fixed', 'self_adaptive', 'client_adaptive', 'gaussian' or 'energy'.
    min_confidence: max q from which an example can count by the rules but
      'fixed'.
    thresholds: Of 'client_adaptive', `float32 [d]`, the `class_thresholds` of
      all of the client's examples; by default those of the given ones.
    max_energy: E of the rule 'energy'.

  Returns:
    Labels `int32 [n]` and weights `float32 [n]`, between 0 and 1.
  """
  PSEUDO_LABEL_RULE.check(rule)
  losses.check_logits(logits)
  logits = tf.cast(tf.stop_gradient(logits), tf.float32)
  probabilities = tf.nn.softmax(logits)
  labels = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
  confidence = tf.reduce_max(probabilities, axis=-1)
  if rule == 'fixed':
    return labels, tf.cast(confidence >= threshold, tf.float32)
  sure = tf.cast(confidence >= min_confidence, tf.float32)
  if rule == 'energy':
    energy = -tf.reduce_logsumexp(logits, axis=-1)
    return labels, sure * tf.cast(energy <= max_energy, tf.float32)
  if rule != 'gaussian':
    if thresholds is None:
      thresholds = class_thresholds(probabilities)
    return labels, sure * reaches(labels, confidence, thresholds)
  mean = tf.reduce_mean(confidence)
  distance = tf.minimum(confidence - mean + _ROUNDING, 0.0)
  freedom = tf.maximum(tf.cast(tf.shape(confidence)[0], tf.float32) - 1.0, 1.0)
  variance = tf.reduce_sum(tf.square(confidence - mean)) / freedom
  # Of examples that are all alike, each weighs 1.
  weights = tf.exp(-tf.math.divide_no_nan(distance**2, 2.0 * variance))
  return labels, sure * weights


def class_thresholds(probabilities: tf.Tensor) -> tf.Tensor:
  """Returns `mu p(c) / max_c p(c)` of probabilities `[n, d]`, `float32 [d]`."""
  of_class = tf.reduce_mean(probabilities, axis=0)
  mean = tf.reduce_mean(tf.reduce_max(probabilities, axis=-1))
  return mean * (of_class / tf.reduce_max(of_class))


def reaches(
  labels: tf.Tensor, confidence: tf.Tensor, thresholds: tf.Tensor
) -> tf.Tensor:
  """Returns 1 where an example reaches the threshold of its label, else 0.

  Args:
    labels: `int32 [n]`.
    confidence: `float32 [n]`.
    thresholds: `float32 [d]`.
  """
  passes = confidence >= tf.gather(thresholds, labels) - _ROUNDING
  return tf.cast(passes, tf.float32)


def confidence_of(logits: tf.Tensor) -> tf.Tensor:
  """Returns max q of logits `float [n, d]`, `float32 [n]`, without gradient."""
  logits = tf.cast(tf.stop_gradient(logits), tf.float32)
  return tf.reduce_max(tf.nn.softmax(logits), axis=-1)


def predict_selected(
  predict, x: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor, like: tf.Tensor
) -> tf.Tensor:
  """Returns train-mode logits of the selected examples, and 0 for the others.

  Losses on pseudo-labels multiply an example by zero where no prediction is
  sure enough. Early in training that is most of them, and the pass that trains
  costs more than all others together. Loss and gradient are those of a pass of
  all examples, but for what a model draws (dropout), if the model takes each
  example by itself. With moving statistics, which all examples move, all go
  through.

  `like` are logits `[n, d]` of a prediction on the same examples, for shape and
  type. Examples for which they are not finite go through, too, so that a model
  which has diverged shows in the loss.
  """
  if predict.has_moving_state:
    return predict(x, seed=seed)
  is_finite = tf.reduce_all(tf.math.is_finite(like), axis=-1)
  selected = tf.where((mask > 0) | ~is_finite)
  logits = predict.probe(
    structures.gather(x, selected[:, 0]),
    seed,
    if_empty=tf.stop_gradient(like[:0]),
  )
  return tf.scatter_nd(selected, logits, tf.shape(like, selected.dtype))
