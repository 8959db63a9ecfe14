"""FedMatch: inter-client consistency and disjoint learning, labels at clients.

Jeong et al., Federated Semi-Supervised Learning with Inter-Client Consistency &
Disjoint Learning (arXiv 2006.12097), with what its authors' code says of the
details. The model's weights are sigma + psi. In a round, client k

```
sigma_k   SGD steps on lambda_s CE of its labelled examples, from sigma, where
          psi is fixed
psi_k     SGD steps on its unlabelled ones, from psi, where sigma_k is fixed:
          lambda_i KL to its helpers, lambda_a CE of the strong view to the vote
          of itself and its helpers, lambda_L2 ||sigma - psi||^2, lambda_L1
          ||psi||_1  (`tff_ssl.objectives.InterClientConsistency`)
server    sigma <- mean sigma_k, psi <- mean psi_k, of equal weights
```

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

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedlabel, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives import inter_client
from tff_ssl.objectives.consistency import THRESHOLD
from tff_ssl.objectives.wrappers.l1_penalty import L1_WEIGHT
from tff_ssl.objectives.wrappers.weighted_loss import SUPERVISED_WEIGHT
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import decomposed, functional
  from tff_ssl.templates import averaging, helper_clients

# With either place of labels.
SETTINGS = (
  THRESHOLD,
  Setting(
    'num_helpers',
    int,
    'H, helpers of a client.',
    at_least=1,
    refused=(2**31,),
  ),
  Setting(
    'helper_interval',
    int,
    'Helpers are chosen before every so many-th round.',
    at_least=1,
    rounds='share',
  ),
  SUPERVISED_WEIGHT,
  *inter_client.SETTINGS,
  L1_WEIGHT,
  shared.CLIENT_WEIGHTING,
  *shared.LOCAL,
)
_CLIENT_TRAINING = TrainingPlan(
  batch_size=100, labelled_batch_size=10, epochs=1
)


@tff_arguments.taken
def build_fedmatch(
  model: functional.FunctionalModel,
  *,
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
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedMatch where clients hold the labels.

  The global weights are sigma and psi; `get_model_weights` gives their sum, and
  `set_model_weights` splits a model as it is split at first. A client without
  labelled examples leaves sigma as it is, one without unlabelled ones psi.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation: sigma learns from the weak view; psi labels the plain
      one and learns from the strong one.
    client_objective: Of psi; by default
      `tff_ssl.InterClientConsistency(views)`.
    client_state_dir: Absolute path of the folder where clients keep their
      models, for those they help; see `tff_ssl.templates.client_state`.
    num_clients: K, clients there are, whose indices are below K.
    num_helpers: H >= 1, below K.
    helper_interval: Helpers are chosen before every so many-th round.
    supervised_weight: lambda_s >= 0.
    psi_factor: psi is at first this times sigma, which is what the model is
      initialised with; in [0, 1].
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
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  parts = decomposed.Decomposition(model, psi_factor)

  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_sgdm(0.001)
  )
  sizes = {'sigma': plan.labelled_batch_size, 'psi': plan.batch_size}

  def build_training(name, objective, rows):
    own = dataclasses.replace(
      plan, batch_size=sizes[name], labelled_batch_size=None
    )
    return templates.LocalTraining(
      parts.part(name), objective, own, templates.Selection(rows)
    )

  of_sigma = build_training(
    'sigma',
    objectives.WeightedLoss(objectives.Supervised(views), supervised_weight),
    'labelled',
  )
  of_psi = helper_clients.build_training(
    parts,
    build_training(
      'psi',
      client_objective or objectives.InterClientConsistency(views),
      'unlabelled',
    ),
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    num_clients=num_clients,
    num_helpers=num_helpers,
    helper_interval=helper_interval,
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
    train,
    model=parts.joint,
    data_spec=data_spec,
    initial_hparams=of_sigma.initial_hparams,
    client_weighting=client_weighting,
    server_optimizer=server_optimizer,
    wiring=wiring,
    memories=of_psi.memories,
    view=templates.ModelView(
      parts.total, lambda weights, _: parts.shares(weights)
    ),
  )


# Plain SGD at the rate of its authors' code.
DEFAULTS = {
  'learning_rate': 1e-3,
  'momentum': 0.0,
  'nesterov': False,
  'weight_decay': 0.0,
}


def check_helpers(values) -> None:
  """Raises `ValueError` for helpers that nobody can be, or psi that oscillates.

  Args:
    values: The values of a run by name.
  """
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


SPEC = ProcessSpec(
  'fedmatch',
  'Weights sigma + psi, the clients with like models help each other.',
  build_fedmatch,
  (*SETTINGS, shared.LABELLED_BATCH_SIZE),
  source="Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
  needs=Needs(labels_at='clients', unlabelled=True, tokens=False),
  objective=objectives.InterClientConsistency,
  # FedLabel's share of labels and strong view.
  defaults={
    **DEFAULTS,
    **fedlabel.FEW_LABELS,
    'augmentation': 'rand_augment_1_10',
  },
  check=check_helpers,
  makes_pseudo_labels=True,
  has_gradient_diversity=False,
)
