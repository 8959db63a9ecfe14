"""FedMatch's objective on unlabelled examples: agreement with helper clients.

Jeong et al., Federated Semi-Supervised Learning with Inter-Client Consistency
& Disjoint Learning (arXiv 2006.12097), as the authors' code computes it. On
those n examples u of a minibatch that the client's own model p = f(u) is sure
of, max p >= tau, with the helper clients' models p_1 ... p_h and the strong
view A(u),

```math
vote(u)  = argmax of one-hot(p) + one-hot(p_1) + ... + one-hot(p_h)
loss     = lambda_i / (n h) sum_u sum_j KL(p_j(u), p(u))
           + lambda_a / n sum_u CE(f(A(u)), vote(u))
           + lambda_L2 ||sigma - psi||^2 + lambda_L1 ||psi||_1
```

where one-hot(p) is 1 at the argmax of p. A tie of votes goes to the lowest
class. Without helpers the first term is 0, and the vote the client's own.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives import consistency
from tff_ssl.objectives.selection import THRESHOLD
from tff_ssl.objectives.supervised import Checked
from tff_ssl.objectives.wrappers import (
  L1_WEIGHT,
  l1_norm,
  squared_distance,
)

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import randomness
  from tff_ssl.objectives import losses, selection

_SETTINGS = (
  Setting(
    'inter_client_weight',
    float,
    'lambda_i of FedMatch, weight of the divergence to the helpers.',
    at_least=0,
    needed_by='FedMatch',
  ),
  Setting(
    'agreement_weight',
    float,
    "lambda_a of FedMatch, weight of the pseudo-labels' loss.",
    at_least=0,
    needed_by='FedMatch',
  ),
  Setting(
    'sigma_psi_weight',
    float,
    'lambda_L2 of FedMatch, weight of ||sigma - psi||^2; times twice the '
    'learning rate it must be below 1.',
    at_least=0,
    needed_by='FedMatch',
  ),
)


class Peers(NamedTuple):
  """The anchors of `InterClientConsistency`.

  Attributes:
    sigma: Tensors like the weights that are trained.
    helpers: `ModelWeights` of each helper, as the model in training has them.
    present: `bool [len(helpers)]`, which of them count.
  """

  sigma: Sequence[tf.Tensor]
  helpers: Sequence[tff.learning.models.ModelWeights]
  present: tf.Tensor


@dataclasses.dataclass(frozen=True)
class InterClientConsistency(Checked):
  """The loss above; the trainable weights are psi, the anchors are `Peers`.

  Plain and strong view go through the model together, so that batch
  normalisation sees them as one batch.

  Attributes:
    views: Gives the plain and the strong view (`tff_ssl.augmentation`).
    threshold: tau, in [0, 1].
    inter_client_weight: lambda_i >= 0.
    agreement_weight: lambda_a >= 0.
    sigma_psi_weight: lambda_L2 >= 0.
    l1_weight: lambda_L1 >= 0; the authors' code has 1e-4 where clients have
      labels, 1e-5 where the server has them.
  """

  views: protocols.Views
  threshold: float = 0.75
  inter_client_weight: float = 1e-2
  agreement_weight: float = 1e-2
  sigma_psi_weight: float = 10.0
  l1_weight: float = 1e-4

  metric_names = (
    *('unlabelled_loss', 'mask_rate', 'pseudo_label_accuracy'),
    'helper_divergence',
  )
  settings = (THRESHOLD, *_SETTINGS, L1_WEIGHT)

  def __call__(self, predict, batch, anchors, seed):
    plain = self.views.plain(batch['x'])
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 0))
    own, of_strong = consistency.forward(
      predict, [plain, strong], [randomness.fold_in(seed, 1)] * 2, 'joint'
    )
    helpers = tf.stack(
      [tf.cast(predict.at(w, plain), tf.float32) for w in anchors.helpers]
    )
    _, mask = selection.pseudo_labels(own, self.threshold)
    labels = losses.majority_vote(own, helpers, anchors.present)
    divergence = losses.mean_divergence(helpers, own, anchors.present)
    agreement = losses.masked_cross_entropy(labels, of_strong, mask)
    each = mask * (
      self.inter_client_weight * divergence + self.agreement_weight * agreement
    )
    chosen = tf.reduce_sum(mask)
    # Of the examples that the model is sure of alone, as the code has it.
    loss = tf.math.divide_no_nan(tf.reduce_sum(each), chosen)
    size = tf.cast(tf.size(mask), tf.float32)
    helped = chosen * tf.cast(tf.reduce_any(anchors.present), tf.float32)
    metrics = collections.OrderedDict(
      unlabelled_loss=(loss * size, size),
      mask_rate=(chosen, size),
      pseudo_label_accuracy=losses.pseudo_label_accuracy(labels, mask, batch),
      helper_divergence=(tf.reduce_sum(mask * divergence), helped),
    )
    psi = predict.trainable
    of_weights = self.sigma_psi_weight * squared_distance(psi, anchors.sigma)
    of_weights += self.l1_weight * l1_norm(psi, loss)
    return loss + of_weights, metrics
