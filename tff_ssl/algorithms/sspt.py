"""SSPT: the encoder learns a proxy task first, then the classifier is trained.

Hegde et al., "Label Hungry? Not Anymore: Towards Federated Semi-supervised
Learning", Methods 1 and Figure 3. Both stages are FedAvg, one after the other
in one process:

```
rounds 1 ... P   encoder and the proxy task's head, on unlabelled examples
after that       encoder and classifier, on labelled examples
```

The encoder is a part of the process's state all the time, so the second stage
starts from what the first one ended with, bit for bit; the classifier starts as
it was initialised. In the authors' published code the second stage did not
receive the encoder, so what they report for this method is supervised FedAvg.
"""

from __future__ import annotations

import collections
import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import label_hungry, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments, unless
from tff_ssl.objectives import proxy_tasks
from tff_ssl.objectives.proxy_tasks import PROXY_TASK
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import functional, split
  from tff_ssl.templates import averaging, finalizers

SETTINGS = (
  *label_hungry.SETTINGS,
  shared.EPOCH_BATCHES,
  PROXY_TASK,
  Setting(
    'pretraining_rounds',
    int,
    'Rounds of `total_rounds` that go to the proxy task, the first ones; by '
    'default half of them.',
    at_least=0,
    rounds='phase',
    phase='pre-training',
  ),
  Setting(
    'pretraining_images',
    str,
    'Images of the pre-training: all, or the unlabelled ones alone.',
    choices=('all', 'unlabelled'),
    used_when=(unless('pretraining_rounds', 0, 'leaves it out'),),
  ),
  Setting(
    'encoder_training',
    str,
    'The encoder after the pre-training: fine_tuned or frozen.',
    choices=('fine_tuned', 'frozen'),
  ),
)


# Positions among the parts: encoder, classifier, the proxy task's head.
_CLASSIFIER = (0, 1)
_PROXY = (0, 2)

_CLIENT_TRAINING = TrainingPlan(
  batch_size=20, epochs=10, epoch_batches='continuous'
)


@tff_arguments.taken
def build_sspt(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  pretraining_rounds: int = 100,
  pretraining_images: str = 'all',
  encoder_training: str = 'fine_tuned',
  proxy_task: proxy_tasks.ProxyTask | None = None,
  redrawn_mask_ratio: float | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_momentum: str = 'reset',
  client_weighting: str = 'examples',
  class_weights: tuple[float, ...] | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds SSPT-FedAvg.

  The global weights are those of the model with the proxy task's head behind
  its own; `get_model_weights` gives the model's alone, the classifier. To start
  from an encoder that was trained elsewhere, set `pretraining_rounds=0` and
  `process.set_model_weights(state, model.with_encoder_weights(...))`.

  Args:
    model: A classifier that `tff_ssl.join` made of an encoder and a head.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation; `tff_ssl.augmentation.PlainViews()` is the paper's.
    pretraining_rounds: P >= 0, rounds of the first stage.
    pretraining_images: What the first stage sees, 'all' or 'unlabelled'.
    encoder_training: In the second stage, 'fine_tuned' or 'frozen'.
    proxy_task: A `tff_ssl.ProxyTask`; by default `tff_ssl.Reconstruction()`.
    redrawn_mask_ratio: If given, the share of a client's labels that is hidden,
      others in each pass; one is left.
    client_training: How a client trains in both stages; by default 10 passes
      over the stage's examples, cut as one, by the paper's SGD with learning
      rate 0.001 and momentum 0.99, on minibatches of 20. The clock of a
      schedule starts again with the second stage.
    server_optimizer: By default SGD with learning rate 1. It starts afresh with
      the second stage. One with weight decay, or noise from the aggregator,
      moves the parts that do not train, too.
    client_momentum: 'reset', 'slot' or 'mean'; see
      `tff_ssl.algorithms.fed_avg`.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    class_weights: d positive factors of the classifier's loss by class; by
      default 1.
    wiring: Distributor, aggregators and seed; see `tff_ssl.Wiring`.

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
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  task = proxy_task or proxy_tasks.Reconstruction()
  joint = proxy_tasks.add_head(model, task, views)
  is_frozen = encoder_training == 'frozen'

  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_sgdm(0.001, 0.99)
  )

  def build_training(part, objective, rows):
    ratio = None if rows == 'all' else redrawn_mask_ratio
    return templates.LocalTraining(
      part, objective, plan, templates.Selection(rows, redrawn_mask_ratio=ratio)
    )

  pretraining = build_training(
    split.join(joint.encoder, joint.heads[-1]),
    objectives.SelfSupervised(views, task),
    pretraining_images,
  )
  finetuning = build_training(
    split.freeze_encoder(model) if is_frozen else model,
    objectives.Supervised(views, class_weights=class_weights),
    'labelled',
  )

  def train(task):
    def run(stage, training, start, round_num):
      state = (
        None if task.optimizer_state is None else task.optimizer_state[stage]
      )
      result = training.run_task(
        task,
        start=start,
        round_num=round_num,
        optimizer_state=state,
      )
      states = ()
      if task.optimizer_state is not None:
        states = list(task.optimizer_state)
        states[stage] = result.optimizer_state
      none = [tf.zeros([2])] * 3
      metrics = collections.OrderedDict(
        zip(('loss', 'accuracy', 'proxy_loss'), none, strict=True)
      )
      metrics.update(result.metrics)
      if 'loss' not in result.metrics:
        metrics['loss'] = metrics['proxy_loss']
      return result._replace(optimizer_state=tuple(states), metrics=metrics)

    def pretrain():
      start = joint.take(task.weights, _PROXY)
      result = run(0, pretraining, start, task.round)
      return result._replace(
        weights=joint.put(task.weights, _PROXY, result.weights)
      )

    def finetune():
      start = joint.take(task.weights, _CLASSIFIER)
      if is_frozen:
        start = split.freeze_weights(model, start)
      result = run(1, finetuning, start, task.round - pretraining_rounds)
      weights = result.weights
      if is_frozen:
        weights = split.thaw_weights(model, weights)
      return result._replace(
        weights=joint.put(task.weights, _CLASSIFIER, weights)
      )

    return tf.cond(task.round < pretraining_rounds, pretrain, finetune)

  def initial_states():
    return (
      pretraining.initial_optimizer_state(),
      finetuning.initial_optimizer_state(),
    )

  factory = averaging.weighted_factory(
    wiring.model_aggregator, client_weighting
  )
  return templates.compose(
    templates.build_client_work(
      averaging.build_local_update(train, client_weighting),
      templates.initial_weights(joint, wiring.seed),
      data_spec=data_spec,
      initial_hparams=finetuning.initial_hparams,
      wiring=wiring,
      memories=templates.client_momentum(
        client_momentum, data_spec, initial_states
      ),
    ),
    create_aggregator=factory.create,
    build_finalizer=functools.partial(
      finalizers.build_apply_mean_delta,
      server_optimizer,
      first_stage_rounds=pretraining_rounds,
    ),
    wiring=wiring,
    view=templates.ModelView(
      lambda weights: joint.take(weights, _CLASSIFIER),
      lambda weights, present: joint.put(present, _CLASSIFIER, weights),
    ),
  )


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


SPEC = ProcessSpec(
  'sspt',
  'Self-supervised pre-training, then supervised FedAvg, in one run.',
  build_sspt,
  SETTINGS,
  source=f'{label_hungry.PAPER}, Methods 1 and Figure 3',
  needs=Needs(labels_at='clients', views='none', unlabelled=True, encoder=True),
  defaults=label_hungry.DEFAULTS,
  derive=_derive,
  check=_check,
  has_gradient_diversity=False,
)
