"""(FL)^2: SemiFL's turns, with thresholds of each client and flat minima.

Lee et al., (FL)^2: Overcoming Few Labels in Federated Semi-Supervised Learning
(NeurIPS 2024, arXiv 2410.23227). A round from global weights w:

```
client k   q(x) = f_w(alpha(x)) of all its examples, once;
           tau_k = mean of max q,  p_k = mean of q;
           y = argmax q(x); kept are those with
               max q(x) >= tau_k p_k(y) / max p_k
           w_k = E epochs over the kept ones from w, by the loss
               `tff_ssl.SharpnessAwareConsistency`
server     v <- beta_g v + w - sum (1 - tau_k) w_k / sum (1 - tau_k)
           w <- w - v, then as in SemiFL (`tff_ssl.build_semifl`)
```

So no client is left out because it is unsure, and those that have learnt least
weigh most. Clients send their weight beside their change, and the server needs
no more than sums.

Defaults are those of SemiFL, but for clients' minibatches of 32 and first
rounds in which the server trains alone: 10 in the authors' code for CIFAR-10.
That code counts the batch statistics of the clients' examples, too; here they
are the server's.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import semifl, tff_arguments
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.common.setting import check_arguments
from tff_ssl.objectives import selection, sharpness
from tff_ssl.plans import ServerPlan, TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional

_CLIENT_TRAINING = TrainingPlan(batch_size=32, epochs=5)
_SERVER = dataclasses.replace(semifl.SERVER, warmup_rounds=10)


def from_mean_confidence(probabilities: tf.Tensor) -> semifl.Labelling:
  """Labels a client's examples by its own thresholds (see the module).

  Args:
    probabilities: q, `float32 [n, d]`.

  Returns:
    Its labelling, with max q as `confidence` of each example.
  """
  labels = tf.argmax(probabilities, axis=1, output_type=tf.int32)
  confidence = tf.reduce_max(probabilities, axis=1)
  thresholds = selection.class_thresholds(probabilities)
  return semifl.Labelling(
    labels,
    selection.reaches(labels, confidence, thresholds),
    {sharpness.CONFIDENCE: confidence},
  )


@tff_arguments.taken
def build_flfl(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server: ServerPlan = _SERVER,
  client_weighting: str = 'learning_status',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds (FL)^2.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_objective: By default `tff_ssl.SharpnessAwareConsistency(views)`.
      Minibatches hold `y`, the pseudo-labels, and `confidence`.
    client_training: How a client trains on the examples that it keeps; by
      default 5 passes with minibatches of 32. A schedule is an
      `optimizers.RoundSchedule`.
    server: As for `tff_ssl.build_semifl`. Its `warmup_rounds`, by default 10,
      are the first rounds in which it trains alone.
    client_weighting: 'learning_status', 1 - tau_k; or 'uniform', or 'examples'
      (processed in the round). Unweighted aggregators take 'uniform' alone.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`. Beside the losses, clients
    report `mask_rate`, the share of examples that they kept, and
    `pseudo_label_accuracy` among them.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  optimizer = optimizers.build_semifl_sgd()
  training = templates.LocalTraining(
    model,
    client_objective or objectives.SharpnessAwareConsistency(views),
    client_training.over(_CLIENT_TRAINING, optimizer=optimizer),
    templates.Selection('labelled'),
  )

  return semifl.compose(
    training,
    data_spec=data_spec,
    views=views,
    label=from_mean_confidence,
    view='weak',
    server=server.over(_SERVER, optimizer=optimizer),
    client_weighting=client_weighting,
    wiring=wiring,
  )


SETTINGS = (
  *objectives.SharpnessAwareConsistency.settings,
  shared.GLOBAL_MOMENTUM,
  semifl.CLIENT_WEIGHTING,
  *shared.LOCAL,
  *semifl.SERVER_SETTINGS,
  shared.SERVER_WARMUP_ROUNDS,
)

SPEC = ProcessSpec(
  'flfl',
  'Clients train on labels by thresholds of their own, and stay where it is '
  'flat.',
  build_flfl,
  SETTINGS,
  source="Lee et al. 2024, arXiv 2410.23227, and its authors' code",
  objective=objectives.SharpnessAwareConsistency,
  # Its authors' code.
  defaults={
    **semifl.SPEC.defaults,
    'batch_size': 32,
    'server_batch_size': 10,
  },
  makes_pseudo_labels=True,
  has_gradient_diversity=False,
)
