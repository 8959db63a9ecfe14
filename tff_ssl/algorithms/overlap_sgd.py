"""Overlap-Local-SGD: clients are pulled to an average of one round before.

Wang, Liang and Joshi, Overlap Local-SGD: An Algorithmic Approach to Hide
Communication Delays in Distributed SGD (arXiv 2002.09539), as its authors' code
does it and Zhang et al. (arXiv 2008.11364) compare with it in Table 5. Each
client i keeps a model x_i, and the momentum of its optimizer; the server has an
anchor z and its velocity v, at first 0. In a round

```
client    x_i' from x_i by T steps
          x_i <- (1 - a) x_i' + a z
server    v <- b v + (z - mean_i x_i) / lr
          z <- z - lr v
```

with a = 0.6, b = 0.7 and lr the clients' learning rate. The z in a client's
pull is what the server sent before the T steps. Nobody waits for the average of
the round, which goes on while the clients already train: this is the overlap.
z is the model that is evaluated.

With a constant lr, u = lr v follows u <- b u + (z - mean_i x_i), z <- z - u,
where lr has gone: FedAvg's server step on the mean of x_i - z with the learning
rate 1 and the momentum b. It is what is computed here. Where lr follows a
schedule, v would be kept and not u: the equations above then carry b u times
the new rate over the old one into the next round, and here it is b u.

The method is defined for rounds of all clients. Where one is left out, as it
had no examples or was not finite, its x_i stays and the mean is over the
others. Moving statistics (batch norm) are not pulled: a client's are its own,
and those of z are the mean of the clients'.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import easgd, fed_avg, process_spec, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import own_models

PULL = Setting(
  'pull',
  float,
  "a, the share of the server's model that a client takes over after its "
  'steps.',
  above=0,
  at_most=1,
)
ANCHOR_MOMENTUM = Setting(
  'anchor_momentum',
  float,
  "b, momentum of the server's model, in [0, 0.999].",
  at_least=0,
  # At 1 the velocity never fades.
  at_most=0.999,
)
SETTINGS = (PULL, ANCHOR_MOMENTUM, *shared.LOCAL)

_LEARNING_RATE = 0.1
_CLIENT_TRAINING = TrainingPlan(batch_size=128, steps=16)


@tff_arguments.taken
def build_overlap_sgd(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_state_dir: str,
  pull: float = 0.6,
  anchor_momentum: float = 0.7,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  redrawn_mask_ratio: float | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds Overlap-Local-SGD. Call it with all clients in every round.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    client_state_dir: Absolute path of the folder where clients keep their
      models and optimizer states; see `tff_ssl.templates.client_state`.
    pull: a, above 0 and at most 1.
    anchor_momentum: b, in [0, 0.999].
    client_objective: As in `build_fed_avg`; what it compares with is z.
    client_training: How a client trains; by default 16 steps of SGD on
      minibatches of 128, with the learning rate 0.1, Nesterov momentum 0.9 and
      coupled weight decay 1e-4, as in the authors' code. The optimizer's state,
      momentum with it, goes on from round to round.
    redrawn_mask_ratio: As in `build_fed_avg`.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator averages x_i - z, which is all that clients send. They weigh
      the same, so that unweighted factories fit; see `build_fed_avg`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  training = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    client_training=client_training.over(
      _CLIENT_TRAINING, optimizer=optimizers.build_grouping_sgd(_LEARNING_RATE)
    ),
    redrawn_mask_ratio=redrawn_mask_ratio,
  )

  def train(task):
    result = own_models.train(training, task, pull)
    # What is averaged is the model after the pull.
    return result._replace(weights=result.client_state['model'])

  return own_models.compose(
    train,
    training,
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    server_optimizer=optimizers.build_nesterov_sgd(
      1.0, momentum=anchor_momentum, nesterov=False
    ),
    wiring=wiring,
  )


SPEC = ProcessSpec(
  'overlap_sgd',
  'Supervised Overlap-Local-SGD, averages of the round before, all labels at '
  'clients.',
  build_overlap_sgd,
  (*SETTINGS, CLASS_WEIGHTS),
  source="Wang et al. 2020, arXiv 2002.09539, and its authors' code",
  needs=Needs(labels_at='clients', clients='all', views='weak'),
  objective=objectives.Supervised,
  defaults={**easgd.ALL_TAKE_PART, 'learning_rate': _LEARNING_RATE},
  # With the momentum.
  models_in_state=2,
  has_gradient_diversity=False,
  exceptions=process_spec.OF_EQUAL_WEIGHTS,
)
