"""SSJO: classifier and proxy task are trained jointly on one encoder.

Hegde et al., "Label Hungry? Not Anymore: Towards Federated Semi-supervised
Learning", Methods 2 and Figure 4. A client's minibatches are all labelled or
all unlabelled, drawn at random; a labelled one trains both heads, an unlabelled
one the proxy task's head alone, and both the encoder. The server averages as in
FedAvg.

The method is not among the authors' published code, and the paper leaves two
things open. Which share of minibatches is labelled: here the labelled examples'
share of all, or `labelled_batch_probability`. How the losses are weighed: here
1, or `ssjo_loss_weight`. Where a minibatch has no labels, the classifier's
gradient is 0; its momentum goes on all the same, as in any optimizer over one
loss, or rests (`idle_momentum`).
"""

import tensorflow_federated as tff

from tff_ssl import checks, objectives, optimizer_wrappers
from tff_ssl.objectives import proxy_tasks
from tff_ssl.templates import averaging, local_training, minibatches

_CLASSIFIER = (0, 1)


def build_ssjo(
  model,
  *,
  data_spec,
  views,
  proxy_task=None,
  ssjo_loss_weight: float = 1.0,
  labelled_batch_probability: float | None = None,
  redrawn_mask_ratio: float | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 20,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  idle_momentum: str = 'coasts',
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
  """Builds SSJO-FedAvg.

  The global weights are those of the model with the proxy task's head behind
  its own; `get_model_weights` gives the model's alone, the classifier.

  Args:
    model: A classifier that `tff_ssl.join` made of an encoder and a head.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation; `tff_ssl.augmentation.PlainViews()` is the paper's.
    proxy_task: A `tff_ssl.ProxyTask`; by default `tff_ssl.Reconstruction()`.
    ssjo_loss_weight: Weight of the proxy task's loss, >= 0.
    labelled_batch_probability: Of a labelled minibatch, in [0, 1]; by default
      the labelled examples' share of the client's.
    redrawn_mask_ratio: If given, the share of a client's labels that is hidden,
      others in each pass; one is left.
    client_optimizer: By default the paper's SGD: learning rate 0.001, momentum
      0.99.
    server_optimizer: By default SGD with learning rate 1.
    batch_size: Examples in a minibatch (B).
    local_steps: Steps of a client in a round.
    local_epochs: Instead of `local_steps`, as many steps as so many passes over
      all of the client's examples; 10 if neither is given.
    idle_momentum: What a step does to weights that get no gradient in it:
      'coasts', momentum carries them on, or 'rests', neither they nor their
      momentum change (`tff_ssl.optimizer_wrappers.rest_without_gradient`).
    client_momentum: 'reset' or 'slot'; see `tff_ssl.algorithms.fed_avg`.
    num_slots: C, for `client_momentum='slot'` only.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    schedule: As in `build_fed_avg`; `tff_ssl.exponential` decays over rounds,
      which the paper proposes against oscillation.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: As in `build_fed_avg`.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`. Clients report `loss` and
    `accuracy` on labelled examples, and `proxy_loss` on all.

  Raises:
    ValueError: If an argument is out of range, or proxy task, encoder and views
      do not fit each other.
    TypeError: If the model has no encoder of its own, or does not fit the
      client data.
  """
  checks.integers_at_least(
    1,
    batch_size=batch_size,
    local_steps=local_steps,
    local_epochs=local_epochs,
  )
  if labelled_batch_probability is not None:
    checks.fractions(labelled_batch_probability=labelled_batch_probability)
  checks.choice(idle_momentum=idle_momentum)
  data_spec.check_model(model)
  client_optimizer = client_optimizer or tff.learning.optimizers.build_sgdm(
    0.001, 0.99
  )
  if idle_momentum == 'rests':
    client_optimizer = optimizer_wrappers.rest_without_gradient(
      client_optimizer
    )
  task = proxy_task or proxy_tasks.Reconstruction()
  joint = proxy_tasks.add_head(model, task, views)
  training = local_training.LocalTraining(
    joint,
    objectives.JointlyOptimized(views, task, ssjo_loss_weight),
    client_optimizer,
    batch_size,
    **local_training.steps_or_epochs(
      local_steps, local_epochs, default_epochs=10
    ),
    schedule=schedule,
    selection=minibatches.Selection(
      'either', labelled_batch_probability, redrawn_mask_ratio
    ),
  )

  return averaging.compose(
    averaging.train_all(training),
    model=joint,
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    initial_optimizer_state=training.initial_optimizer_state,
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
    seed=seed,
  )
