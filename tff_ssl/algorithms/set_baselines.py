"""FedUL's baselines, from class priors of sets: FedPL, FedLLP and FedLLP-VAT.

Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients, ICLR 2022 (arXiv 2204.03304), Section 5.1 and
Appendix D.2. Nobody has labels; a client holds sets of examples and knows the
class priors of each set. All are averaged by FedAvg, and all clients weigh the
same, as in Algorithm 1.

FedPL (Eqs. 14 to 17), after SemiFL (Diao et al., arXiv 2106.01432), makes
pseudo-labels out of class priors and boosts them by mixup,

```math
rounds before R     l(f(x), argmax_k pi_mk)  for x in set m
from round R on     L_fix + lambda L_mix, where the model is confident or not
```

See `tff_ssl.objectives.PriorLabels` and `ConfidenceMix`. The paper speaks of
one label for all data of a set, "boosted by Mixup"; that it gives way to the
model's own after the first rounds stands in the authors' code alone
(`pseudo_labels='model'`). The rounds before R are from that code, too: without
them nobody would ever be confident. In it Adam has an L2 penalty of 5e-4 in
place of the L1 norm (`tff_ssl.optimizers.add_weight_decay`), and
minibatches that leave nothing to mix are skipped (`unmixed_batches='skipped'`).

FedLLP and FedLLP-VAT (Eqs. 18 to 20): in a pass over its data, each of a
client's sets is one minibatch, whole and whatever its size, in random order,
and the client steps down the cross-entropy from the set's priors to the mean of
the model's predictions (`tff_ssl.LabelProportions`), and with VAT
down a consistency term beside it (`VirtualAdversarialProportions`). The
authors' code differs: the models of both methods drop out a fifth of each
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
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives.wrappers import L1_WEIGHT
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging


_FEDPL_TRAINING = TrainingPlan(batch_size=128, epochs=1)
_FEDLLP_TRAINING = TrainingPlan(epochs=1)


@tff_arguments.taken
def build_fedpl(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  warmup_rounds: int = 5,
  l1_weight: float = 1e-5,
  client_training: TrainingPlan = _FEDPL_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedPL.

  Args:
    model: A `tff_ssl.FunctionalModel` that gives logits.
    data_spec: The type of client data, with `priors_shape`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_objective: From round R on; by default
      `tff_ssl.ConfidenceMix(views)`.
    warmup_rounds: R, rounds with the labels of the sets for all, >= 0.
    l1_weight: Weight of the L1 norm of all trainable weights, >= 0. The default
      is Table D.4's for MNIST in 10 sets.
    client_training: How a client trains; by default a pass over its examples
      with Adam, fresh in each round, with the learning rate 1e-4 and
      minibatches of 128, drawn from all sets.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: 'uniform', or 'examples' (processed in the round).
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(FEDPL_SETTINGS, locals())
  data_spec.check_sets()
  plan = client_training.over(
    _FEDPL_TRAINING, optimizer=tff.learning.optimizers.build_adam(1e-4)
  )
  warmup = templates.LocalTraining(
    model, objectives.L1Penalty(objectives.PriorLabels(views), l1_weight), plan
  )
  objective = client_objective or objectives.ConfidenceMix(views)
  mixed: protocols.Objective = objectives.L1Penalty(objective, l1_weight)
  if getattr(objective, 'unmixed_batches', 'trained') == 'skipped':
    mixed = objectives.OnlyMixed(mixed)
    plan = dataclasses.replace(
      plan, optimizer=optimizers.rest_without_gradient(plan.optimizer)
    )
  mixing = templates.LocalTraining(model, mixed, plan)

  def train(task):
    return tf.cond(
      task.round < warmup_rounds,
      lambda: warmup.run_task(task),
      lambda: mixing.run_task(task),
    )

  return averaging.compose(
    warmup,
    train=train,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
  )


@tff_arguments.taken
def build_fedllp(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  l1_weight: float = 1e-5,
  client_training: TrainingPlan = _FEDLLP_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedLLP, or FedLLP-VAT by its `client_objective`.

  Args:
    model: As in `build_fedpl`.
    data_spec: As in `build_fedpl`.
    views: As in `build_fedpl`.
    client_objective: By default `tff_ssl.LabelProportions(views)`; its
      minibatches are whole sets.
    l1_weight: As in `build_fedpl`; the authors' code has 1e-4.
    client_training: How a client trains; by default a pass over its sets with
      Adam, fresh in each round, with the learning rate 1e-4. A minibatch is a
      whole set: there is no batch size, and no number of steps.
    server_optimizer: As in `build_fedpl`.
    client_weighting: As in `build_fedpl`.
    wiring: As in `build_fedpl`.

  Returns:
    A `tff.learning.templates.LearningProcess`. Of the metrics, `loss` is the
    mean over sets, without L1 and consistency.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(FEDLLP_SETTINGS, locals())
  data_spec.check_sets()
  objective = client_objective or objectives.LabelProportions(views)
  plan = client_training.over(
    _FEDLLP_TRAINING, optimizer=tff.learning.optimizers.build_adam(1e-4)
  )
  training = templates.LocalTraining(
    model,
    objectives.L1Penalty(objective, l1_weight),
    plan,
    templates.Selection('sets'),
  )
  return averaging.compose(
    training,
    train=training.run_task,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
  )


FEDPL_SETTINGS = (
  *shared.LOCAL,
  *objectives.ConfidenceMix.settings,
  Setting(
    'warmup_rounds',
    int,
    'The first rounds, in which the class of the largest prior labels all '
    'examples of a set.',
    at_least=0,
    rounds='share',
    phase='warm-up',
  ),
  L1_WEIGHT,
  shared.CLIENT_WEIGHTING,
)
FEDLLP_SETTINGS = (
  # A minibatch is a whole set: there are no steps to count.
  dataclasses.replace(shared.LOCAL_EPOCHS, optional=False, instead_of=None),
  L1_WEIGHT,
  shared.CLIENT_WEIGHTING,
)


_PAPER = 'Lu et al. 2022, arXiv 2204.03304, Appendix D.2 (baselines)'
SPECS = (
  ProcessSpec(
    'fedpl',
    'FedPL: sets take the class of their largest prior; then mixup.',
    build_fedpl,
    FEDPL_SETTINGS,
    source=f'{_PAPER}, Eqs. 14 to 17',
    needs=Needs(labels_at='sets', views='weak', tokens=False),
    objective=objectives.ConfidenceMix,
    defaults=fedul.OF_MINIBATCHES,
    makes_pseudo_labels=True,
    has_gradient_diversity=False,
  ),
  *(
    ProcessSpec(
      name,
      description,
      build_fedllp,
      (*FEDLLP_SETTINGS, *objective.settings),
      source=f'{_PAPER}, {equation}',
      needs=Needs(labels_at='sets', views='weak', tokens=name != 'fedllp_vat'),
      objective=objective,
      defaults=fedul.OF_SETS,
      has_gradient_diversity=False,
    )
    for name, objective, equation, description in (
      (
        'fedllp',
        objectives.LabelProportions,
        'Eq. 18',
        "FedLLP: the mean prediction on a set is drawn to the set's priors.",
      ),
      (
        'fedllp_vat',
        objectives.VirtualAdversarialProportions,
        'Eq. 19',
        'FedLLP with virtual adversarial training beside it.',
      ),
    )
  ),
)
