"""Grouping that does not collapse where plain CRL does.

In grouping-based training (Zhang et al., arXiv 2008.11364) a client makes its
pseudo-labels with the model that it is training. A model that has begun to
prefer some classes confirms itself within the round, and where clients are many
or labels few, averages collapse to a few classes. This process changes three
things, lets clients keep momentum, decays weights more, and leaves the rest:

```math
teacher   pseudo-labels are those of the average v that the client received:
          they do not change during local training
client    k in G_i: w_k = T steps of CRL (Eq. 4) from w_avg,i on these labels
group     m_i = sum_{k in G_i} w_k / |G_i|
server    w_s = steps on L_s (Eq. 3) from 1/S sum_i m_i
all       w_avg <- w_s
          w_avg,i <- w_s + d_i - 1/S sum_j d_j,
          d_i = |G_i| / (|G_i| + n) (m_i - 1/S sum_j m_j)
average   v <- d v + (1 - d) w_avg,   d = min(decay, (1 + t) / (10 + t))
```

* A received teacher, and a server that trains last, are those of SemiFL (Diao
  et al., SemiFL: Semi-Supervised Federated Learning for Unlabeled Clients with
  Alternate Training, arXiv 2106.01432): a model that has just been trained on
  the labels makes the pseudo-labels. Groups differ as much as Eq. 7 of Zhang et
  al. lets them with server weight n, and their mean is the server's model.
* The teacher, and the model that is evaluated, is the average v over rounds t
  (Tarvainen and Valpola, arXiv 1703.01780;
  `tff_ssl.templates.moving_average`). It is right more often than w_avg.
* No fixed threshold decides which pseudo-labels count. A confidence of at least
  0.5 does, if it is also at least the mean of the minibatch, or less than that
  for classes that are rare in it (FreeMatch, Wang et al., arXiv 2205.07246;
  `tff_ssl.objectives.selection`). v is less sure of itself than w_avg, so
  that 0.95 would leave few labels; and where the server learns its labels by
  heart, v becomes too sure, and the mean rises with it.
* Clients go on with the mean of the momenta that the clients of the round
  before left (Yu, Jin and Yang, arXiv 1905.03817): they take few steps, and
  would spend them on gathering speed.
* Weights decay by 5e-4, as in FixMatch (Sohn et al., arXiv 2001.07685) and
  SemiFL, and not by the 1e-4 of Zhang et al.

A client receives S + 1 models and a momentum, and sends a change and a
momentum. The momenta are summed in the clear, so that private and secure
aggregators are refused; `client_momentum='reset'` does without momenta.
SemiFL's mixtures of examples, its batch statistics and its momentum of the
average are not part of this process (`tff_ssl.build_semifl` has them).
"""

from __future__ import annotations

import dataclasses
import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import grouping, tff_arguments
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.common.setting import without
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import ServerPlan, TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional


_OBJECTIVE = functools.partial(
  objectives.ConsistencyRegularization,
  threshold=0.5,
  teacher='received',
  pseudo_label_rule='self_adaptive',
  min_confidence=0.5,
)
_CLIENT_TRAINING = dataclasses.replace(
  grouping.CLIENT_TRAINING, client_momentum='mean'
)
_SERVER = ServerPlan(steps=16, weight=1.0, warmup_rounds=0)
_WIRING = Wiring(ema_decay=0.9)
_WEIGHT_DECAY = 5e-4


@tff_arguments.taken
def build_grouping_robust(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  num_groups: int = 2,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server: ServerPlan = _SERVER,
  group_assignment: str = 'sampler',
  wiring: Wiring = _WIRING,
) -> tff.learning.templates.LearningProcess:
  """Builds grouping with a received teacher and a server that trains last.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    num_groups: S >= 1; with 1, all clients start from w_s.
    client_objective: By default CRL with the received model as teacher and
      FreeMatch's thresholds above 0.5,
      `tff_ssl.ConsistencyRegularization(views, teacher='received',
      pseudo_label_rule='self_adaptive', min_confidence=0.5)`.
    client_training: As in `build_grouping_ssfl`, but that clients go on with
      the mean of the momenta, and for a weight decay of 5e-4.
    server: As in `build_grouping_ssfl`, but for its order and the same weight
      decay. Its weight is n above; a larger one brings groups closer to w_s.
    group_assignment: As in `build_grouping_ssfl`.
    wiring: As in `build_grouping_ssfl`. `ema_decay`, by default 0.9, is that of
      the average that labels and that is evaluated.

  Returns:
    A `tff.learning.templates.LearningProcess` with the metrics of
    `build_grouping_ssfl`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  optimizer = optimizers.build_nesterov_sgd(0.03, weight_decay=_WEIGHT_DECAY)
  return grouping.build_grouping_ssfl(
    model,
    data_spec=data_spec,
    views=views,
    num_groups=num_groups,
    client_objective=client_objective or _OBJECTIVE(views),
    client_training=client_training.over(_CLIENT_TRAINING, optimizer=optimizer),
    server=dataclasses.replace(
      server.over(_SERVER, optimizer=optimizer), order='after'
    ),
    group_assignment=group_assignment,
    wiring=wiring.over(_WIRING),
  )


def _derive(values, given):
  """Returns the momentum of clients whose optimizer's states have no mean."""
  optimizer = given.get('client_optimizer', values['client_optimizer'])
  return {'client_momentum': 'reset'} if optimizer == 'adam' else {}


SPEC = ProcessSpec(
  'grouping_robust',
  'What we recommend: grouping with pseudo-labels of an average of the '
  'received model; the server trains last.',
  build_grouping_robust,
  (
    shared.NUM_GROUPS,
    # The received model labels, whose view is not trained on.
    *without(
      objectives.ConsistencyRegularization.settings, 'views_forward', 'teacher'
    ),
    *shared.LOCAL,
    shared.CLIENT_MOMENTUM,
    *shared.SERVER_LOCAL,
    shared.SERVER_WEIGHT,
    shared.EMA_DECAY,
    CLASS_WEIGHTS,
  ),
  source='Eqs. 3, 4 and 7 of Zhang et al. 2021, arXiv 2008.11364, with the '
  'teacher and the order of Diao et al. 2022, arXiv 2106.01432, the average of '
  'Tarvainen and Valpola 2017, arXiv 1703.01780, and the momentum of Yu et al. '
  '2019, arXiv 1905.03817, with the thresholds of Wang et al. 2022, arXiv '
  '2205.07246, and the weight decay of Sohn et al. 2020, arXiv 2001.07685',
  defaults={'weight_decay': _WEIGHT_DECAY},
  derive=_derive,
  objective=_OBJECTIVE,
  makes_pseudo_labels=True,
)
