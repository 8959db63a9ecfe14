"""FedAvg and FedProx with any client objective; labels at clients by default.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data (arXiv 1602.05629), Algorithm 1, in the form of Reddi et al.
(arXiv 2003.00295): the mean of the clients' model deltas, weighted by their
examples, is a gradient for the server optimizer,

```
delta_k = w_k - w,   w <- ServerOptimizer(w, -sum_k n_k delta_k / sum_k n_k)
```

and SGD with learning rate 1 at the server gives FedAvg. FedProx (Li et al.,
arXiv 1812.06127) adds mu/2 ||w_k - w||^2 to the clients' objective, and FedAdam
is FedAvg with `optimizers.build_server_adam` at the server.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.objectives.supervised import SUPERVISED_LOSS
from tff_ssl.objectives.wrappers.proximal import PROXIMAL_STRENGTH
from tff_ssl.setting import Setting, check_arguments, only_with

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.templates import averaging, local_training

MATCH_LOCAL_STEPS = Setting(
  'match_local_steps',
  bool,
  'As many steps as --local_epochs passes over all examples would take, '
  'labelled or not: those of ssjo.',
  used_when=(only_with('local_epochs'),),
  group='client training',
)
SETTINGS = (
  shared.CLIENT_WEIGHTING,
  PROXIMAL_STRENGTH,
  shared.CLIENT_MOMENTUM,
  SUPERVISED_LOSS,
  *shared.LOCAL,
  shared.LABELLED_BATCH_SIZE,
  shared.EPOCH_BATCHES,
  MATCH_LOCAL_STEPS,
)


def build_fed_avg(
  model,
  *,
  data_spec,
  views,
  client_objective=None,
  supervised_loss: str = 'cross_entropy',
  proximal_strength: float = 0.0,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 64,
  labelled_batch_size: int | None = None,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  epoch_batches: str = 'separate',
  match_local_steps: bool = False,
  redrawn_mask_ratio: float | None = None,
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
  """Builds FedAvg, or FedProx where `proximal_strength` is above 0.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    client_objective: By default `tff_ssl.objectives.Supervised(views)`. A
      supervised objective gets those examples that have a label (`y` is not
      -1), another one all of them; see `tff_ssl.objectives`.
    supervised_loss: Of the default `client_objective`: 'cross_entropy', or
      'double_softmax' as in the code of Lu et al. (arXiv 2204.03304); see
      `objectives.Supervised`.
    proximal_strength: mu of FedProx, >= 0.
    client_optimizer: By default SGD with learning rate 0.03, Nesterov momentum
      0.9 and coupled weight decay 1e-4, as in Zhang et al.
    server_optimizer: By default SGD with learning rate 1.
    batch_size: Examples in a client's minibatch.
    labelled_batch_size: If given, examples in a second minibatch beside it, of
      those that have a label. `tff_ssl.objectives.SemiSupervised` needs it and
      has `batch_size` by default.
    local_steps: Steps of a client in a round; 16 if neither this nor
      `local_epochs` is given.
    local_epochs: Instead of `local_steps`, passes over the client's examples.
    epoch_batches: With `local_epochs`, 'separate' or 'continuous' passes; see
      `tff_ssl.templates.minibatches`.
    match_local_steps: With `local_epochs`, whether to take as many steps as the
      passes would take if all examples had a label: those of SSJO.
    redrawn_mask_ratio: If given, the share of a client's labels that is hidden,
      others in each pass; one is left.
    client_momentum: 'reset', or 'slot': a client goes on with the momentum that
      the slot's client of the round before left. With one client, the momentum
      of central training.
    num_slots: C, for `client_momentum='slot'` only.
    client_weighting: 'examples' (processed in the round, repetitions counted:
      with `local_epochs` in proportion to n_k, with `local_steps` the same for
      all) or 'uniform'.
    schedule: Function of the global step to a factor on the clients' rate; with
      `local_epochs`, an `optimizers.RoundSchedule`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: By default `tff.aggregators.MeanFactory()`. Unweighted
      factories (differential privacy) need `client_weighting='uniform'`, and
      those that add noise a model without moving statistics. With secure sums
      here and in `metrics_aggregator`, the server still sees four numbers in
      the clear: of clients that took part, and of three kinds left out.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

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
    supervised_loss=supervised_loss,
    proximal_strength=proximal_strength,
    client_optimizer=client_optimizer,
    batch_size=batch_size,
    labelled_batch_size=labelled_batch_size,
    local_steps=local_steps,
    local_epochs=local_epochs,
    epoch_batches=epoch_batches,
    match_local_steps=match_local_steps,
    redrawn_mask_ratio=redrawn_mask_ratio,
    schedule=schedule,
  )
  process = averaging.compose(
    training.run_task,
    model=model,
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    client_weighting=client_weighting,
    server_optimizer=server_optimizer,
    wiring=templates.Wiring(
      model_distributor, model_aggregator, metrics_aggregator, seed
    ),
    memories=templates.slot_momentum(
      client_momentum, num_slots, data_spec, training.initial_optimizer_state
    ),
  )
  return process.with_parts(
    averaging.parts_of(training, data_spec, client_weighting)
  )


def build_training(
  model,
  *,
  data_spec,
  views,
  batch_size: int,
  client_objective=None,
  supervised_loss: str = 'cross_entropy',
  proximal_strength: float = 0.0,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  labelled_batch_size: int | None = None,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  epoch_batches: str = 'separate',
  match_local_steps: bool = False,
  redrawn_mask_ratio: float | None = None,
  schedule=None,
) -> local_training.LocalTraining:
  """Builds the clients' training, the same for all federated optimizers.

  The arguments are those of `build_fed_avg`.

  Returns:
    A `LocalTraining`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  if match_local_steps and (local_steps or epoch_batches != 'separate'):
    raise ValueError(
      f'match_local_steps=True decides on steps itself: leave out local_steps='
      f'{local_steps} and epoch_batches={epoch_batches!r}.'
    )
  counts_passes = match_local_steps or epoch_batches != 'separate'
  if local_epochs is None and counts_passes:
    raise ValueError(
      f'match_local_steps={match_local_steps} and epoch_batches='
      f'{epoch_batches!r} have no effect without passes: give local_epochs.'
    )
  if labelled_batch_size is not None and client_objective is None:
    raise ValueError(
      f'labelled_batch_size={labelled_batch_size} has no effect on the default '
      'client_objective, whose minibatches are labelled: leave it out.'
    )
  if supervised_loss != 'cross_entropy' and client_objective is not None:
    raise ValueError(
      f'supervised_loss={supervised_loss!r} goes with the default '
      'client_objective alone: leave it out.'
    )
  if redrawn_mask_ratio is not None and client_objective is not None:
    raise ValueError(
      f'redrawn_mask_ratio={redrawn_mask_ratio} goes with the default '
      'client_objective alone: hide labels in the data instead.'
    )
  objective = client_objective or objectives.Supervised(views, supervised_loss)
  if isinstance(objective, objectives.SemiSupervised):
    labelled_batch_size = labelled_batch_size or batch_size
  if proximal_strength != 0:
    objective = objectives.Proximal(objective, proximal_strength)
  return local_training.LocalTraining(
    model,
    objective,
    local_training.TrainingPlan(
      client_optimizer or optimizers.build_grouping_sgd(),
      batch_size,
      **local_training.steps_or_epochs(local_steps, local_epochs),
      schedule=schedule,
      labelled_batch_size=labelled_batch_size,
      epoch_batches='matched' if match_local_steps else epoch_batches,
    ),
    selection=(
      None
      if redrawn_mask_ratio is None
      else templates.Selection(
        'labelled', redrawn_mask_ratio=redrawn_mask_ratio
      )
    ),
  )


SPECS = (
  ProcessSpec(
    'fedavg',
    'Supervised FedAvg, all labels at clients: the upper bound.',
    'McMahan et al. 2017, arXiv 1602.05629, Algorithm 1',
    build_fed_avg,
    (
      shared.CLIENT_WEIGHTING,
      shared.CLIENT_MOMENTUM,
      SUPERVISED_LOSS,
      *shared.LOCAL,
    ),
    labels_at='clients',
    redraws_masks=True,
    has_server_training=False,
    has_strong_view=False,
    bound='all labels at clients',
  ),
  ProcessSpec(
    'fedprox',
    'Supervised FedProx, all labels at clients.',
    'Li et al. 2020, arXiv 1812.06127, Eq. 2',
    build_fed_avg,
    (
      shared.CLIENT_WEIGHTING,
      PROXIMAL_STRENGTH,
      shared.CLIENT_MOMENTUM,
      *shared.LOCAL,
    ),
    # The builder's 0 is FedAvg.
    defaults={'proximal_strength': 0.01},
    labels_at='clients',
    has_strong_view=False,
    redraws_masks=True,
    has_server_training=False,
  ),
  ProcessSpec(
    'fedadam',
    'Supervised FedAvg with Adam at the server, all labels at clients.',
    'Reddi et al. 2021, arXiv 2003.00295, Algorithm 2',
    build_fed_avg,
    (shared.SERVER_LEARNING_RATE, shared.CLIENT_WEIGHTING, *shared.LOCAL),
    server_optimizer=lambda **rate: optimizers.build_server_adam(**rate),
    # A step moves each weight by about the rate.
    defaults={'server_learning_rate': 0.01},
    labels_at='clients',
    redraws_masks=True,
    has_server_training=False,
    has_strong_view=False,
  ),
)
