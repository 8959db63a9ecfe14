"""FedNova: averages of what clients change per step, not per round.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization (arXiv 2007.07481), Eq. 6 and Section 4: clients that
take more steps would pull FedAvg's average towards their own objective, so

```
delta_i = w_i - w
w <- w + tau_eff sum_i p_i delta_i / a_i,    tau_eff = sum_i p_i a_i
```

where p_i are the weights of clients, and a_i is the norm of client i's
accumulation vector (`tff_ssl.templates.effective_steps`): its steps tau_i with
plain SGD, [tau_i - rho (1 - rho^tau_i) / (1 - rho)] / (1 - rho) with momentum
rho, and [1 - (1 - alpha)^tau_i] / alpha with a proximal term mu and
alpha = eta mu. Where all clients take the same number of steps, it is FedAvg:
so with `local_steps`, while `local_epochs` make larger clients take more.
"""

from __future__ import annotations

import functools

from etils import epy

from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.objectives.wrappers.proximal import PROXIMAL_STRENGTH

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import aggregators, templates
  from tff_ssl.templates import averaging, effective_steps


def build_fednova(
  model,
  *,
  data_spec,
  views,
  client_objective=None,
  proximal_strength: float = 0.0,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 64,
  labelled_batch_size: int | None = None,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  redrawn_mask_ratio: float | None = None,
  client_weighting: str = 'examples',
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None = None,
  metrics_aggregator=None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds FedNova.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    client_objective: As in `build_fed_avg`.
    proximal_strength: mu >= 0 of a proximal term at clients.
    client_optimizer: SGD, maybe with momentum, which starts afresh every round.
      By default that of Zhang et al., as in `build_fed_avg`.
    server_optimizer: By default SGD with learning rate 1.
    batch_size: Examples in a client's minibatch.
    labelled_batch_size: As in `build_fed_avg`.
    local_steps: Steps of a client in a round; 16 if neither this nor
      `local_epochs` is given.
    local_epochs: Instead of `local_steps`, passes over the client's examples.
    redrawn_mask_ratio: As in `build_fed_avg`.
    client_weighting: p_i in proportion to 'examples' (as in `build_fed_avg`),
      or 'uniform'.
    schedule: As in `build_fed_avg`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: As in `build_fed_avg`; it averages the deltas per step.
      Neither a private nor a secure one covers the sums of weights and of
      steps.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`; its aggregator measures
    `effective_steps`, tau_eff.

  Raises:
    ValueError: If an argument is out of range, or the client optimizer does not
      step in proportion to the gradients.
    TypeError: If model and client data do not fit each other.
  """
  training = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    proximal_strength=proximal_strength,
    client_optimizer=client_optimizer,
    batch_size=batch_size,
    labelled_batch_size=labelled_batch_size,
    local_steps=local_steps,
    local_epochs=local_epochs,
    redrawn_mask_ratio=redrawn_mask_ratio,
    schedule=schedule,
  )
  effective_steps.check_optimizer(training.plan.optimizer, 'FedNova')
  rate = float(training.initial_hparams()['learning_rate'])
  if proximal_strength * rate >= 1:
    raise ValueError(
      f'proximal_strength={proximal_strength} times the learning rate {rate:g} '
      'must be below 1, or steps jump beyond the global model: lower one.'
    )

  def local_update(task):
    result = training.run_task(task)
    steps = effective_steps.effective_steps(
      training.plan,
      result.num_steps,
      task.round,
      task.hparams,
      proximal_strength,
    )
    return averaging.update_from(task, result, client_weighting), steps

  factory = aggregators.NormalizedMeanFactory(
    averaging.weighted_factory(model_aggregator, client_weighting)
  )
  process = templates.compose(
    templates.initial_weights(model, seed),
    templates.Clients(
      local_update, data_spec, training.initial_hparams, tag_name='steps'
    ),
    create_aggregator=factory.create,
    build_finalizer=functools.partial(
      averaging.build_finalizer, model, server_optimizer
    ),
    wiring=templates.Wiring(
      model_distributor, model_aggregator, metrics_aggregator, seed
    ),
  )
  return process.with_parts(
    averaging.parts_of(training, data_spec, client_weighting)
  )


SPEC = ProcessSpec(
  'fednova',
  'Supervised FedAvg of changes per step, all labels at clients.',
  'Wang et al. 2020, arXiv 2007.07481, Eq. 6',
  build_fednova,
  (shared.CLIENT_WEIGHTING, PROXIMAL_STRENGTH, *shared.LOCAL),
  labels_at='clients',
  counts_sgd_steps=True,
  redraws_masks=True,
  has_server_training=False,
  has_strong_view=False,
)
