"""Clients that keep models of their own: EASGD and Overlap-Local-SGD.

Each client i of all M keeps a model x_i, and the momentum of its optimizer. In
a round it trains x_i to x_i', and is pulled towards the server's model z, as
the server sent it before the steps; z is the model that is evaluated.

EASGD: Zhang, Choromanska and LeCun, Deep learning with Elastic Averaging SGD
(arXiv 1412.6651), Eqs. 5 and 6, in the synchronous form that Zhang et al.
(arXiv 2008.11364) compare with in Table 5, both by the old values,

```math
client    x_i' from x_i by T steps
          x_i <- (1 - a) x_i' + a z
server    z <- (1 - M a) z + a sum_i x_i'
             = z + M a mean_i(x_i' - z)
```

with the elastic rate M a, 0.9 in the paper. The server's step is FedAvg's with
the learning rate M a. With momentum at clients, which is the default here, it
is the paper's EAMSGD. Both changes add up to zero: without steps,
z + sum_i x_i stays as it is.

Overlap-Local-SGD: Wang, Liang and Joshi, Overlap Local-SGD: An Algorithmic
Approach to Hide Communication Delays in Distributed SGD (arXiv 2002.09539), as
its authors' code does it and Zhang et al. compare with it in Table 5. The
server has a velocity v, at first 0,

```math
client    x_i' from x_i by T steps
          x_i <- (1 - a) x_i' + a z
server    v <- b v + (z - mean_i x_i) / lr
          z <- z - lr v
```

with a = 0.6, b = 0.7 and lr the clients' learning rate. Nobody waits for the
average of the round, which goes on while the clients already train: this is the
overlap. With a constant lr, u = lr v follows u <- b u + (z - mean_i x_i),
z <- z - u, where lr has gone: FedAvg's server step on the mean of x_i - z with
the learning rate 1 and the momentum b. It is what is computed here. Where lr
follows a schedule, v would be kept and not u: the equations above then carry
b u times the new rate over the old one into the next round, and here it is b u.

At first, x_i is the z of the client's first round. Both methods are defined for
rounds of all clients. Where one is left out, as it had no examples or was not
finite, its x_i stays and the mean is over the others. Moving statistics (batch
norm) are not pulled: a client's are its own, and those of z are the mean of the
clients'. What an objective compares with (`anchors`) is z.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, process_spec, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging


# Of Overlap-Local-SGD.
_LEARNING_RATE = 0.1
_OVERLAP_TRAINING = TrainingPlan(
  batch_size=128, steps=16, redrawn_mask_ratio=0.0
)


def _pulled(training, pull):
  """Returns what a client does: it trains its own model, and is pulled.

  The result's weights are x'; its client state has the new x as 'model'. A
  client that takes no step is pulled all the same.
  """

  def train(task):
    own = task.client_state
    result = training.run_task(
      task,
      start=own['model'],
      optimizer_state=own['optimizer'],
      anchors=task.weights,
    )
    trainable = tf.nest.map_structure(
      # In this form, a model that is z already stays so to the bit.
      lambda new, anchor: new + pull * (anchor - new),
      result.weights.trainable,
      task.weights.trainable,
    )
    model = tff.learning.models.ModelWeights(
      trainable, result.weights.non_trainable
    )
    return result._replace(
      client_state={'model': model, 'optimizer': result.optimizer_state}
    )

  return train


def _compose(train, training, server, *, data_spec, client_state_dir, wiring):
  """Composes the process of clients with own models, all of one weight."""

  def first_state(task):
    return tf.nest.map_structure(
      tf.convert_to_tensor,
      {
        'model': task.weights,
        'optimizer': training.initial_optimizer_state(),
      },
    )

  return averaging.compose(
    training,
    train=train,
    data_spec=data_spec,
    client_weighting='uniform',
    server=server,
    wiring=wiring,
    memories=(templates.ClientMemory(client_state_dir, first_state),),
  )


@tff_arguments.taken
def build_easgd(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_state_dir: str,
  elastic_rate: float = 0.9,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = fed_avg.CLIENT_TRAINING,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds EASGD. Call it with all clients in every round.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`, with M,
      `num_clients`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_state_dir: Absolute path of the folder where clients keep their
      models and optimizer states; see `tff_ssl.templates.client_state`.
    elastic_rate: M a, above 0 and at most 1. With 1, the server takes the mean
      of the models as FedAvg does.
    client_objective: As in `build_fed_avg`; what it compares with is z.
    client_training: As in `build_fed_avg`. The optimizer's state, momentum
      with it, goes on from round to round.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator averages x_i' - z, which is all that clients send. They weigh
      the same, so that unweighted factories fit; see `build_fed_avg`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  ELASTIC_RATE.check(elastic_rate)
  training = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    client_training=client_training.over(fed_avg.CLIENT_TRAINING),
  )
  return _compose(
    _pulled(training, elastic_rate / data_spec.checked_num_clients),
    training,
    optimizers.build_server_sgd(elastic_rate),
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    wiring=wiring,
  )


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
  client_training: TrainingPlan = _OVERLAP_TRAINING,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds Overlap-Local-SGD. Call it with all clients in every round.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_state_dir: Absolute path of the folder where clients keep their
      models and optimizer states; see `tff_ssl.templates.client_state`.
    pull: a, above 0 and at most 1.
    anchor_momentum: b, in [0, 0.999].
    client_objective: As in `build_fed_avg`; what it compares with is z.
    client_training: How a client trains; by default 16 steps of SGD on
      minibatches of 128, with the learning rate 0.1, Nesterov momentum 0.9 and
      coupled weight decay 1e-4, as in the authors' code. The optimizer's state,
      momentum with it, goes on from round to round.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator averages x_i - z, which is all that clients send. They weigh
      the same, so that unweighted factories fit; see `build_fed_avg`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments((PULL, ANCHOR_MOMENTUM), locals())
  training = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    client_training=client_training.over(
      _OVERLAP_TRAINING, optimizer=optimizers.build_grouping_sgd(_LEARNING_RATE)
    ),
  )

  train = _pulled(training, pull)

  def train_to_the_pull(task):
    result = train(task)
    # What is averaged is the model after the pull.
    return result._replace(weights=result.client_state['model'])

  return _compose(
    train_to_the_pull,
    training,
    optimizers.build_nesterov_sgd(
      1.0, momentum=anchor_momentum, nesterov=False
    ),
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    wiring=wiring,
  )


ELASTIC_RATE = Setting(
  'elastic_rate',
  float,
  "M a, how far the server's model goes to the mean of all clients' models, "
  'and all of them together to it.',
  above=0,
  at_most=1,
)
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


# As in Table 5: more clients would make rounds of all of them long.
_ALL_TAKE_PART = {'num_clients': 16, 'clients_per_round': 16}
SPECS = (
  ProcessSpec(
    'easgd',
    'Supervised EASGD: clients keep models that pull and are pulled, all '
    'labels at clients.',
    build_easgd,
    (ELASTIC_RATE, *shared.LOCAL, CLASS_WEIGHTS),
    source='Zhang et al. 2015, arXiv 1412.6651, Eqs. 5 and 6',
    needs=Needs(labels_at='clients', clients='all', views='weak'),
    objective=objectives.Supervised,
    defaults=_ALL_TAKE_PART,
    # With the momentum.
    models_in_state=2,
    has_gradient_diversity=False,
    exceptions=process_spec.OF_EQUAL_WEIGHTS,
  ),
  ProcessSpec(
    'overlap_sgd',
    'Supervised Overlap-Local-SGD, averages of the round before, all labels at '
    'clients.',
    build_overlap_sgd,
    (PULL, ANCHOR_MOMENTUM, *shared.LOCAL, CLASS_WEIGHTS),
    source="Wang et al. 2020, arXiv 2002.09539, and its authors' code",
    needs=Needs(labels_at='clients', clients='all', views='weak'),
    objective=objectives.Supervised,
    defaults={**_ALL_TAKE_PART, 'learning_rate': _LEARNING_RATE},
    # With the momentum.
    models_in_state=2,
    has_gradient_diversity=False,
    exceptions=process_spec.OF_EQUAL_WEIGHTS,
  ),
)
