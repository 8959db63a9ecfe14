"""FedPL: pseudo-labels out of class priors, boosted by mixup, under FedAvg.

A baseline of FedUL (Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients, ICLR 2022, arXiv 2204.03304, Section 5.1 and
Appendix D.2, Eqs. 14 to 17), after SemiFL (Diao et al., arXiv 2106.01432).
Nobody has labels; a client holds sets of examples and knows the class priors of
each set.

```
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
All clients weigh the same, as in Algorithm 1.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedul, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments
from tff_ssl.objectives.consistency import THRESHOLD
from tff_ssl.objectives.maths.mixup import MIXUP_CONCENTRATION, MIXUP_WEIGHT
from tff_ssl.objectives.pseudo_label_mix import MIX, PSEUDO_LABELS
from tff_ssl.objectives.wrappers.l1_penalty import L1_WEIGHT
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging

SETTINGS = (
  *shared.LOCAL,
  THRESHOLD,
  Setting(
    'warmup_rounds',
    int,
    'The first rounds, in which the class of the largest prior labels all '
    'examples of a set.',
    at_least=0,
    rounds='share',
    phase='warm-up',
  ),
  PSEUDO_LABELS,
  MIX,
  MIXUP_WEIGHT,
  MIXUP_CONCENTRATION,
  Setting(
    'unmixed_batches',
    str,
    'Minibatches that leave nothing to mix are trained, or skipped as in the '
    "authors' code.",
    choices=('trained', 'skipped'),
  ),
  L1_WEIGHT,
  shared.CLIENT_WEIGHTING,
)

_CLIENT_TRAINING = TrainingPlan(batch_size=128, epochs=1)


@tff_arguments.taken
def build_fedpl(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  warmup_rounds: int = 5,
  unmixed_batches: str = 'trained',
  l1_weight: float = 1e-5,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedPL.

  Args:
    model: A `tff_ssl.models.FunctionalModel` that gives logits.
    data_spec: `tff_ssl.templates.ClientDataSpec` with `priors_shape`.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    client_objective: From round R on; by default
      `tff_ssl.ConfidenceMix(views)`.
    warmup_rounds: R, rounds with the labels of the sets for all, >= 0.
    unmixed_batches: What happens to a minibatch of which all examples are
      confident, or none. 'trained': L_fix alone is (Eq. 14). 'skipped': no step
      is taken, as in the authors' code; only Adam's count of steps goes on.
    l1_weight: Weight of the L1 norm of all trainable weights, >= 0. The default
      is Table D.4's for MNIST in 10 sets.
    client_training: How a client trains; by default a pass over its examples
      with Adam, fresh in each round, with the learning rate 1e-4 and
      minibatches of 128, drawn from all sets.
    server_optimizer: By default SGD with learning rate 1.
    client_weighting: 'uniform', or 'examples' (processed in the round).
    wiring: Distributor, aggregators and seed; see `tff_ssl.Wiring`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  data_spec.check_sets()
  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_adam(1e-4)
  )
  warmup = templates.LocalTraining(
    model, objectives.L1Penalty(objectives.PriorLabels(views), l1_weight), plan
  )
  mixed = objectives.L1Penalty(
    client_objective or objectives.ConfidenceMix(views), l1_weight
  )
  if unmixed_batches == 'skipped':
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
    train,
    model=model,
    data_spec=data_spec,
    initial_hparams=warmup.initial_hparams,
    client_weighting=client_weighting,
    server_optimizer=server_optimizer,
    wiring=wiring,
  )


SPEC = ProcessSpec(
  'fedpl',
  'Sets take the class of their largest prior; then mixup.',
  build_fedpl,
  SETTINGS,
  source='Lu et al. 2022, arXiv 2204.03304, Appendix D.2 (baselines), '
  'Eqs. 14 to 17',
  needs=Needs(labels_at='sets', views='weak', tokens=False),
  objective=objectives.ConfidenceMix,
  defaults=fedul.OF_MINIBATCHES,
  makes_pseudo_labels=True,
  has_gradient_diversity=False,
)
