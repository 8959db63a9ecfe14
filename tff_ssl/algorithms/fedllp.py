"""FedLLP and FedLLP-VAT: label proportions of U-sets, averaged by FedAvg.

Baselines of FedUL (Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients, ICLR 2022, arXiv 2204.03304, Appendix D.2,
Eqs. 18 to 20). Nobody has labels; a client holds sets of examples and knows the
class priors of each set. In a pass over its data, each of a client's sets is
one minibatch, whole and whatever its size, in random order, and the client
steps down the cross-entropy from the set's priors to the mean of the model's
predictions (`tff_ssl.objectives.LabelProportions`), and with VAT down a
consistency term beside it (`VirtualAdversarialProportions`). Then

```
w <- w + sum_c delta_c / C
```

The authors' code differs: the models of both methods drop out a fifth of each
block's outputs, which here is a matter of the model (on MNIST,
`fedul_mnist_dropout` of `tff_ssl.models`), priors are clipped to
[1e-7, 1 - 1e-7] (the loss is finite without), and a set of one example, which
batch normalisation cannot take, waits for the next set.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedul, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import check_arguments
from tff_ssl.objectives.label_proportions import VAT_SETTINGS
from tff_ssl.objectives.wrappers.l1_penalty import L1_WEIGHT
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging

SETTINGS = (
  # A minibatch is a whole set: there are no steps to count.
  dataclasses.replace(shared.LOCAL_EPOCHS, optional=False, instead_of=None),
  L1_WEIGHT,
  shared.CLIENT_WEIGHTING,
)

_CLIENT_TRAINING = TrainingPlan(epochs=1)


@tff_arguments.taken
def build_fedllp(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  l1_weight: float = 1e-5,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedLLP, or FedLLP-VAT by its `client_objective`.

  Args:
    model: A `tff_ssl.models.FunctionalModel` that gives logits.
    data_spec: `tff_ssl.templates.ClientDataSpec` with `priors_shape`.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    client_objective: By default `tff_ssl.objectives.LabelProportions(views)`;
      its minibatches are whole sets.
    l1_weight: Weight of the L1 norm of all trainable weights, >= 0. The default
      is Table D.4's for MNIST in 10 sets; the authors' code has 1e-4.
    client_training: How a client trains; by default a pass over its sets with
      Adam, fresh in each round, with the learning rate 1e-4. A minibatch is a
      whole set: there is no batch size, and no number of steps.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: 'uniform', or 'examples' (processed in the round).
    wiring: Distributor, aggregators and seed; see `tff_ssl.Wiring`.

  Returns:
    A `tff.learning.templates.LearningProcess`. Of the metrics, `loss` is the
    mean over sets, without L1 and consistency.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  data_spec.check_sets()
  objective = client_objective or objectives.LabelProportions(views)
  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_adam(1e-4)
  )
  training = templates.LocalTraining(
    model,
    objectives.L1Penalty(objective, l1_weight),
    plan,
    templates.Selection('sets'),
  )
  return averaging.compose(
    training.run_task,
    model=model,
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    client_weighting=client_weighting,
    server_optimizer=server_optimizer,
    wiring=wiring,
  )


_PAPER = 'Lu et al. 2022, arXiv 2204.03304, Appendix D.2 (baselines)'

SPECS = tuple(
  ProcessSpec(
    name,
    description,
    build_fedllp,
    (*SETTINGS, *more),
    source=f'{_PAPER}, {equation}',
    needs=Needs(labels_at='sets', views='weak', tokens=name != 'fedllp_vat'),
    objective=objective,
    defaults=fedul.OF_SETS,
    has_gradient_diversity=False,
  )
  for name, objective, equation, more, description in (
    (
      'fedllp',
      objectives.LabelProportions,
      'Eq. 18',
      (),
      "The mean prediction on a set is drawn to the set's priors.",
    ),
    (
      'fedllp_vat',
      objectives.VirtualAdversarialProportions,
      'Eq. 19',
      VAT_SETTINGS,
      'The same with virtual adversarial training beside it.',
    ),
  )
)
