"""FedAvg and FedProx with any client objective; labels at clients by default.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data (arXiv 1602.05629), Algorithm 1, in the form of Reddi et al.
(arXiv 2003.00295): the mean of the clients' model deltas, weighted by their
examples, is a gradient for the server optimizer,

```math
delta_k = w_k - w,   w <- ServerOptimizer(w, -sum_k n_k delta_k / sum_k n_k)
```

and SGD with learning rate 1 at the server gives FedAvg. FedProx (Li et al.,
arXiv 1812.06127) adds mu/2 ||w_k - w||^2 to the clients' objective, and FedAdam
is FedAvg with `optimizers.build_server_adam` at the server.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments, only_with
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.objectives.wrappers import PROXIMAL_STRENGTH
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging


PLAIN_TRAINING = TrainingPlan(batch_size=64, steps=16)
CLIENT_TRAINING = dataclasses.replace(PLAIN_TRAINING, redrawn_mask_ratio=0.0)
_WITH_MOMENTUM = dataclasses.replace(CLIENT_TRAINING, client_momentum='reset')


@tff_arguments.taken
def build_fed_avg(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  proximal_strength: float = 0.0,
  client_training: TrainingPlan = _WITH_MOMENTUM,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  match_local_steps: bool = False,
  client_weighting: str = 'examples',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg, or FedProx where `proximal_strength` is above 0.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_objective: By default `tff_ssl.Supervised(views)`. A supervised
      objective gets those examples that have a label (`y` is not -1), another
      one all of them; see `tff_ssl.objectives`.
    proximal_strength: mu of FedProx, >= 0.
    client_training: How a client trains; by default 16 steps of SGD on
      minibatches of 64, with the learning rate 0.03, Nesterov momentum 0.9 and
      coupled weight decay 1e-4, as in Zhang et al. With `redrawn_mask_ratio`
      the objective is a supervised one.
    server_optimizer: By default SGD with learning rate 1.
    match_local_steps: With `epochs`, whether to take as many steps as the
      passes would take if all examples had a label: those of SSJO.
    client_weighting: 'examples' (processed in the round, repetitions counted:
      with `epochs` in proportion to n_k, with `steps` the same for
      all) or 'uniform'.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator is by default `tff.aggregators.MeanFactory()`. Unweighted
      factories (differential privacy) need `client_weighting='uniform'`, and
      those that add noise a model without moving statistics, and both these
      and secure ones clients whose momentum is reset. With secure sums of
      models and metrics, the server sees no sum in the clear.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  training = build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    proximal_strength=proximal_strength,
    client_training=client_training,
    match_local_steps=match_local_steps,
  )
  return averaging.compose(
    training,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
  )


def build_training(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  proximal_strength: float = 0.0,
  client_training: TrainingPlan = _WITH_MOMENTUM,
  match_local_steps: bool = False,
) -> templates.LocalTraining:
  """Builds the clients' training, the same for all federated optimizers.

  Arguments and errors are those of `build_fed_avg`.
  """
  check_arguments((PROXIMAL_STRENGTH, MATCH_LOCAL_STEPS), locals())
  data_spec.check_model(model)
  plan = client_training.over(
    _WITH_MOMENTUM, optimizer=optimizers.build_grouping_sgd()
  )
  _check_passes(plan, match_local_steps)
  if match_local_steps:
    plan = dataclasses.replace(plan, epoch_batches='matched')
  objective = client_objective or objectives.Supervised(views)
  # Other objectives read what has no label, too: it would not be hidden.
  if plan.redrawn_mask_ratio and not isinstance(
    objective, objectives.Supervised
  ):
    raise ValueError(
      f'redrawn_mask_ratio={plan.redrawn_mask_ratio} goes with a supervised '
      'objective alone: hide labels in the data instead.'
    )
  if proximal_strength != 0:
    objective = objectives.Proximal(objective, proximal_strength)
  return templates.LocalTraining(model, objective, plan)


def _check_passes(plan, match_local_steps) -> None:
  """Raises `ValueError` where options of passes have nothing to change."""
  ends_otherwise = plan.epoch_batches not in (None, 'separate')
  if match_local_steps and ends_otherwise:
    raise ValueError(
      'match_local_steps=True decides where passes end: leave out '
      f'epoch_batches={plan.epoch_batches!r}.'
    )
  if plan.epochs is None and (match_local_steps or ends_otherwise):
    raise ValueError(
      f'match_local_steps={match_local_steps} and epoch_batches='
      f'{plan.epoch_batches!r} have no effect without passes: give epochs in '
      f'the place of steps={plan.steps}.'
    )


MATCH_LOCAL_STEPS = Setting(
  'match_local_steps',
  bool,
  'As many steps as `local_epochs` passes over all examples would take, '
  'labelled or not: those of methods that learn from both.',
  used_when=(only_with('local_epochs'),),
  group='client training',
)


SPECS = (
  ProcessSpec(
    'fedavg',
    'Supervised FedAvg, all labels at clients: the upper bound.',
    build_fed_avg,
    (
      shared.CLIENT_WEIGHTING,
      shared.CLIENT_MOMENTUM,
      *objectives.Supervised.settings,
      *shared.LOCAL,
      MATCH_LOCAL_STEPS,
    ),
    source='McMahan et al. 2017, arXiv 1602.05629, Algorithm 1',
    needs=Needs(labels_at='clients', views='weak'),
    objective=objectives.Supervised,
  ),
  ProcessSpec(
    'fedprox',
    'Supervised FedProx, all labels at clients.',
    build_fed_avg,
    (
      shared.CLIENT_WEIGHTING,
      PROXIMAL_STRENGTH,
      shared.CLIENT_MOMENTUM,
      CLASS_WEIGHTS,
      *shared.LOCAL,
    ),
    source='Li et al. 2020, arXiv 1812.06127, Eq. 2',
    needs=Needs(labels_at='clients', views='weak'),
    objective=objectives.Supervised,
    # The builder's 0 is FedAvg.
    defaults={'proximal_strength': 0.01},
  ),
  ProcessSpec(
    'fedadam',
    'Supervised FedAvg with Adam at the server, all labels at clients.',
    build_fed_avg,
    (
      shared.SERVER_LEARNING_RATE,
      shared.CLIENT_WEIGHTING,
      CLASS_WEIGHTS,
      *shared.LOCAL,
    ),
    source='Reddi et al. 2021, arXiv 2003.00295, Algorithm 2',
    needs=Needs(labels_at='clients', views='weak'),
    objective=objectives.Supervised,
    # A step moves each weight by about the rate.
    server_optimizer=lambda server_learning_rate=0.01: (
      optimizers.build_server_adam(server_learning_rate)
    ),
  ),
)
