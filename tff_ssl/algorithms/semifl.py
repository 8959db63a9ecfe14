"""SemiFL: unlabelled clients and a labelled server train in turns.

Diao et al., SemiFL: Semi-Supervised Federated Learning for Unlabeled Clients
with Alternate Training (arXiv 2106.01432). A round from global weights w:

```
client   y_i = argmax f_w(alpha(x_i)) of all its examples, once;
         confident are those with max f_w(alpha(x_i)) >= tau
         w_k = E epochs over confident ones from w, loss fix + weight * mix
               (`tff_ssl.FixAndMix`)
server   v <- beta_g v + w - mean of w_k, over clients with confident examples
         w <- w - v
         w <- E epochs on labelled examples from w, cross-entropy
         w <- w with the batch statistics of the labelled examples
```

The last line is static batch normalisation
(`tff_ssl.templates.static_statistics`): clients and server normalise by
minibatches while they train, nobody keeps moving averages, and pseudo-labels
and evaluation use the statistics that the server has computed at the end of the
round before. Its authors' code computes them over the clients' examples too,
which takes a simulation that holds them all; here they are the server's.

Defaults are those of the authors' code, clients and server both: SGD with
learning rate 0.03, Nesterov momentum 0.9, fresh in each round, coupled weight
decay 5e-4, gradients clipped to norm 1, E = 5. Its server takes minibatches of
250 where it has more than 250 examples; its learning rate falls to 0 with half
a cosine over 800 rounds; beta_g is .5 for IID clients.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives.selection import THRESHOLD
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import ServerPlan, TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, randomness, templates
  from tff_ssl.models import functional, structures
  from tff_ssl.objectives import losses
  from tff_ssl.templates import averaging, prediction, static_statistics
  from tff_ssl.templates import server_training as training_at_server


_NONE = -1
# Secure sums round weights to 2^-12, and those of sure clients are small.
_UNIT = 256.0
_CLIENT_TRAINING = TrainingPlan(batch_size=10, epochs=5)
SERVER = ServerPlan(batch_size=10, epochs=5, global_momentum=0.5)


class Labelling(NamedTuple):
  """What a client makes of the predictions on its n examples.

  Attributes:
    labels: `int32 [n]`, the pseudo-labels.
    mask: `float32 [n]`, 1 where an example is trained on, else 0.
    more: Further tensors of the examples that minibatches hold, by name.
  """

  labels: tf.Tensor
  mask: tf.Tensor
  more: Mapping[str, tf.Tensor]


def from_threshold(probabilities: tf.Tensor, threshold: float) -> Labelling:
  """Returns the most probable classes, and which of them reach a threshold."""
  return Labelling(
    tf.argmax(probabilities, axis=1, output_type=tf.int32),
    tf.cast(tf.reduce_max(probabilities, axis=1) >= threshold, tf.float32),
    {},
  )


def learning_status(probabilities: tf.Tensor) -> tf.Tensor:
  """Returns the weight of a client by what it has still to learn.

  It is 256 (1 - tau_k) of (FL)^2 (Lee et al., arXiv 2410.23227), with tau_k the
  mean confidence of the received model in the client's examples.

  Args:
    probabilities: `float32 [n, d]`. Of no examples, the weight is 0.
  """
  confidence = tf.reduce_max(probabilities, axis=1)
  # Of no examples, the mean is no number.
  weight = _UNIT * (1.0 - tf.reduce_mean(confidence))
  return tf.where(tf.size(confidence) > 0, weight, 0.0)


def predict(model, weights, x, *, views, view, seed):
  """Predicts n examples at once, by a model at inference that sees one view.

  Returns:
    Probabilities, `float32 [n, d]`, and the passes.
  """
  if view == 'plain':
    x = views.plain(x)
  else:
    own_seed = randomness.fold_in(seed, randomness.Purpose.PSEUDO_LABEL)
    x = views.weak(x, own_seed)
  found = prediction.probabilities(model, weights, x)
  return found, prediction.forward_passes(x)


def _build_train(training, views, label, view, client_weighting, idle_rounds):
  """Returns what a client does: labels all it has, trains on some of it."""

  def train(task):
    if idle_rounds:
      # Who does not train yet has nothing to label.
      joined = tf.cast(task.round >= idle_rounds, tf.int32)
      size = joined * structures.size(task.examples['x'])
      task = task._replace(examples=structures.rows(task.examples, 0, size))
    found, labelling = predict(
      training.model,
      task.weights,
      task.examples['x'],
      views=views,
      view=view,
      seed=task.client_seed,
    )
    labels, mask, more = label(found)
    result = training.run_task(
      task,
      examples=collections.OrderedDict(
        task.examples, y=tf.where(mask > 0, labels, _NONE), **more
      ),
      anchors=objectives.MixPool(task.examples['x'], labels),
    )
    result = result._replace(
      # Clients track no statistics.
      weights=tff.learning.models.ModelWeights(
        result.weights.trainable, task.weights.non_trainable
      ),
      metrics=collections.OrderedDict(
        result.metrics,
        mask_rate=(tf.reduce_sum(mask), tf.cast(tf.size(mask), tf.float32)),
        pseudo_label_accuracy=losses.pseudo_label_accuracy(
          labels, mask, task.examples
        ),
      ),
      passes=labelling + result.passes,
    )
    update = averaging.update_from(task, result, client_weighting)
    # Who trains on nothing has no weight, and sends the model as it was.
    counts = tf.cast(result.num_examples > 0, tf.float32)
    weight = update.weight
    if client_weighting == 'learning_status':
      weight = learning_status(found)
    return update._replace(weight=counts * weight)

  return train


def compose(
  training: templates.LocalTraining,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  label: Callable[[tf.Tensor], Labelling],
  view: str,
  server: ServerPlan,
  client_weighting: str,
  wiring: Wiring,
) -> tff.learning.templates.LearningProcess:
  """Composes rounds of clients that train on what they label, then the server.

  Args:
    training: The clients', on examples with a label. The anchors of its
      objective are a `MixPool`.
    data_spec: The type of client data.
    views: Of which `view` is labelled, 'weak' or 'plain'.
    label: From the probabilities by the received model, `float32 [n, d]`.
    view: See above.
    server: The server's whole plan. In its warm-up rounds clients train on
      nothing.
    client_weighting: 'uniform', 'examples' or 'learning_status'. Whatever is
      not 'uniform' asks for an aggregator with weights.
    wiring: As builders take it.
  """
  model, idle_rounds = training.model, server.warmup_rounds or 0
  return averaging.compose(
    training,
    train=_build_train(
      training, views, label, view, client_weighting, idle_rounds
    ),
    data_spec=data_spec,
    client_weighting='uniform' if client_weighting == 'uniform' else 'examples',
    wiring=wiring,
    server=functools.partial(
      training_at_server.build_alternate_training,
      training_at_server.FineTuning.of(
        server,
        model,
        views,
        statistics=static_statistics.StaticStatistics(model, views),
      ),
      tff.learning.optimizers.build_sgdm(1.0, server.global_momentum),
      seed=wiring.seed,
    ),
    idle_rounds=idle_rounds,
  )


@tff_arguments.taken
def build_semifl(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  threshold: float = 0.95,
  pseudo_label_view: str = 'weak',
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server: ServerPlan = SERVER,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds SemiFL.

  A client without a confident example has weight 0. Unweighted aggregators
  (differential privacy) count it all the same, with a change of 0.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    threshold: tau; above 1 no example is confident.
    pseudo_label_view: The view that is labelled: 'weak', as in the authors'
      code, or 'plain', in which a label is a function of the model alone.
    client_objective: By default `tff_ssl.FixAndMix(views)`.
    client_training: How a client trains on its confident examples; by default
      as above, 5 passes with minibatches of 10. A schedule is an
      `optimizers.RoundSchedule`.
    server: The server's labelled examples, and how it trains on them; the same
      default. Its `global_momentum` is beta_g, by default 0.5; after a round in
      which no client is confident of anything, the model still goes along what
      is left of v.
    client_weighting: 'uniform' over clients with confident examples, 'examples'
      (processed in the round), or 'learning_status' as in `tff_ssl.build_flfl`.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`. Beside the losses, clients
    report `mask_rate`, the share of confident examples, and
    `pseudo_label_accuracy` among them.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  optimizer = optimizers.build_semifl_sgd()
  training = templates.LocalTraining(
    model,
    client_objective or objectives.FixAndMix(views),
    client_training.over(_CLIENT_TRAINING, optimizer=optimizer),
    templates.Selection('labelled'),
  )
  return compose(
    training,
    data_spec=data_spec,
    views=views,
    label=functools.partial(from_threshold, threshold=threshold),
    view=pseudo_label_view,
    server=server.over(SERVER, optimizer=optimizer),
    client_weighting=client_weighting,
    wiring=wiring,
  )


CLIENT_WEIGHTING = Setting(
  'client_weighting',
  str,
  'Weights of the mean over clients: uniform, examples, or learning_status '
  '(the less sure a client is of its examples, the more).',
  choices=('uniform', 'examples', 'learning_status'),
)
SERVER_SETTINGS = (
  Setting(
    'server_epochs',
    int,
    'Passes of the server over its labelled examples in a round.',
    at_least=1,
    at_most=10**6,
    argument='server.epochs',
    group='server training',
    needed_by='SemiFL',
  ),
  shared.SERVER_BATCH_SIZE,
  CLASS_WEIGHTS,
)
SETTINGS = (
  THRESHOLD,
  Setting(
    'pseudo_label_view',
    str,
    'The view that clients label: weak or plain.',
    choices=('plain', 'weak'),
    needed_by='SemiFL with labels that no draw decides',
  ),
  *objectives.FixAndMix.settings,
  shared.GLOBAL_MOMENTUM,
  CLIENT_WEIGHTING,
  *shared.LOCAL,
  *SERVER_SETTINGS,
)


def _derive(values, given):
  """Returns the server's batch size, which its authors choose by the labels."""
  labelled = given.get('server_examples', values['server_examples'])
  return {'server_batch_size': 250 if labelled > 250 else 10}


SPEC = ProcessSpec(
  'semifl',
  'SemiFL: clients train on labels of the received model, then the server.',
  build_semifl,
  SETTINGS,
  source="Diao et al. 2022, arXiv 2106.01432, and its authors' code",
  needs=Needs(tokens=False),
  objective=objectives.FixAndMix,
  # Its authors' code.
  defaults={
    'batch_size': 10,
    'local_epochs': 5,
    'weight_decay': 5e-4,
    'client_clip_norm': 1.0,
  },
  derive=_derive,
  makes_pseudo_labels=True,
  has_gradient_diversity=False,
)
