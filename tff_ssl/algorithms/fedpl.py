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
place of the L1 norm (`tff_ssl.optimizer_wrappers.add_weight_decay`), and
minibatches that leave nothing to mix are skipped (`unmixed_batches='skipped'`).
All clients weigh the same, as in Algorithm 1.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fedul
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.objectives.consistency import THRESHOLD
from tff_ssl.objectives.maths.mixup import MIXUP_CONCENTRATION, MIXUP_WEIGHT
from tff_ssl.objectives.pseudo_label_mix import MIX, PSEUDO_LABELS
from tff_ssl.objectives.wrappers.l1_penalty import L1_WEIGHT
from tff_ssl.setting import Setting, check_arguments

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizer_wrappers, templates
  from tff_ssl.templates import averaging, local_training

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


def build_fedpl(
  model,
  *,
  data_spec,
  views,
  threshold: float = 0.4,
  warmup_rounds: int = 5,
  pseudo_labels: str = 'sets',
  mix: str = 'inputs',
  mixup_weight: float = 0.3,
  mixup_concentration: float = 0.75,
  unmixed_batches: str = 'trained',
  l1_weight: float = 1e-5,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 128,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  client_weighting: str = 'uniform',
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None = None,
  metrics_aggregator=None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds FedPL.

  Args:
    model: A `tff_ssl.models.FunctionalModel` that gives logits.
    data_spec: `tff_ssl.templates.ClientDataSpec` with `priors_shape`.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    threshold: tau, the confidence from which an example is confident.
    warmup_rounds: R, rounds with the labels of the sets for all, >= 0.
    pseudo_labels: The labels from then on, of the 'sets' or of the 'model'; see
      `objectives.ConfidenceMix`.
    mix: 'inputs' or 'logits'; see `objectives.ConfidenceMix`.
    mixup_weight: lambda >= 0.
    mixup_concentration: a > 0 of the Beta distribution.
    unmixed_batches: What happens to a minibatch of which all examples are
      confident, or none. 'trained': L_fix alone is (Eq. 14). 'skipped': no step
      is taken, as in the authors' code; only Adam's count of steps goes on.
    l1_weight: Weight of the L1 norm of all trainable weights, >= 0. The default
      is Table D.4's for MNIST in 10 sets.
    client_optimizer: By default Adam with learning rate 1e-4, fresh in each
      round.
    server_optimizer: By default SGD with learning rate 1.
    batch_size: Examples in a client's minibatch, of all sets.
    local_steps: Steps of a client in a round.
    local_epochs: Instead of `local_steps`, passes over the client's examples; 1
      where neither is given.
    client_weighting: 'uniform', or 'examples' (processed in the round).
    schedule: As in `build_fed_avg`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: As in `build_fed_avg`.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  data_spec.check_sets()
  client_optimizer = client_optimizer or tff.learning.optimizers.build_adam(
    1e-4
  )

  def build_training(objective, optimizer=client_optimizer):
    plan = local_training.TrainingPlan(
      optimizer,
      batch_size,
      **local_training.steps_or_epochs(
        local_steps, local_epochs, default_epochs=1
      ),
      schedule=schedule,
    )
    return local_training.LocalTraining(model, objective, plan)

  warmup = build_training(
    objectives.L1Penalty(objectives.PriorLabels(views), l1_weight)
  )
  mixed = objectives.L1Penalty(
    objectives.ConfidenceMix(
      views,
      threshold,
      pseudo_labels,
      mix,
      mixup_weight,
      mixup_concentration,
    ),
    l1_weight,
  )
  if unmixed_batches == 'skipped':
    mixing = build_training(
      objectives.OnlyMixed(mixed),
      optimizer_wrappers.rest_without_gradient(client_optimizer),
    )
  else:
    mixing = build_training(mixed)

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
    wiring=templates.Wiring(
      model_distributor, model_aggregator, metrics_aggregator, seed
    ),
  )


SPEC = ProcessSpec(
  'fedpl',
  'Sets take the class of their largest prior; then mixup.',
  'Lu et al. 2022, arXiv 2204.03304, Appendix D.2 (baselines), Eqs. 14 to 17',
  build_fedpl,
  SETTINGS,
  defaults={**fedul.DEFAULTS, 'batch_size': 128},
  labels_at='sets',
  makes_pseudo_labels=True,
  has_server_training=False,
  has_gradient_diversity=False,
  has_strong_view=False,
)
