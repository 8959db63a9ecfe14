"""FedMatch where the server holds the labels and clients have none.

Jeong et al., Federated Semi-Supervised Learning with Inter-Client Consistency &
Disjoint Learning (arXiv 2006.12097). The model's weights are sigma + psi, and
each side trains its own part:

```
server    sigma <- SGD steps on lambda_s CE of its labelled examples, psi fixed
client k  psi_k = SGD steps on its examples from psi, sigma fixed, as in
          `tff_ssl.algorithms.fedmatch`
server    psi <- mean psi_k, of equal weights
```

The server trains at the end of a round, on the psi that clients have just
changed. As the first round is the server's alone (`server_warmup_rounds`),
server and clients take turns as they do in the authors' code, which begins
with the server. Of the clients' models only psi, and moving statistics where
there are some, go up. How helpers are chosen, and where the authors' code
differs, stands with `fedmatch`.
"""

from __future__ import annotations

import dataclasses
import functools

from etils import epy

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedmatch
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.setting import check_arguments

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import decomposed
  from tff_ssl.templates import averaging, local_training
  from tff_ssl.templates.helper_clients import helper_training
  from tff_ssl.templates.server import server_training

SETTINGS = (
  *fedmatch.SETTINGS,
  shared.SERVER_STEPS,
  dataclasses.replace(shared.SERVER_BATCH_SIZE, optional=False),
  shared.SERVER_WARMUP_ROUNDS,
)


def build_fedmatch_server(
  model,
  *,
  server_data: tff.Computation,
  data_spec,
  views,
  client_state_dir: str,
  num_clients: int,
  num_helpers: int = 2,
  helper_interval: int = 10,
  threshold: float = 0.75,
  supervised_weight: float = 10.0,
  inter_client_weight: float = 1e-2,
  agreement_weight: float = 1e-2,
  sigma_psi_weight: float = 10.0,
  l1_weight: float = 1e-5,
  psi_factor: float = 0.2,
  noise_examples: int = 1,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 100,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  server_batch_size: int = 100,
  server_steps: int = 10,
  server_warmup_rounds: int = 1,
  client_weighting: str = 'uniform',
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None = None,
  metrics_aggregator=None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds FedMatch where the server holds the labels.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    server_data: No-argument `tff.Computation` that returns the labelled server
      set, a sequence of `<x=..., y=...>`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation: sigma learns from the weak view; psi labels the plain
      one and learns from the strong one.
    client_state_dir: As in `build_fedmatch`.
    num_clients: Likewise.
    num_helpers: Likewise.
    helper_interval: Likewise.
    threshold: Likewise.
    supervised_weight: lambda_s >= 0, of the server's loss.
    inter_client_weight: As in `build_fedmatch`.
    agreement_weight: Likewise.
    sigma_psi_weight: Likewise.
    l1_weight: Likewise, of the clients' loss.
    psi_factor: Likewise.
    noise_examples: Likewise.
    client_optimizer: By default SGD with learning rate 0.001.
    server_optimizer: Of the server's training, the same default.
    batch_size: Examples in a client's minibatch.
    local_steps: Steps of a client in a round.
    local_epochs: Instead of `local_steps`, passes over the client's examples; 1
      if neither is given.
    server_batch_size: Examples in the server's minibatch.
    server_steps: Steps of the server in a round; ten are a pass over the
      authors' 1,000 labelled images.
    server_warmup_rounds: First rounds in which only the server trains.
    client_weighting: 'uniform', or 'examples' (processed in the round).
    schedule: As in `build_grouping_ssfl`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: As in `build_fedmatch`; it gets changes of psi.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`. Clients report the metrics of
    `InterClientConsistency`, with `loss` for `unlabelled_loss`, and `helpers`,
    how many of them they have.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  parts = decomposed.Decomposition(model, psi_factor)
  of_psi = helper_training.build(
    parts,
    local_training.LocalTraining(
      parts.part('psi'),
      objectives.InterClientConsistency(
        views,
        threshold,
        inter_client_weight,
        agreement_weight,
        sigma_psi_weight,
        l1_weight,
      ),
      local_training.TrainingPlan(
        client_optimizer or tff.learning.optimizers.build_sgdm(0.001),
        batch_size,
        **local_training.steps_or_epochs(
          local_steps, local_epochs, default_epochs=1
        ),
        schedule=schedule,
        steps_per_round=server_steps,
      ),
    ),
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    num_clients=num_clients,
    num_helpers=num_helpers,
    helper_interval=helper_interval,
    noise_examples=noise_examples,
    first_round=server_warmup_rounds,
  )
  of_sigma = server_training.ServerTraining(
    local_training.LocalTraining(
      parts.part('sigma'),
      objectives.WeightedLoss(objectives.Supervised(views), supervised_weight),
      local_training.TrainingPlan(
        server_optimizer or tff.learning.optimizers.build_sgdm(0.001),
        server_batch_size,
        steps=server_steps,
        schedule=schedule,
      ),
    ),
    server_data,
  )

  def local_update(task):
    result = of_psi.run(
      task, task.weights, active=task.round >= server_warmup_rounds
    )
    result.metrics['loss'] = result.metrics.pop('unlabelled_loss')
    update = averaging.update_from(task, result, client_weighting)
    return update._replace(delta=parts.without_sigma(update.delta)), None

  factory = averaging.weighted_factory(model_aggregator, client_weighting)
  return templates.compose(
    templates.initial_weights(parts.joint, seed),
    templates.Clients(
      local_update,
      data_spec,
      of_psi.training.initial_hparams,
      of_psi.memories,
    ),
    create_aggregator=factory.create,
    build_finalizer=functools.partial(
      server_training.build_server_training,
      of_sigma,
      lambda weights, trained, change: parts.put(
        of_sigma.first_replica(trained), 'sigma'
      ),
      server_start=lambda weights, change: parts.take(
        parts.add_to_psi(weights, change), 'sigma'
      ),
      seed=seed,
    ),
    wiring=templates.Wiring(
      model_distributor, model_aggregator, metrics_aggregator, seed
    ),
    idle_rounds=server_warmup_rounds,
    view=templates.ModelView(
      parts.total, lambda weights, _: parts.shares(weights)
    ),
  )


SPEC = ProcessSpec(
  'fedmatch_server',
  'The same with labels at the server, which alone trains sigma.',
  "Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
  build_fedmatch_server,
  SETTINGS,
  # The server's steps are those of other processes with labels at the server,
  # so that what they are compared by is equal.
  defaults={
    **fedmatch.DEFAULTS,
    'server_steps': 16,
    'server_warmup_rounds': 1,
  },
  check=fedmatch.check_helpers,
  makes_pseudo_labels=True,
  keeps_client_state=True,
  counts_clients=True,
  has_gradient_diversity=False,
)
