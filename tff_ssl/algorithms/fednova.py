"""FedNova: averages of what clients change per step, not per round.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization (arXiv 2007.07481), Eq. 6 and Section 4: clients that
take more steps would pull FedAvg's average towards their own objective, so

```math
delta_i = w_i - w
w <- w + tau_eff sum_i p_i delta_i / a_i,    tau_eff = sum_i p_i a_i
```

where p_i are the weights of clients, and a_i is the norm of client i's
accumulation vector (`tff_ssl.templates.effective_steps`): its steps tau_i with
plain SGD, [tau_i - rho (1 - rho^tau_i) / (1 - rho)] / (1 - rho) with momentum
rho, and [1 - (1 - alpha)^tau_i] / alpha with a proximal term mu and
alpha = eta mu. Where all clients take the same number of steps, it is FedAvg:
so with `steps`, while `epochs` make larger clients take more.
"""

from __future__ import annotations

import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.objectives.wrappers import PROXIMAL_STRENGTH
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import aggregators, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging, effective_steps, finalizers


@tff_arguments.taken
def build_fednova(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  proximal_strength: float = 0.0,
  client_training: TrainingPlan = fed_avg.CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'examples',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedNova.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_objective: As in `build_fed_avg`.
    proximal_strength: mu >= 0 of a proximal term at clients.
    client_training: As in `build_fed_avg`. The optimizer is SGD, maybe with
      momentum, which starts afresh every round.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: p_i in proportion to 'examples' (as in `build_fed_avg`),
      or 'uniform'.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator averages the deltas per step; see `build_fed_avg`. Neither a
      private nor a secure one covers the sums of weights and of steps.

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
    client_training=client_training.over(fed_avg.CLIENT_TRAINING),
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
    averaging.weighted_factory(wiring.model_aggregator, client_weighting)
  )
  return templates.compose(
    templates.build_client_work(
      local_update,
      templates.initial_weights(model, wiring.seed),
      data_spec=data_spec,
      initial_hparams=training.initial_hparams,
      wiring=wiring,
      tag_name='steps',
    ),
    create_aggregator=factory.create,
    build_finalizer=functools.partial(
      finalizers.build_apply_mean_delta, server_optimizer
    ),
    wiring=wiring,
    measurable=averaging.measurable(training, data_spec, client_weighting),
  )


SPEC = ProcessSpec(
  'fednova',
  'Supervised FedNova, an average of changes per step, all labels at clients.',
  build_fednova,
  (shared.CLIENT_WEIGHTING, PROXIMAL_STRENGTH, CLASS_WEIGHTS, *shared.LOCAL),
  source='Wang et al. 2020, arXiv 2007.07481, Eq. 6',
  needs=Needs(labels_at='clients', views='weak', sgd=True),
  objective=objectives.Supervised,
)
