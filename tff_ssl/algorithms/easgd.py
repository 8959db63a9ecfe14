"""EASGD: each client keeps its own model, tied to the server's by a spring.

Zhang, Choromanska and LeCun, Deep learning with Elastic Averaging SGD (arXiv
1412.6651), Eqs. 5 and 6, in the synchronous form that Zhang et al. (arXiv
2008.11364) compare with in Table 5. Each client i of all M keeps a model x_i,
and the momentum of its optimizer. In a round, both by the old values,

```
client    x_i' from x_i by T steps
          x_i <- (1 - a) x_i' + a z
server    z <- (1 - M a) z + a sum_i x_i'
             = z + M a mean_i(x_i' - z)
```

with the elastic rate M a, 0.9 in the paper. The server's step is FedAvg's with
the learning rate M a. With momentum at clients, which is the default here, it
is the paper's EAMSGD. z is the model that is evaluated.

Both changes add up to zero: without steps, z + sum_i x_i stays as it is. So the
method is defined for rounds of all clients. Where one is left out, as it had no
examples or was not finite, its x_i stays and the mean is over the others.

Moving statistics (batch norm) are not pulled: a client's are its own, and those
of z are the mean of the clients'.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import checks, objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, process_spec, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import own_models

ELASTIC_RATE = Setting(
  'elastic_rate',
  float,
  "M a, how far the server's model goes to the mean of all clients' models, "
  'and all of them together to it.',
  above=0,
  at_most=1,
)
SETTINGS = (ELASTIC_RATE, *shared.LOCAL)

# As in Table 5: more clients would make rounds of all of them long.
ALL_TAKE_PART = {'num_clients': 16, 'clients_per_round': 16}


@tff_arguments.taken
def build_easgd(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  num_clients: int,
  client_state_dir: str,
  elastic_rate: float = 0.9,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = fed_avg.CLIENT_TRAINING,
  redrawn_mask_ratio: float | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds EASGD. Call it with all clients in every round.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    num_clients: M, all clients there are.
    client_state_dir: Absolute path of the folder where clients keep their
      models and optimizer states; see `tff_ssl.templates.client_state`.
    elastic_rate: M a, above 0 and at most 1. With 1, the server takes the mean
      of the models as FedAvg does.
    client_objective: As in `build_fed_avg`; what it compares with is z.
    client_training: As in `build_fed_avg`. The optimizer's state, momentum
      with it, goes on from round to round.
    redrawn_mask_ratio: As in `build_fed_avg`.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator averages x_i' - z, which is all that clients send. They weigh
      the same, so that unweighted factories fit; see `build_fed_avg`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  if num_clients is None:
    raise ValueError(
      'num_clients=None leaves open how strong the pull on each client is: '
      'give the number of all clients.'
    )
  checks.integers_at_least(1, num_clients=num_clients)
  training = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    client_training=client_training,
    redrawn_mask_ratio=redrawn_mask_ratio,
  )
  return own_models.compose(
    lambda task: own_models.train(training, task, elastic_rate / num_clients),
    training,
    data_spec=data_spec,
    client_state_dir=client_state_dir,
    server_optimizer=optimizers.build_server_sgd(elastic_rate),
    wiring=wiring,
  )


SPEC = ProcessSpec(
  'easgd',
  "Supervised EASGD, clients' own models on a spring, all labels at clients.",
  build_easgd,
  (*SETTINGS, CLASS_WEIGHTS),
  source='Zhang et al. 2015, arXiv 1412.6651, Eqs. 5 and 6',
  needs=Needs(labels_at='clients', clients='all', views='weak'),
  objective=objectives.Supervised,
  defaults=ALL_TAKE_PART,
  # With the momentum.
  models_in_state=2,
  has_gradient_diversity=False,
  exceptions=process_spec.OF_EQUAL_WEIGHTS,
)
