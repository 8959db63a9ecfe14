"""Learning from label proportions: what a set's predictions say on average.

FedLLP and FedLLP-VAT, baselines of FedUL (Lu et al., Federated Learning from
Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022,
arXiv 2204.03304, Appendix D.2). A minibatch is a whole set U_m, whose class
priors pi_m are known:

```math
d_prop = -sum_k pi_mk log( 1/|U_m| sum_x p_k(x) )                      (Eq. 18)
l_cons = 1/|U_m| sum_x KL( p(x) || p(x + r_adv(x)) )                   (Eq. 20)
FedLLP: d_prop; FedLLP-VAT: d_prop + alpha l_cons                      (Eq. 19)
```

with p the softmax of the model's outputs. The mean over x, printed as
1/M_c there, is one over the set's examples in Dulac-Arnold et al. (arXiv
1905.12909) and in the authors' code.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, unless
from tff_ssl.objectives.supervised import Checked, forward_weak

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures
  from tff_ssl.objectives import losses, surrogate_sets

_ALONE = unless('vat_weight', 0, 'leaves it out')
_VAT_SETTINGS = (
  Setting(
    'vat_weight',
    float,
    'alpha of FedLLP-VAT, weight of the consistency; 0.05 on CIFAR-10.',
    at_least=0,
  ),
  Setting(
    'vat_radius',
    float,
    'mu of FedLLP-VAT, length (L2 norm) of the perturbation of a standardised '
    'image; 6 on CIFAR-10.',
    above=0,
    used_when=(_ALONE,),
  ),
  Setting(
    'vat_ramp',
    str,
    'none, or published_code: alpha times the factor of the '
    "authors' code, which is near 0.01 in all rounds.",
    choices=('none', 'published_code'),
    used_when=(_ALONE,),
  ),
)


@dataclasses.dataclass(frozen=True)
class LabelProportions:
  """d_prop of a minibatch that is one whole set (Eq. 18).

  Needs `class_priors` in the minibatch, and `minibatches.Selection('sets')`.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
  """

  views: protocols.Views

  metric_names = ('loss', 'accuracy')
  settings = ()

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    _, logits = forward_weak(self.views, predict, batch, seed)
    return _proportions(logits, batch)


@dataclasses.dataclass(frozen=True)
class VirtualAdversarialProportions(Checked):
  """d_prop + alpha l_cons of a minibatch that is one whole set (Eq. 19).

  r_adv is the virtual adversarial perturbation of Tsai and Lin (arXiv
  1910.13188); see `adversarial_direction`. The clean and the perturbed image
  see the same dropout, and moving statistics follow the clean one alone.

  `vat_ramp='published_code'` multiplies alpha with the factor of the authors'
  code,

  ```
  exp(-5 (1 - t / T)^2),   T = 0.4 x 100 rounds x M_c sets / 2 = 20 M_c steps
  ```

  a sigmoid ramp-up from e^-5 to 1, where t, however, is the step within the
  round and never reaches M_c: the factor stays between 0.0067 and 0.011.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    vat_weight: alpha >= 0: 5e-4 on MNIST, 0.05 on CIFAR-10. With 0 the
      perturbation is not computed, and this is `LabelProportions`.
    vat_radius: mu > 0, the perturbation's length (L2 norm) in what the model
      takes for an image: 1e-2 on MNIST, 6 on CIFAR-10.
    vat_ramp: 'none' or 'published_code'.
  """

  views: protocols.Views
  vat_weight: float = 5e-4
  vat_radius: float = 1e-2
  vat_ramp: str = 'none'

  metric_names = ('loss', 'accuracy', 'vat_divergence')
  settings = _VAT_SETTINGS

  def __call__(self, predict, batch, anchors, seed):
    if self.vat_weight == 0:
      alone = LabelProportions(self.views)
      loss, metrics = alone(predict, batch, anchors, seed)
      metrics['vat_divergence'] = (tf.constant(0.0), tf.constant(0.0))
      return loss, metrics
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    forward_seed = randomness.fold_in(seed, 1)
    logits, direction = adversarial_direction(
      lambda images: predict(images, training=True, seed=forward_seed),
      x,
      randomness.fold_in(seed, 2),
    )
    perturbed = predict.probe(x + self.vat_radius * direction, forward_seed)
    divergences = losses.divergence(tf.stop_gradient(logits), perturbed)
    loss, metrics = _proportions(logits, batch)
    size = tf.cast(tf.shape(x)[0], tf.float32)
    metrics['vat_divergence'] = (tf.reduce_sum(divergences), size)
    weight = self.vat_weight * self._ramp(batch)
    return loss + weight * tf.reduce_mean(divergences), metrics

  def _ramp(self, batch):
    if self.vat_ramp == 'none':
      return 1.0
    num_sets = tf.math.count_nonzero(batch['set_shares'], dtype=tf.float32)
    length = 0.4 * 100 * num_sets / 2
    phase = 1.0 - tf.cast(batch['step'], tf.float32) / length
    return tf.exp(-5.0 * tf.square(phase))


def proportion_loss(priors: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Returns the cross-entropy from priors to mean prediction (Eq. 18), in nats.

  Logits are those of all examples of the set, `float [n, d]`, n >= 1.
  """
  # In log space: a class that no example is given may have a prior above 0.
  log_shares = tf.nn.log_softmax(tf.cast(logits, tf.float32))
  size = tf.cast(tf.shape(logits)[0], tf.float32)
  log_mean = tf.reduce_logsumexp(log_shares, axis=0) - tf.math.log(size)
  return -tf.reduce_sum(priors * log_mean)


def _proportions(logits, batch):
  """Returns d_prop of one set, and the metrics."""
  priors = surrogate_sets.class_priors(batch, batch['y'][:1], logits)[0]
  loss = proportion_loss(priors, logits)
  predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
  return loss, collections.OrderedDict(
    loss=(loss, tf.constant(1.0)),
    accuracy=surrogate_sets.count_right(predicted, batch),
  )


def adversarial_direction(
  forward: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Estimates where each example's prediction changes most.

  Miyato et al., Virtual Adversarial Training (arXiv 1704.03976), Section 3.3.
  For a small perturbation r, KL(p(x) || p(x + r)) is r^T H r / 2, so that its
  largest growth lies along the first eigenvector of H. One power iteration from
  a random d gives an estimate of it, H d / |H d|. Miyato et al. and those who
  follow them estimate H d by a finite difference, the gradient of the
  divergence at x + xi d. With xi = 1e-6 and pixels of size 1, that is a step
  which float32 cannot make. Here H d is exact, the limit of small xi,

  ```math
  H d = J^T (diag(p) - p p^T) J d,     J = d logits / d x
  ```

  at the cost of one more backward pass than the finite difference.

  Returns:
    The logits of `x`, from one call of `forward`, and directions in the shape
    of `x`, each of L2 norm 1, or 0 where the prediction changes in none; no
    gradient flows through these.
  """
  structures.refuse_several(x, 'Virtual adversarial training needs')
  start = _normalise(tf.random.stateless_normal(tf.shape(x), seed))
  # J d is the derivative of J^T u, which is linear in u, at any u. TensorFlow's
  # forward mode does not trace through all layers (batch normalisation).
  with tf.GradientTape() as outer:
    with tf.GradientTape(persistent=True) as tape:
      tape.watch(x)
      logits = forward(x)
    dual = tf.zeros_like(logits)
    outer.watch(dual)
    pulled_back = _gradient(tape, logits, x, dual)
  change = tf.cast(_gradient(outer, pulled_back, dual, start), tf.float32)
  probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
  mean = tf.reduce_sum(probabilities * change, axis=-1, keepdims=True)
  product = _gradient(
    tape, logits, x, tf.cast(probabilities * (change - mean), logits.dtype)
  )
  return logits, tf.stop_gradient(_normalise(product))


def _gradient(tape, target, source, cotangent):
  """Returns the derivatives of a target, weighted; 0 where it has none."""
  return tape.gradient(
    target,
    source,
    output_gradients=cotangent,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )


def _normalise(values):
  """Scales each example's values to L2 norm 1; zeros stay zeros."""
  axes = list(range(1, values.shape.rank))
  # By the largest first: squares of small gradients are 0 in float32.
  largest = tf.reduce_max(tf.abs(values), axis=axes, keepdims=True)
  values = tf.math.divide_no_nan(values, largest)
  norm = tf.sqrt(tf.reduce_sum(tf.square(values), axis=axes, keepdims=True))
  return tf.math.divide_no_nan(values, norm)
