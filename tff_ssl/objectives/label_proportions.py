"""Learning from label proportions: what a set's predictions say on average.

FedLLP and FedLLP-VAT, baselines of FedUL (Lu et al., Federated Learning from
Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022,
arXiv 2204.03304, Appendix D.2). A minibatch is a whole set U_m, whose class
priors pi_m are known:

```
d_prop = -sum_k pi_mk log( 1/|U_m| sum_x p_k(x) )                      (Eq. 18)
l_cons = 1/|U_m| sum_x KL( p(x) || p(x + r_adv(x)) )                   (Eq. 20)
FedLLP: d_prop          FedLLP-VAT: d_prop + alpha l_cons              (Eq. 19)
```

with p the softmax of the model's outputs. The mean over x, printed as
1/M_c there, is one over the set's examples in Dulac-Arnold et al. (arXiv
1905.12909) and in the authors' code.
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, check_arguments, unless

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives.maths import class_priors, losses, virtual_adversarial

_ALONE = unless('vat_weight', 0, 'leaves it out')
VAT_SETTINGS = (
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


def proportion_loss(priors: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Cross-entropy from a set's class priors to its mean prediction (Eq. 18).

  Args:
    priors: `float32 [d]`.
    logits: `float [n, d]` of all examples of the set, n >= 1.

  Returns:
    `float32` scalar, in nats.
  """
  # In log space: a class that no example is given may have a prior above 0.
  log_shares = tf.nn.log_softmax(tf.cast(logits, tf.float32))
  size = tf.cast(tf.shape(logits)[0], tf.float32)
  log_mean = tf.reduce_logsumexp(log_shares, axis=0) - tf.math.log(size)
  return -tf.reduce_sum(priors * log_mean)


@dataclasses.dataclass(frozen=True)
class LabelProportions:
  """d_prop of a minibatch that is one whole set (Eq. 18).

  Needs `class_priors` in the minibatch, and `minibatches.Selection('sets')`.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
  """

  views: protocols.Views

  metric_names = ('loss', 'accuracy')

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x, forward_seed = _input(self.views, batch, seed)
    logits = predict(x, training=True, seed=forward_seed)
    return _proportions(logits, batch)


@dataclasses.dataclass(frozen=True)
class VirtualAdversarialProportions:
  """d_prop + alpha l_cons of a minibatch that is one whole set (Eq. 19).

  r_adv is the virtual adversarial perturbation of Tsai and Lin (arXiv
  1910.13188); see `virtual_adversarial`. The clean and the perturbed image see
  the same dropout, and moving statistics follow the clean one alone.

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

  def __post_init__(self):
    check_arguments(VAT_SETTINGS, vars(self))

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x, forward_seed = _input(self.views, batch, seed)
    if self.vat_weight == 0:
      logits = predict(x, training=True, seed=forward_seed)
      loss, metrics = _proportions(logits, batch)
      metrics['vat_divergence'] = (tf.constant(0.0), tf.constant(0.0))
      return loss, metrics
    logits, direction = virtual_adversarial.direction(
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


def _input(views, batch, seed):
  """Returns the images, and the seed of the pass through the model."""
  x = views.weak(batch['x'], randomness.fold_in(seed, 0))
  return x, randomness.fold_in(seed, 1)


def _proportions(logits, batch):
  """Returns d_prop of one set, and the metrics."""
  priors = class_priors.of_sets(batch, batch['y'][:1], logits)[0]
  loss = proportion_loss(priors, logits)
  predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
  return loss, collections.OrderedDict(
    loss=(loss, tf.constant(1.0)),
    accuracy=class_priors.count_right(predicted, batch),
  )
