"""FedTriNet: three models of a client label its examples by a joint vote.

Che et al., FedTriNet: A Pseudo Labeling Method with Three Players for Federated
Semi-supervised Learning (arXiv 2109.05612), as its authors' demonstration code
does it:

```
rounds 1 ... P   FedAvg on labelled examples
after that       old     what the client's last local training ended with
                 new     the global encoder, and old's head fine-tuned to it on
                         labelled examples
                 label   argmax of the sum of the softmaxes of global, old and
                         new, where the largest of their mean passes a threshold
                 new is trained on labelled and so labelled examples; it is the
                 client's update, and its next old
```

The threshold is 1.1 times the mean largest probability that the global model of
the client's first round after P gives the client's unlabelled examples; for 10
of those rounds it is constant, then it falls linearly to half at the 35th
(`threshold_rounds`; the first 2/7 of them are constant). An example is labelled
once and keeps its label, as long as the client's number of examples is the
same. The old model, the labels and the threshold stay with the client
(`tff_ssl.templates.client_state`); one that has no old model takes the global
one. The code's options to weigh pseudo-labelled examples less are left out.
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedlabel, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import randomness, templates
  from tff_ssl.models import split
  from tff_ssl.objectives import losses
  from tff_ssl.templates import averaging, prediction


# Position of the head among the parts of the model.
_HEAD = (1,)
_FACTOR = 1.1
# The threshold is constant for 10 of the 35 rounds until it is half.
_CONSTANT_SHARE = 10 / 35
_NONE = -1
# What the seeds of a client's trainings are folded with.
_FIRST, _OF_HEAD, _SECOND = range(3)
_CLIENT_TRAINING = TrainingPlan(batch_size=50, epochs=5)


@dataclasses.dataclass(frozen=True)
class _Client:
  """What a client does, with the three models of the equations above.

  Its state has the `old` model, the pseudo-`labels` of its examples, and the
  `threshold`, 0 until there is one.
  """

  model: split.SplitModel
  views: protocols.Views
  training: templates.LocalTraining
  head_training: templates.LocalTraining
  supervised_rounds: int
  threshold_rounds: int

  def train(self, task):
    """Trains, and reports how many pseudo-labels there are, and how good."""
    state = _for_these(task.client_state, task.examples)
    unlabelled = tf.cast(task.examples['y'] < 0, tf.float32)
    result, kept = tf.cond(
      task.round < self.supervised_rounds,
      lambda: self._train_on_labels(task, state),
      lambda: self._train_on_votes(task, state, unlabelled),
    )
    given = unlabelled * tf.cast(kept['labels'] >= 0, tf.float32)
    metrics = collections.OrderedDict(
      result.metrics,
      mask_rate=(tf.reduce_sum(given), tf.reduce_sum(unlabelled)),
      pseudo_label_accuracy=losses.pseudo_label_accuracy(
        kept['labels'], given, task.examples
      ),
    )
    return result._replace(metrics=metrics, client_state=kept)

  def _train_on_labels(self, task, state):
    """Trains the global model on the labelled examples."""
    seed = randomness.fold_in(task.client_seed, _FIRST)
    result = self.training.run_task(task, seed=seed)
    return result, {**state, 'old': result.weights}

  def _train_on_votes(self, task, state, unlabelled):
    """Lets the three models label examples, and trains the new one on all."""
    old = state['old']
    new, tuning_passes = self._tune_head(task, old)
    x = self.views.plain(task.examples['x'])
    votes = [
      prediction.probabilities(self.model, weights, x)
      for weights in (task.weights, old, new)
    ]
    confidence = tf.math.divide_no_nan(
      tf.reduce_sum(unlabelled * tf.reduce_max(votes[0], axis=1)),
      tf.reduce_sum(unlabelled),
    )
    # A client keeps the threshold of its first vote.
    threshold = tf.where(
      state['threshold'] > 0, state['threshold'], _FACTOR * confidence
    )
    mean = tf.add_n(votes) / len(votes)
    share = _share(task.round - self.supervised_rounds, self.threshold_rounds)
    is_confident = tf.reduce_max(mean, axis=1) >= threshold * share
    # What has a label keeps it, whether the vote is the same now or not.
    is_new = is_confident & tf.equal(state['labels'], _NONE) & (unlabelled > 0)
    labels = tf.where(
      is_new, tf.argmax(mean, axis=1, output_type=tf.int32), state['labels']
    )
    result = self.training.run_task(
      task,
      start=new,
      examples=collections.OrderedDict(
        task.examples, y=tf.where(unlabelled > 0, labels, task.examples['y'])
      ),
      seed=randomness.fold_in(task.client_seed, _SECOND),
    )
    voting_passes = prediction.forward_passes(x, len(votes))
    return (
      result._replace(passes=tuning_passes + voting_passes + result.passes),
      {'old': result.weights, 'labels': labels, 'threshold': threshold},
    )

  def _tune_head(self, task, old):
    """Returns the new model, with old's head fitted to it, and the passes."""
    with_old_head = self.model.put(
      task.weights, _HEAD, self.model.take(old, _HEAD)
    )
    tuned = self.head_training.run_task(
      task,
      start=split.freeze_weights(self.model, with_old_head),
      seed=randomness.fold_in(task.client_seed, _OF_HEAD),
    )
    return split.thaw_weights(self.model, tuned.weights), tuned.passes


def _first_state(task):
  """Returns the state of a client that has no old model: the global one."""
  return {
    'old': tf.nest.map_structure(tf.convert_to_tensor, task.weights),
    'labels': tf.fill(tf.shape(task.examples['y']), _NONE),
    'threshold': tf.constant(0.0),
  }


def _for_these(state, examples):
  """Returns the state with as many labels as the client has examples.

  Labels of other examples than those of its last round say nothing.
  """
  size = tf.shape(examples['y'])[0]
  labels = tf.cond(
    tf.equal(tf.size(state['labels']), size),
    lambda: state['labels'],
    lambda: tf.fill([size], _NONE),
  )
  return {**state, 'labels': labels}


def _share(round_num, threshold_rounds):
  """Returns the share of the threshold that holds after so many rounds."""
  constant = _CONSTANT_SHARE * threshold_rounds
  done = (tf.cast(round_num, tf.float32) - constant) / (
    threshold_rounds - constant
  )
  return 1 - 0.5 * tf.clip_by_value(done, 0.0, 1.0)


@tff_arguments.taken
def build_fedtrinet(
  model: split.SplitModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_state_dir: str,
  supervised_rounds: int = 40,
  threshold_rounds: int = 35,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'examples',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedTriNet.

  Args:
    model: A classifier that `tff_ssl.join` made: its encoder are the shallow
      layers, its head the deep ones.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation; the three models see the plain view.
    client_state_dir: Absolute path of the folder where clients keep their
      state; see `tff_ssl.templates.client_state`.
    supervised_rounds: P >= 0; 40 of 100 rounds in the authors' code.
    threshold_rounds: Rounds after P until the threshold is half of what it was,
      at least 1; 35 in the authors' code.
    client_training: How a client trains, twice in a round after P; by default
      as in the authors' code: 5 passes by SGD with learning rate 0.01 and
      momentum 0.5, on minibatches of 50.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: 'examples' (processed in the training that is sent) or
      'uniform'.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`. Beside `loss` and `accuracy` of
    the training that is sent, clients report `mask_rate`, the share of
    unlabelled examples with a pseudo-label, and `pseudo_label_accuracy`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If the model has no encoder of its own, or does not fit the
      client data.
  """
  check_arguments(SETTINGS, locals())
  split.check(model)

  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_sgdm(0.01, 0.5)
  )
  objective = objectives.Supervised(views)
  training = templates.LocalTraining(model, objective, plan)
  client = _Client(
    model,
    views,
    training,
    templates.LocalTraining(split.freeze_encoder(model), objective, plan),
    supervised_rounds,
    threshold_rounds,
  )
  return averaging.compose(
    training,
    train=client.train,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
    memories=(templates.ClientMemory(client_state_dir, _first_state),),
  )


SETTINGS = (
  Setting(
    'supervised_rounds',
    int,
    'First rounds, which have no pseudo-labels; by default 40% of all.',
    at_least=0,
    rounds='head',
    phase='without pseudo-labels',
  ),
  Setting(
    'threshold_rounds',
    int,
    'Rounds with pseudo-labels after which the threshold is half of what it '
    'was; it is constant for 2/7 of them.',
    at_least=1,
    rounds='share',
  ),
  shared.CLIENT_WEIGHTING,
  *shared.LOCAL,
)


def _derive(values, given):
  """Returns the rounds without pseudo-labels, 40% of the default rounds.

  Not of the rounds that are asked for: a run may go on for longer.
  """
  rounds = values['total_rounds']
  return {
    'supervised_rounds': min(rounds, given.get('total_rounds', rounds)) * 2 // 5
  }


def _check(values):
  """Raises `ValueError` where no round would have pseudo-labels."""
  supervised, total = values['supervised_rounds'], values['total_rounds']
  if supervised >= total:
    raise ValueError(
      f'`supervised_rounds={supervised}` leaves none of `total_rounds={total}` '
      'for pseudo-labels: lower the first or raise the second.'
    )


SPEC = ProcessSpec(
  'fedtrinet',
  'FedTriNet: global, old and new model of a client vote on pseudo-labels.',
  build_fedtrinet,
  SETTINGS,
  source="Che et al. 2021, arXiv 2109.05612, and its authors' code",
  needs=Needs(labels_at='clients', views='weak', unlabelled=True, encoder=True),
  # Its authors' demonstration code, with FedLabel's share of labels.
  defaults={
    **fedlabel.FEW_LABELS,
    'model': 'cnn_encoder',
    'batch_size': 50,
    'local_epochs': 5,
    'learning_rate': 0.01,
    'momentum': 0.5,
    'nesterov': False,
    'weight_decay': 0.0,
  },
  derive=_derive,
  check=_check,
  makes_pseudo_labels=True,
  has_gradient_diversity=False,
)
