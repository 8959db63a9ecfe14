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

import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedmatch, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import check_arguments
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import decomposed, functional
  from tff_ssl.templates import averaging, helper_clients
  from tff_ssl.templates import server_training as training_at_server

SETTINGS = (
  *fedmatch.SETTINGS,
  shared.SERVER_STEPS,
  shared.SERVER_BATCH_SIZE,
  shared.SERVER_WARMUP_ROUNDS,
)

# The weight of the L1 norm where the server holds the labels.
_objective = functools.partial(
  objectives.InterClientConsistency, l1_weight=1e-5
)
_CLIENT_TRAINING = TrainingPlan(batch_size=100, epochs=1)
_SERVER_TRAINING = TrainingPlan(batch_size=100, steps=10)


@tff_arguments.taken
def build_fedmatch_server(
  model: functional.FunctionalModel,
  *,
  server_data: tff.Computation,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  client_state_dir: str,
  num_clients: int,
  num_helpers: int = 2,
  helper_interval: int = 10,
  supervised_weight: float = 10.0,
  psi_factor: float = 0.2,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_training: TrainingPlan = _SERVER_TRAINING,
  server_warmup_rounds: int = 1,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedMatch where the server holds the labels.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    server_data: No-argument `tff.Computation` that returns the labelled server
      set, a sequence of `<x=..., y=...>`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation: sigma learns from the weak view; psi labels the plain
      one and learns from the strong one.
    client_objective: Of psi; by default `tff_ssl.InterClientConsistency(views)`
      with `l1_weight=1e-5`.
    client_state_dir: As in `build_fedmatch`.
    num_clients: Likewise.
    num_helpers: Likewise.
    helper_interval: Likewise.
    supervised_weight: lambda_s >= 0, of the server's loss.
    psi_factor: Likewise.
    client_training: How a client trains psi; by default a pass over its
      examples by SGD with learning rate 0.001, on minibatches of 100. Clients
      and server share one clock, as in `build_grouping_ssfl`.
    server_training: How the server trains sigma; by default 10 steps, a pass
      over the authors' 1,000 labelled images, with the same optimizer and size.
    server_warmup_rounds: First rounds in which only the server trains.
    client_weighting: 'uniform', or 'examples' (processed in the round).
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator gets changes of psi; see `build_fedmatch`.

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
  optimizer = tff.learning.optimizers.build_sgdm(0.001)
  server_plan = server_training.over(_SERVER_TRAINING, optimizer=optimizer)
  client_plan = client_training.over(_CLIENT_TRAINING, optimizer=optimizer)
  of_psi = helper_clients.build_training(
    parts,
    templates.LocalTraining(
      parts.part('psi'),
      client_objective or _objective(views),
      client_plan.on_clock_of(server_plan),
    ),
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    num_clients=num_clients,
    num_helpers=num_helpers,
    helper_interval=helper_interval,
    first_round=server_warmup_rounds,
  )
  of_sigma = training_at_server.ServerTraining(
    templates.LocalTraining(
      parts.part('sigma'),
      objectives.WeightedLoss(objectives.Supervised(views), supervised_weight),
      server_plan,
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

  factory = averaging.weighted_factory(
    wiring.model_aggregator, client_weighting
  )
  return templates.compose(
    templates.build_client_work(
      local_update,
      templates.initial_weights(parts.joint, wiring.seed),
      data_spec=data_spec,
      initial_hparams=of_psi.training.initial_hparams,
      wiring=wiring,
      memories=of_psi.memories,
    ),
    create_aggregator=factory.create,
    build_finalizer=functools.partial(
      training_at_server.build_server_training,
      of_sigma,
      lambda weights, trained, change: parts.put(
        of_sigma.first_replica(trained), 'sigma'
      ),
      server_start=lambda weights, change: parts.take(
        parts.add_to_psi(weights, change), 'sigma'
      ),
      seed=wiring.seed,
    ),
    wiring=wiring,
    idle_rounds=server_warmup_rounds,
    view=templates.ModelView(
      parts.total, lambda weights, _: parts.shares(weights)
    ),
  )


SPEC = ProcessSpec(
  'fedmatch_server',
  'The same with labels at the server, which alone trains sigma.',
  build_fedmatch_server,
  SETTINGS,
  source="Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
  needs=Needs(tokens=False),
  objective=_objective,
  # The server's steps are those of other processes with labels at the server,
  # so that what they are compared by is equal.
  defaults={
    **fedmatch.DEFAULTS,
    'server_steps': 16,
    'server_warmup_rounds': 1,
  },
  check=fedmatch.check_helpers,
  makes_pseudo_labels=True,
  has_gradient_diversity=False,
)
