"""FedMatch: inter-client consistency and disjoint learning.

Jeong et al., Federated Semi-Supervised Learning with Inter-Client Consistency &
Disjoint Learning (arXiv 2006.12097), with what its authors' code says of the
details. The model's weights are sigma + psi. In a round, client k

```
sigma_k   SGD steps on lambda_s CE of its labelled examples, from sigma, where
          psi is fixed
psi_k     SGD steps on its unlabelled ones, from psi, where sigma_k is fixed:
          lambda_i KL to its helpers, lambda_a CE of the strong view to the vote
          of itself and its helpers, lambda_L2 ||sigma - psi||^2, lambda_L1
          ||psi||_1  (`tff_ssl.InterClientConsistency`)
server    sigma <- mean sigma_k, psi <- mean psi_k, of equal weights
```

Where the server holds the labels, each side trains its own part:

```
server    sigma <- SGD steps on lambda_s CE of its labelled examples, psi fixed
client k  psi_k, as above; psi <- mean psi_k, of equal weights
```

The server trains at the end of a round, on the psi that clients have just
changed. As the first round is the server's alone (`ServerPlan.warmup_rounds`),
server and clients take turns as they do in the authors' code, which begins
with the server. Of the clients' models only psi, and moving statistics where
there are some, go up.

Helpers are the clients whose models are nearest by their outputs on a fixed
input of Gaussian noise, chosen before every tenth round
(`tff_ssl.templates.helper_clients`). Their models are those that
they had at the end of their last round, sigma_k + psi_k.

The authors' code differs: its steps on sigma and psi take turns by minibatch,
here all of sigma come first; a client has helpers in the tenth rounds only,
here until the next choice; a helper's model is its psi with the present sigma;
and of psi, at evaluation, what is below 5e-6 counts as 0, which saves
communication. Its learning rate falls where the validation loss stalls.
"""

from __future__ import annotations

import collections
import dataclasses
import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedlabel, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.objectives.wrappers import SUPERVISED_WEIGHT
from tff_ssl.plans import Helpers, ServerPlan, TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import stacks, templates
  from tff_ssl.models import decomposed, functional
  from tff_ssl.templates import averaging, helper_clients
  from tff_ssl.templates import server_training as training_at_server


# The weight of the L1 norm where the server holds the labels.
_objective = functools.partial(
  objectives.InterClientConsistency, l1_weight=1e-5
)
_CLIENT_TRAINING = TrainingPlan(
  batch_size=100, labelled_batch_size=10, epochs=1
)
_PSI_TRAINING = TrainingPlan(batch_size=100, epochs=1)
_SERVER = ServerPlan(batch_size=100, steps=10, warmup_rounds=1)


def _sum_of(parts):
  """Returns the view of sigma and psi that evaluation has: their sum."""
  return templates.ModelView(
    parts.total, lambda weights, _: parts.shares(weights)
  )


@tff_arguments.taken
def build_fedmatch(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  helpers: Helpers = Helpers(),
  supervised_weight: float = 10.0,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedMatch where clients hold the labels.

  The global weights are sigma and psi; `get_model_weights` gives their sum, and
  `set_model_weights` splits a model as it is split at first. A client without
  labelled examples leaves sigma as it is, one without unlabelled ones psi.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`, with K,
      `num_clients`.
    views: Augmentation: sigma learns from the weak view; psi labels the plain
      one and learns from the strong one.
    client_objective: Of psi; by default
      `tff_ssl.InterClientConsistency(views)`.
    helpers: Where clients keep their models for those that they help, and how
      helpers are chosen.
    supervised_weight: lambda_s >= 0.
    client_training: How a client trains either part; by default a pass over the
      examples of either kind by SGD with learning rate 0.001, on minibatches of
      100 unlabelled and 10 labelled ones.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: 'uniform', or 'examples' (labelled and unlabelled ones
      that were processed in the round).
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator is as in `build_fed_avg`. It does not hide the models' outputs
      on the noise, which the server needs.

  Returns:
    A `tff.learning.templates.LearningProcess`. Beside `loss` and `accuracy` on
    labelled examples and the metrics of `InterClientConsistency`, clients
    report `helpers`, how many of them they have.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  SUPERVISED_WEIGHT.check(supervised_weight)
  parts = decomposed.Decomposition(model)
  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_sgdm(0.001)
  )
  # Each part has minibatches of its own: there is no second one beside them.
  of_psi_plan = dataclasses.replace(plan, labelled_batch_size=None)
  of_sigma = templates.LocalTraining(
    parts.part('sigma'),
    objectives.WeightedLoss(objectives.Supervised(views), supervised_weight),
    dataclasses.replace(of_psi_plan, batch_size=plan.labelled_batch_size),
    templates.Selection('labelled'),
  )
  of_psi = helper_clients.build_training(
    parts,
    templates.LocalTraining(
      parts.part('psi'),
      client_objective or objectives.InterClientConsistency(views),
      of_psi_plan,
      templates.Selection('unlabelled'),
    ),
    helpers,
    data_spec,
  )

  def train(task):
    first = of_sigma.run_task(task, start=parts.take(task.weights, 'sigma'))
    second = of_psi.run(task, parts.put(first.weights, 'sigma'))
    return second._replace(
      metrics=collections.OrderedDict({**first.metrics, **second.metrics}),
      num_examples=first.num_examples + second.num_examples,
      passes=first.passes + second.passes,
    )

  return averaging.compose(
    of_sigma,
    train=train,
    model=parts.joint,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
    memories=of_psi.memories,
    view=_sum_of(parts),
  )


@tff_arguments.taken
def build_fedmatch_server(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  helpers: Helpers = Helpers(),
  supervised_weight: float = 10.0,
  client_training: TrainingPlan = _PSI_TRAINING,
  server: ServerPlan = _SERVER,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedMatch where the server holds the labels.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: As in `build_fedmatch`.
    views: As in `build_fedmatch`.
    client_objective: Of psi; by default `tff_ssl.InterClientConsistency(views)`
      with `l1_weight=1e-5`.
    helpers: As in `build_fedmatch`.
    supervised_weight: lambda_s >= 0, of the server's loss.
    client_training: How a client trains psi; by default a pass over its
      examples by SGD with learning rate 0.001, on minibatches of 100. Clients
      and server share one clock, as in `build_grouping_ssfl`.
    server: The server's labelled examples, and how it trains sigma on them; by
      default 10 steps, a pass over the authors' 1,000 labelled images, with the
      same optimizer and size, and alone in the first round.
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
  SUPERVISED_WEIGHT.check(supervised_weight)
  parts = decomposed.Decomposition(model)
  optimizer = tff.learning.optimizers.build_sgdm(0.001)
  server_plan = server.over(_SERVER, optimizer=optimizer)
  client_plan = client_training.over(_PSI_TRAINING, optimizer=optimizer)
  of_psi = helper_clients.build_training(
    parts,
    templates.LocalTraining(
      parts.part('psi'),
      client_objective or _objective(views),
      client_plan.on_clock_of(server_plan),
    ),
    helpers,
    data_spec,
    first_round=server_plan.warmup_rounds,
  )
  of_sigma = training_at_server.ServerTraining(
    templates.LocalTraining(
      parts.part('sigma'),
      objectives.WeightedLoss(
        objectives.Supervised(views, class_weights=server_plan.class_weights),
        supervised_weight,
      ),
      server_plan,
    ),
    server_plan.data,
  )

  def train(task):
    result = of_psi.run(
      task, task.weights, active=task.round >= server_plan.warmup_rounds
    )
    result.metrics['loss'] = result.metrics.pop('unlabelled_loss')
    update = averaging.update_from(task, result, client_weighting)
    # Clients left sigma as it is: only psi is sent.
    return update._replace(delta=parts.without_sigma(update.delta))

  return averaging.compose(
    of_psi.training,
    train=train,
    model=parts.joint,
    data_spec=data_spec,
    client_weighting=client_weighting,
    wiring=wiring,
    server=functools.partial(
      training_at_server.build_server_training,
      of_sigma,
      lambda weights, trained, change: parts.put(
        stacks.row(trained, 0), 'sigma'
      ),
      server_start=lambda weights, change: parts.take(
        parts.add_to_psi(weights, change), 'sigma'
      ),
      seed=wiring.seed,
    ),
    memories=of_psi.memories,
    idle_rounds=server_plan.warmup_rounds,
    view=_sum_of(parts),
  )


# With either place of labels.
SETTINGS = (
  *objectives.InterClientConsistency.settings,
  shared.NUM_HELPERS,
  shared.HELPER_INTERVAL,
  SUPERVISED_WEIGHT,
  shared.CLIENT_WEIGHTING,
  *shared.LOCAL,
)


_SOURCE = "Jeong et al. 2021, arXiv 2006.12097, and its authors' code"
# Plain SGD at the rate of its authors' code.
_DEFAULTS = {
  'learning_rate': 1e-3,
  'momentum': 0.0,
  'nesterov': False,
  'weight_decay': 0.0,
}


def _check(values) -> None:
  """Raises `ValueError` where nobody can help, or psi would oscillate."""
  helpers, population = values['num_helpers'], values.get('num_clients')
  if values['partition'] == 'pooled':
    raise ValueError(
      f'`partition=pooled` has one client, and `num_helpers={helpers}` needs '
      'others: choose another partition, or another process.'
    )
  if population and helpers >= population:
    raise ValueError(
      f'`num_helpers={helpers}` needs as many other clients, more than there '
      f'are with `num_clients={population}`: lower the first or raise the '
      'second.'
    )
  rate, weight = values['learning_rate'], values['sigma_psi_weight']
  # A step on weight * ||sigma - psi||^2 leaves 1 - 2 * rate * weight of it.
  if values['client_optimizer'] == 'sgd' and 2 * rate * weight >= 1:
    raise ValueError(
      f'`sigma_psi_weight={weight:g}` with `learning_rate={rate:g}` makes psi '
      'oscillate: twice their product must be below 1; lower one of them.'
    )


SPECS = (
  ProcessSpec(
    'fedmatch',
    'FedMatch: sigma + psi; clients with similar models help each other.',
    build_fedmatch,
    (*SETTINGS, shared.LABELLED_BATCH_SIZE),
    source=_SOURCE,
    needs=Needs(labels_at='clients', unlabelled=True, tokens=False),
    objective=objectives.InterClientConsistency,
    # FedLabel's share of labels and strong view.
    defaults={
      **_DEFAULTS,
      **fedlabel.FEW_LABELS,
      'augmentation': 'rand_augment_1_10',
    },
    check=_check,
    makes_pseudo_labels=True,
    has_gradient_diversity=False,
  ),
  ProcessSpec(
    'fedmatch_server',
    'FedMatch with labels at the server, which alone trains sigma.',
    build_fedmatch_server,
    (*SETTINGS, *shared.SERVER_LOCAL),
    source=_SOURCE,
    needs=Needs(tokens=False),
    objective=_objective,
    # The server's steps are those of other processes with labels at the server,
    # so that what they are compared by is equal.
    defaults={**_DEFAULTS, 'server_steps': 16, 'server_warmup_rounds': 1},
    check=_check,
    makes_pseudo_labels=True,
    has_gradient_diversity=False,
  ),
)
