"""FedAvg that does not collapse where clients have few labels.

Clients that have labels on some of their examples train on these, and on
pseudo-labels of all. Four things keep these from doing harm:

```math
teacher   w, the model that a client received, labels, and does not change
          while the client trains
aligned   pseudo-labels follow the class shares that labels of the client tell
counts    those from the mean confidence of all examples of the client on, less
          for rare classes, and never below 0.5
few       a client with labels that holds fewer than half of the classes, in
          effect, makes none
client    w_k = steps on L_s + lambda_u L_u from w
server    w <- w + sum_k n_k (w_k - w) / sum_k n_k
average   v <- d v + (1 - d) w with d = min(decay, (1 + t) / (10 + t))
```

Rounds are those of FedAvg (McMahan et al., arXiv 1602.05629), L_s and L_u those
of `tff_ssl.AlignedLabels`. The rule that counts is that of `tff_ssl.build_flfl`
(Lee et al., arXiv 2410.23227), which takes means over all examples of a client,
here with a floor. What is evaluated is the average v over rounds t (Tarvainen
and Valpola, arXiv 1703.01780).
"""

from __future__ import annotations

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import functional


_WIRING = Wiring(ema_decay=0.9)


@tff_arguments.taken
def build_fedavg_robust(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = fed_avg.PLAIN_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'examples',
  wiring: Wiring = _WIRING,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg with aligned pseudo-labels of the received model.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_objective: By default `tff_ssl.AlignedLabels(views)`.
    client_training: How a client trains; by default 16 steps on minibatches of
      64, with as many labelled examples beside each, and the optimizer of
      `build_fed_avg`.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: As in `build_fed_avg`.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). `ema_decay`,
      by default 0.9, is that of the average that is evaluated.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  return fed_avg.build_fed_avg(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective or objectives.AlignedLabels(views),
    client_training=client_training.over(fed_avg.PLAIN_TRAINING),
    server_optimizer=server_optimizer,
    client_weighting=client_weighting,
    wiring=wiring.over(_WIRING),
  )


SPEC = ProcessSpec(
  'fedavg_robust',
  'What we recommend: FedAvg with pseudo-labels of the received model, in line '
  "with the classes of a client's own labels.",
  build_fedavg_robust,
  (
    *(shared.CLIENT_WEIGHTING, shared.LABELLED_BATCH_SIZE, *shared.LOCAL),
    *(*objectives.AlignedLabels.settings, shared.EMA_DECAY),
  ),
  source='McMahan et al. 2017, arXiv 1602.05629, with the alignment of '
  'Berthelot et al. 2020, arXiv 1911.09785, the average of Tarvainen and '
  'Valpola 2017, arXiv 1703.01780, and the thresholds of Lee et al. 2024, '
  'arXiv 2410.23227',
  needs=Needs(labels_at='clients', unlabelled=True),
  objective=objectives.AlignedLabels,
  defaults={'mask_ratio': 0.8, 'augmentation': 'rand_augment_1_10'},
  makes_pseudo_labels=True,
)
