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

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, objectives
from tff_ssl.models import split
from tff_ssl.objectives import proxy_tasks
from tff_ssl.templates import averaging, local_training, minibatches

# Positions among the parts: encoder, classifier, the proxy task's head.
_CLASSIFIER = (0, 1)
_PROXY = (0, 2)


def build_sspt(
  model,
  *,
  data_spec,
  views,
  pretraining_rounds: int = 100,
  pretraining_images: str = 'all',
  encoder_training: str = 'fine_tuned',
  proxy_task=None,
  redrawn_mask_ratio: float | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 20,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  epoch_batches: str = 'continuous',
  client_momentum: str = 'reset',
  num_slots: int | None = None,
  client_weighting: str = 'examples',
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None = None,
  metrics_aggregator=None,
  seed: int = 0,
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
    client_optimizer: Of both stages; by default the paper's SGD: learning rate
      0.001, momentum 0.99.
    server_optimizer: By default SGD with learning rate 1. It starts afresh with
      the second stage. One with weight decay, or noise from the aggregator,
      moves the parts that do not train, too.
    batch_size: Examples in a minibatch (B).
    local_steps: Steps of a client in a round.
    local_epochs: Instead of `local_steps`, passes over the stage's examples; 10
      if neither is given.
    epoch_batches: With `local_epochs`, 'separate' or 'continuous' passes; see
      `tff_ssl.templates.minibatches`.
    client_momentum: 'reset' or 'slot'; see `tff_ssl.algorithms.fed_avg`.
    num_slots: C, for `client_momentum='slot'` only.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    schedule: As in `build_fed_avg`; its clock starts again with the second
      stage.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: As in `build_fed_avg`.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

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
  checks.integers_at_least(0, pretraining_rounds=pretraining_rounds)
  checks.integers_at_least(
    1,
    batch_size=batch_size,
    local_steps=local_steps,
    local_epochs=local_epochs,
  )
  checks.choice(
    pretraining_images=pretraining_images, encoder_training=encoder_training
  )
  data_spec.check_model(model)
  task = proxy_task or proxy_tasks.Reconstruction()
  joint = proxy_tasks.add_head(model, task, views)
  is_frozen = encoder_training == 'frozen'

  def build_training(part, objective, rows):
    return local_training.LocalTraining(
      part,
      objective,
      client_optimizer or tff.learning.optimizers.build_sgdm(0.001, 0.99),
      batch_size,
      **local_training.steps_or_epochs(
        local_steps, local_epochs, default_epochs=10
      ),
      schedule=schedule,
      epoch_batches=epoch_batches,
      selection=minibatches.Selection(
        rows, redrawn_mask_ratio=None if rows == 'all' else redrawn_mask_ratio
      ),
    )

  pretraining = build_training(
    split.join(joint.encoder, joint.heads[-1]),
    objectives.SelfSupervised(views, task),
    pretraining_images,
  )
  finetuning = build_training(
    split.freeze_encoder(model) if is_frozen else model,
    objectives.Supervised(views),
    'labelled',
  )

  def train(task):
    def run(stage, training, start, round_num):
      state = None if task.slot_state is None else task.slot_state[stage]
      result = averaging.run_training(
        training,
        task,
        start=start,
        round_num=round_num,
        optimizer_state=state,
      )
      states = ()
      if task.slot_state is not None:
        states = list(task.slot_state)
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

  return averaging.compose(
    train,
    model=joint,
    data_spec=data_spec,
    initial_hparams=finetuning.initial_hparams,
    initial_optimizer_state=lambda: (
      pretraining.initial_optimizer_state(),
      finetuning.initial_optimizer_state(),
    ),
    server_optimizer=server_optimizer,
    client_weighting=client_weighting,
    client_momentum=client_momentum,
    num_slots=num_slots,
    model_distributor=model_distributor,
    model_aggregator=model_aggregator,
    metrics_aggregator=metrics_aggregator,
    to_model_weights=lambda weights: joint.take(weights, _CLASSIFIER),
    from_model_weights=lambda weights, present: joint.put(
      present, _CLASSIFIER, weights
    ),
    server_restart_round=pretraining_rounds,
    seed=seed,
  )
