"""Label-hungry clients: SSPT, SSJO and their supervised baseline FSL.

Hegde et al., "Label Hungry? Not Anymore: Towards Federated Semi-supervised
Learning". The models have an encoder that a proxy task trains on all examples.

FSL is FedAvg on those examples that have a label.

SSPT (Methods 1, Figure 3): both stages are FedAvg, one after the other in one
process:

```
rounds 1 ... P   encoder and the proxy task's head, on unlabelled examples
after that       encoder and classifier, on labelled examples
```

The encoder is a part of the process's state all the time, so the second stage
starts from what the first one ended with, bit for bit; the classifier starts as
it was initialised. In the authors' published code the second stage did not
receive the encoder, so what they report for this method is supervised FedAvg.

SSJO (Methods 2, Figure 4): a client's minibatches are all labelled or all
unlabelled, drawn at random; a labelled one trains both heads, an unlabelled one
the proxy task's head alone, and both the encoder. The server averages as in
FedAvg. The method is not among the authors' published code, and the paper
leaves two things open. Which share of minibatches is labelled: here the
labelled examples' share of all, or `labelled_batch_probability`. How the losses
are weighed: here 1, or `ssjo_loss_weight`. Where a minibatch has no labels, the
classifier's gradient is 0; its momentum goes on all the same, as in any
optimizer over one loss, or rests (`idle_momentum`).
"""

from __future__ import annotations

import collections
import dataclasses
import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments, condition
from tff_ssl.objectives import proxy_tasks
from tff_ssl.objectives.proxy_tasks import PROXY_TASK, SSJO_LOSS_WEIGHT
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import split
  from tff_ssl.templates import averaging, finalizers


_PRETRAINING_ROUNDS = Setting(
  'pretraining_rounds',
  int,
  'The first rounds of `total_rounds`, which train on the proxy task; by '
  'default half of them.',
  at_least=0,
  rounds='phase',
  phase='pre-training',
  argument='pretraining.rounds',
)
# Positions among the parts: encoder, classifier, the proxy task's head.
_CLASSIFIER = (0, 1)
_PROXY = (0, 2)
_SSJO_TRAINING = TrainingPlan(
  batch_size=20, epochs=10, client_momentum='reset', redrawn_mask_ratio=0.0
)
_SSPT_TRAINING = dataclasses.replace(_SSJO_TRAINING, epoch_batches='continuous')


@dataclasses.dataclass(frozen=True)
class Pretraining:
  """The first stage of SSPT, in which encoders learn without labels.

  Attributes:
    proxy_task: What they learn, a `tff_ssl.ProxyTask`.
    rounds: P >= 0, how many rounds it takes.
  """

  proxy_task: proxy_tasks.ProxyTask = proxy_tasks.Reconstruction()
  rounds: int = 100

  def __post_init__(self):
    _PRETRAINING_ROUNDS.check(self.rounds)


@dataclasses.dataclass(frozen=True)
class _Stage:
  """A stage: which parts of the joint model train, how, and from when on.

  Momentum that outlives a round is a pair, each stage's at its `index`. A
  `frozen` model is one whose encoder does not train.
  """

  index: int
  joint: split.SplitModel
  parts: tuple[int, int]
  training: templates.LocalTraining
  first_round: int = 0
  frozen: split.SplitModel | None = None

  def run(self, task):
    """Trains the parts on a client's task; the other weights stay."""
    start = self.joint.take(task.weights, self.parts)
    if self.frozen:
      start = split.freeze_weights(self.frozen, start)
    states = task.optimizer_state
    result = self.training.run_task(
      task,
      start=start,
      round_num=task.round - self.first_round,
      optimizer_state=None if states is None else states[self.index],
    )
    weights = result.weights
    if self.frozen:
      weights = split.thaw_weights(self.frozen, weights)
    if states is not None:
      states = list(states)
      states[self.index] = result.optimizer_state
    # Both branches of a condition report the same metrics: 0/0 for the others.
    metrics = collections.OrderedDict(
      (name, result.metrics.get(name, tf.zeros([2])))
      for name in ('loss', 'accuracy', 'proxy_loss')
    )
    if 'loss' not in result.metrics:
      metrics['loss'] = metrics['proxy_loss']
    return result._replace(
      weights=self.joint.put(task.weights, self.parts, weights),
      optimizer_state=tuple(states or ()),
      metrics=metrics,
    )


def _sgd():
  return tff.learning.optimizers.build_sgdm(0.001, 0.99)


def _classifier_of(joint):
  """Returns the view of the joint model's weights that evaluation has."""
  return templates.ModelView(
    lambda weights: joint.take(weights, _CLASSIFIER),
    lambda weights, present: joint.put(present, _CLASSIFIER, weights),
  )


@tff_arguments.taken
def build_sspt(
  model: split.SplitModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  pretraining: Pretraining = Pretraining(),
  encoder_training: str = 'fine_tuned',
  client_training: TrainingPlan = _SSPT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'examples',
  class_weights: tuple[float, ...] | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds SSPT-FedAvg.

  The global weights are those of the model with the proxy task's head behind
  its own; `get_model_weights` gives the model's alone, the classifier. To start
  from an encoder that was trained elsewhere, take `Pretraining(rounds=0)` and
  `process.set_model_weights(state, model.with_encoder_weights(...))`.

  Args:
    model: A classifier that `tff_ssl.join` made of an encoder and a head.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation; `tff_ssl.augmentation.PlainViews()` is the paper's.
    pretraining: The first stage (`tff_ssl.Pretraining`); by default 100 rounds
      of reconstruction on all examples.
    encoder_training: In the second stage, 'fine_tuned' or 'frozen'.
    client_training: How a client trains in both stages; by default 10 passes
      over the stage's examples, cut as one, by the paper's SGD with learning
      rate 0.001 and momentum 0.99, on minibatches of 20. The clock of a
      schedule starts again with the second stage.
    server_optimizer: By default SGD with learning rate 1. It starts afresh with
      the second stage. One with weight decay, or noise from the aggregator,
      moves the parts that do not train, too.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    class_weights: d positive factors of the classifier's loss by class; by
      default 1.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`. Clients report `loss`, that of
    the stage; `proxy_loss` in the first stage and `accuracy` in the second,
    each 0/0 in the other.

  Raises:
    ValueError: If an argument is out of range, or proxy task, encoder and views
      do not fit each other.
    TypeError: If the model has no encoder of its own, or does not fit the
      client data.
  """
  check_arguments(SSPT_SETTINGS, locals())
  joint = proxy_tasks.add_head(model, pretraining.proxy_task, views)
  frozen = model if encoder_training == 'frozen' else None
  given = client_training.over(_SSPT_TRAINING, optimizer=_sgd())
  # Each stage has a momentum of its own.
  plan = dataclasses.replace(given, client_momentum=None)
  first = _Stage(
    0,
    joint,
    _PROXY,
    templates.LocalTraining(
      split.join(joint.encoder, joint.heads[-1]),
      objectives.SelfSupervised(views, pretraining.proxy_task),
      # It sees all images, and no label to hide.
      dataclasses.replace(plan, redrawn_mask_ratio=None),
      templates.Selection('all'),
    ),
  )
  second = _Stage(
    1,
    joint,
    _CLASSIFIER,
    templates.LocalTraining(
      split.freeze_encoder(model) if frozen else model,
      objectives.Supervised(views, class_weights=class_weights),
      plan,
    ),
    first_round=pretraining.rounds,
    frozen=frozen,
  )

  def train(task):
    return tf.cond(
      task.round < pretraining.rounds,
      lambda: first.run(task),
      lambda: second.run(task),
    )

  def initial_states():
    stages = (first, second)
    return tuple(stage.training.initial_optimizer_state() for stage in stages)

  return averaging.compose(
    second.training,
    train=train,
    model=joint,
    data_spec=data_spec,
    client_weighting=client_weighting,
    wiring=wiring,
    server=functools.partial(
      finalizers.build_apply_mean_delta,
      server_optimizer,
      first_stage_rounds=pretraining.rounds,
    ),
    memories=templates.client_momentum(
      given.client_momentum, data_spec, initial_states
    ),
    view=_classifier_of(joint),
  )


@tff_arguments.taken
def build_ssjo(
  model: split.SplitModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: proxy_tasks.JointlyOptimized | None = None,
  labelled_batch_probability: float | None = None,
  client_training: TrainingPlan = _SSJO_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  idle_momentum: str = 'coasts',
  client_weighting: str = 'examples',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds SSJO-FedAvg, with the weights of `build_sspt`.

  Args:
    model: As in `build_sspt`.
    data_spec: As in `build_sspt`.
    views: As in `build_sspt`.
    client_objective: By default `tff_ssl.JointlyOptimized(views)`, whose
      arguments are the proxy task and the weights of its loss and of classes.
    labelled_batch_probability: Of a labelled minibatch, in [0, 1]; by default
      the labelled examples' share of the client's.
    client_training: How a client trains; by default the paper's SGD with
      learning rate 0.001 and momentum 0.99, on minibatches of 20. `epochs`,
      by default 10, stands for as many steps as so many passes over all of the
      client's examples take. `tff_ssl.exponential`, a schedule, decays over
      rounds, which the paper proposes against oscillation.
    server_optimizer: By default SGD with learning rate 1.
    idle_momentum: What a step does to weights that get no gradient in it:
      'coasts', momentum carries them on, or 'rests', neither they nor their
      momentum change (`tff_ssl.optimizers.rest_without_gradient`).
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`. Clients report `loss` and
    `accuracy` on labelled examples, and `proxy_loss` on all.

  Raises:
    ValueError: If an argument is out of range, or proxy task, encoder and views
      do not fit each other.
    TypeError: If the model has no encoder of its own, or does not fit the
      client data.
  """
  check_arguments(SSJO_SETTINGS, locals())
  plan = client_training.over(_SSJO_TRAINING, optimizer=_sgd())
  if idle_momentum == 'rests':
    plan = dataclasses.replace(
      plan, optimizer=optimizers.rest_without_gradient(plan.optimizer)
    )
  objective = client_objective or objectives.JointlyOptimized(views)
  joint = proxy_tasks.add_head(model, objective.proxy_task, views)
  training = templates.LocalTraining(
    joint,
    objective,
    plan,
    templates.Selection('either', labelled_batch_probability),
  )
  return averaging.compose(
    training,
    train=training.run_task,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
    view=_classifier_of(joint),
  )


SETTINGS = (
  *(*shared.LOCAL, shared.CLIENT_WEIGHTING, shared.CLIENT_MOMENTUM),
  CLASS_WEIGHTS,
)
SSPT_SETTINGS = (
  *SETTINGS,
  shared.EPOCH_BATCHES,
  PROXY_TASK,
  _PRETRAINING_ROUNDS,
  Setting(
    'encoder_training',
    str,
    'The encoder after the pre-training: fine_tuned or frozen.',
    choices=('fine_tuned', 'frozen'),
  ),
)


@condition('hidden or absent labels')
def _all_labelled(values):
  """Says so where each minibatch has labels."""
  if values.get('mask_ratio') == 0 and not values.get('may_lack_labels'):
    return '`mask_ratio=0` hides no label'
  return None


SSJO_SETTINGS = (
  *SETTINGS,
  PROXY_TASK,
  SSJO_LOSS_WEIGHT,
  Setting(
    'labelled_batch_probability',
    float,
    'Probability of a labelled minibatch, in [0, 1]; by default the labelled '
    "examples' share of the client's.",
    at_least=0,
    at_most=1,
    optional=True,
    used_when=(_all_labelled,),
    needed_by='SSJO, of which the paper leaves it open',
  ),
  Setting(
    'idle_momentum',
    str,
    'Weights that get no gradient in a step: momentum carries them on '
    '(coasts), or they and their momentum stay as they are (rests).',
    choices=('coasts', 'rests'),
  ),
)


_PAPER = 'Hegde et al., Label Hungry? Not Anymore'


def _derive(values, given):
  """Returns twice the rounds, half of them for the proxy task.

  Where the user gives the rounds, the pre-training is not longer than by
  default: a run may go on for longer than it was asked to at first.
  """
  rounds = values['total_rounds']
  total = given.get('total_rounds', 2 * rounds)
  return {
    'total_rounds': total,
    'pretraining_rounds': min(rounds, max(1, total // 2)),
  }


def _check(values):
  """Raises `ValueError` where the classifier would have no round."""
  pretraining, total = values['pretraining_rounds'], values['total_rounds']
  if pretraining >= total:
    raise ValueError(
      f'`pretraining_rounds={pretraining}` leaves none of '
      f'`total_rounds={total}` for the classifier: lower the first or raise '
      'the second.'
    )


# Chart 1 of the paper, and batches as its code made them. Most labels are
# hidden, so that a first run shows what it is about.
_DEFAULTS = {
  'model': 'dense_encoder',
  'batch_size': 20,
  'local_epochs': 10,
  'epoch_batches': 'continuous',
  'learning_rate': 1e-3,
  'momentum': 0.99,
  'nesterov': False,
  'weight_decay': 0.0,
  'mask_ratio': 0.9,
}
_BOTH_KINDS = Needs(
  labels_at='clients', views='none', unlabelled=True, encoder=True
)
SPECS = (
  ProcessSpec(
    'fsl',
    'Supervised FedAvg on what has a label: the baseline of SSPT and SSJO.',
    fed_avg.build_fed_avg,
    (*SETTINGS, shared.EPOCH_BATCHES, fed_avg.MATCH_LOCAL_STEPS),
    source=f'{_PAPER}, Experimental Setup (FSL)',
    needs=Needs(labels_at='clients', views='none'),
    objective=objectives.Supervised,
    # At the paper's rate, few labels teach little: validation chose 0.03 on its
    # writers. A third of that, for data that nobody has tuned.
    defaults={**_DEFAULTS, 'learning_rate': 0.01},
  ),
  ProcessSpec(
    'sspt',
    'SSPT: self-supervised pre-training, then supervised FedAvg, in one run.',
    build_sspt,
    SSPT_SETTINGS,
    source=f'{_PAPER}, Methods 1 and Figure 3',
    needs=_BOTH_KINDS,
    defaults=_DEFAULTS,
    derive=_derive,
    check=_check,
    has_gradient_diversity=False,
  ),
  ProcessSpec(
    'ssjo',
    'SSJO: classifier and self-supervised task are trained jointly, FedAvg.',
    build_ssjo,
    SSJO_SETTINGS,
    source=f'{_PAPER}, Methods 2 and Figure 4',
    needs=_BOTH_KINDS,
    objective=objectives.JointlyOptimized,
    defaults=_DEFAULTS,
    has_gradient_diversity=False,
  ),
)
