"""DataSharing: FedAvg of clients that share some examples.

Zhao et al., Federated Learning with Non-IID Data (arXiv 1806.00582), Section 4.
A class-uniform set G is taken out of the data, with labels. The server trains
on it first, and every client k gets a random share alpha of it,

```math
first rounds   w_0 <- SGD steps on L_G
all others     w <- sum_k n_k w_k / sum_k n_k,
               w_k = T steps from w on D_k + alpha G              (FedAvg)
```

Zhang et al. (arXiv 2008.11364) compare with it in Table 4. Who holds which
examples is a matter of the data: a client's data set here is D_k + alpha G
already.
"""

from __future__ import annotations

import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import ServerPlan, TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging
  from tff_ssl.templates import server_training as training_at_server


_SERVER = ServerPlan(steps=16, warmup_rounds=10)


@tff_arguments.taken
def build_data_sharing(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = fed_avg.PLAIN_TRAINING,
  server: ServerPlan = _SERVER,
  client_weighting: str = 'examples',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg that begins with a training on the shared examples.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_objective: As in `build_fed_avg`.
    client_training: As in `build_fed_avg`, with a fresh momentum in each round.
    server: G, and how the server trains on it in the first rounds, in which it
      alone trains; by default ten, of 16 steps each as clients do, on
      minibatches of their size. Its momentum goes on from round to round.
    client_weighting: 'examples' (as in `build_fed_avg`) or 'uniform'.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`); as in
      `build_fed_avg`. An adaptive aggregator rests in the first rounds.

  Returns:
    A `tff.learning.templates.LearningProcess`. Its metrics hold
    `client_work/train` and `finalizer/server`, each NaN while the other trains.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  clients = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    client_training=client_training.over(fed_avg.PLAIN_TRAINING),
  )
  plan = server.over(
    _SERVER,
    optimizer=optimizers.build_grouping_sgd(),
    batch_size=clients.plan.batch_size,
  )

  return averaging.compose(
    clients,
    data_spec=data_spec,
    client_weighting=client_weighting,
    wiring=wiring,
    server=functools.partial(
      training_at_server.build_server_first,
      training_at_server.ServerTraining.of(plan, model, views),
      plan.warmup_rounds,
      seed=wiring.seed,
    ),
    idle_rounds=plan.warmup_rounds,
  )


SPEC = ProcessSpec(
  'data_sharing',
  'Supervised FedAvg of clients that share some examples (DataSharing).',
  build_data_sharing,
  (
    *shared.SERVER_LOCAL,
    shared.CLIENT_WEIGHTING,
    *shared.LOCAL,
    CLASS_WEIGHTS,
  ),
  source='Zhao et al. 2018, arXiv 1806.00582, Section 4',
  needs=Needs(labels_at='clients', views='weak', shared_examples=True),
  objective=objectives.Supervised,
  # Nobody gives all his examples away.
  defaults={'server_writers': 'everyone'},
)
