"""FedLabel: local or global model, the surer one labels a client's examples.

Cho et al., Local or Global: Selective Knowledge Assimilation for Federated
Learning with Limited Labels (arXiv 2307.08809), Algorithm 1. For client k in a
round from global weights w,

```math
local model   w_L = tau SGD steps on labelled examples from w        (Eqs. 1, 2)
second model  w_U = tau' SGD steps on unlabelled examples from w,
              labelled by w or w_L, whichever is surer           (Eqs. 3 to 10)
update        delta_k = (w_L - w) + (w_U - w), with weight r_k
server        w <- w + sum_k r_k delta_k / sum_k r_k
```

and r_k the labelled examples that it used plus the unlabelled ones that got a
pseudo-label, each as often as steps went through it: a client whose steps
repeat few examples weighs as much as one whose steps do not.
`tff_ssl.TwoExperts` is the second model's objective. Section 5.1
compares it with FedAvg and FedProx with UDA (Xie et al., arXiv 1904.12848) or
FixMatch (Sohn et al., arXiv 2001.07685) at clients, which train on all of their
examples.

No code was published. Where the paper leaves a choice, it is an argument. The
defaults:

* tau = tau' = 16 steps in minibatches of 64: those of the grouping paper, so
  that both are compared at equal work;
* plain SGD, as Eqs. 1 and 9 are written, with learning rate 0.1, at which
  supervised FedAvg on EMNIST is as good as with momentum (results/fedlabel.md);
* beta = 0.5, since Figure 10 finds 0.3 to 0.5 best; lambda_0 = 1, at which Eq.
  7 is the ratio of the confidences;
* psi is what `views` has for a strong view. Section 5.2 speaks of 10 operations
  at strength 1, the text below Eq. 5 of one at 10: both are
  `tff_ssl.rand_augment_views`, behind mirror and crop. The runner
  takes the latter, since it stands beside the formula;
* w_L is trained on the weak view of `views`, mirrored and cropped, as FixMatch
  trains on labels: the paper does not say. Views without a crop make it
  plainer, for psi too;
* both experts see the example as it is, which is x in Eq. 3;
* Eq. 8 divides by all unlabelled examples, and one that fails the threshold
  adds nothing, since it has no label to be trained on or
  agreed with;
* the number of rounds is not in the paper either: the recipes' 500, and 200 for
  few clients, are ours.

Moving statistics of batch normalisation are not added up: the sum of two
changes may overshoot (a negative variance), so the client sends their mean,
weighted by the examples that each training processed.
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments, without
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.objectives.wrappers import PROXIMAL_STRENGTH
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, randomness, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging


_CLIENT_TRAINING = TrainingPlan(batch_size=64, steps=16)


def _add_changes(start, local, second):
  """Returns the start with both changes; of moving statistics, their mean."""
  share = tf.math.divide_no_nan(
    second.num_examples, local.num_examples + second.num_examples
  )
  return tff.learning.models.ModelWeights(
    tf.nest.map_structure(
      lambda w, a, b: a + (b - w),
      start.trainable,
      local.weights.trainable,
      second.weights.trainable,
    ),
    tf.nest.map_structure(
      lambda a, b: a + tf.cast(share, a.dtype) * (b - a),
      local.weights.non_trainable,
      second.weights.non_trainable,
    ),
  )


@tff_arguments.taken
def build_fedlabel(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  unlabelled_steps: int | None = None,
  client_weighting: str = 'examples',
  class_weights: tuple[float, ...] | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds FedLabel.

  A client without labelled examples has the global model for a local one; one
  without unlabelled examples sends its local model's change alone.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation; its strong view is psi of Eq. 5.
    client_objective: Of the second model; by default
      `tff_ssl.TwoExperts(views)`, which says what the paper leaves open.
    client_training: How a client trains on labelled examples, tau steps; by
      default 16 of plain SGD (Eqs. 1 and 9) on minibatches of 64, with the
      learning rate 0.1, which the paper does not tell. The second model trains
      in the same way. Each kind of steps has its own clock for a schedule.
    server_optimizer: By default SGD with learning rate 1. One of 1/2 takes the
      mean of a client's two changes in the place of their sum.
    unlabelled_steps: tau', steps of the second model; by default tau.
    client_weighting: 'examples' (r_k) or 'uniform'.
    class_weights: d positive factors of the labelled steps' loss by class; by
      default 1.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  check_arguments(_STEPS, locals())

  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_sgdm(0.1)
  )
  if plan.epochs is not None:
    raise ValueError(
      f'client_training has epochs={plan.epochs}, but FedLabel counts steps of '
      'either kind: give steps (tau), and unlabelled_steps where they differ.'
    )
  labelled = templates.LocalTraining(
    model,
    objectives.Supervised(views, class_weights=class_weights),
    plan,
    templates.Selection('labelled'),
  )
  unlabelled = templates.LocalTraining(
    model,
    client_objective or objectives.TwoExperts(views),
    dataclasses.replace(plan, steps=unlabelled_steps or plan.steps),
    templates.Selection('unlabelled'),
  )

  def train(task):
    local = labelled.run_task(task)
    second = unlabelled.run_task(
      task,
      seed=randomness.fold_in(task.client_seed, randomness.Purpose.UNLABELLED),
      anchors=objectives.Experts(task.weights, local.weights),
    )
    return local._replace(
      weights=_add_changes(task.weights, local, second),
      metrics=collections.OrderedDict({**local.metrics, **second.metrics}),
      num_examples=local.num_examples + second.metrics['mask_rate'][0],
      passes=local.passes + second.passes,
    )

  return averaging.compose(
    labelled,
    train=train,
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
  )


_STEPS = (
  Setting(
    'labelled_steps',
    int,
    'tau, labelled steps in a round.',
    at_least=1,
    argument='client_training.steps',
    group='client training',
  ),
  Setting(
    'unlabelled_steps',
    int,
    "tau', unlabelled steps in a round; by default `labelled_steps`.",
    at_least=1,
    optional=True,
    group='client training',
  ),
)


# The share of labels that Table 2 hides.
FEW_LABELS = {'mask_ratio': 0.8}
# What all its rows have in common.
_COMPARED = {
  **FEW_LABELS,
  # One strong view for all that it compares.
  'augmentation': 'rand_augment_1_10',
  # Plain SGD, as in its Eqs. 1 and 9.
  'learning_rate': 0.1,
  'momentum': 0.0,
  'weight_decay': 0.0,
}


def consistency_at_clients(
  name: str, description: str, loss: str, *, source: str, **defaults
) -> ProcessSpec:
  """Returns the entry of FedAvg with a loss on unlabelled examples beside.

  Args:
    name: Of the process.
    description: See `Choice`.
    loss: `unlabelled_loss` of `tff_ssl.SemiSupervised`.
    source: Where the method is defined.
    **defaults: Beside those that all have, of settings by name. With one of
      `proximal_strength` it is FedProx.
  """
  return ProcessSpec(
    name,
    description,
    fed_avg.build_fed_avg,
    (
      *(shared.CLIENT_WEIGHTING, shared.LABELLED_BATCH_SIZE, *shared.LOCAL),
      *without(
        objectives.SemiSupervised.settings,
        'unlabelled_loss',
        '' if loss == 'uda' else 'temperature',
      ),
      *((PROXIMAL_STRENGTH,) if PROXIMAL_STRENGTH.name in defaults else ()),
    ),
    source=source,
    needs=Needs(labels_at='clients', unlabelled=True),
    fixed={
      'unlabelled_loss': loss,
      # Masks are redrawn for a supervised objective alone.
      'redrawn_mask_ratio': None,
    },
    objective=objectives.SemiSupervised,
    defaults={
      **_COMPARED,
      'threshold': 0.95,
      # As many steps as FedLabel takes of each kind.
      'local_steps': 16,
      **defaults,
    },
    makes_pseudo_labels=True,
  )


def _baseline(average, method):
  """Returns the entry of a method that Section 5.1 compares with."""
  papers = {'UDA': 'arXiv 1904.12848', 'FixMatch': 'arXiv 2001.07685'}
  return consistency_at_clients(
    f'{average.lower()}_{method.lower()}',
    f'{average} with {method} at clients, some of whose examples have labels.',
    'uda' if method == 'UDA' else 'crl',
    source='Cho et al. 2023, arXiv 2307.08809, Section 5.1 (baselines); '
    + papers[method],
    # The builder's 0 is FedAvg.
    **({'proximal_strength': 0.01} if average == 'FedProx' else {}),
    **({'threshold': 0.8} if method == 'UDA' else {}),
  )


SPECS = (
  ProcessSpec(
    'fedlabel',
    'FedLabel: local or global model, the surer one, makes pseudo-labels.',
    build_fedlabel,
    (
      *objectives.TwoExperts.settings,
      shared.BATCH_SIZE,
      *_STEPS,
      shared.SERVER_LEARNING_RATE,
      shared.CLIENT_WEIGHTING,
      CLASS_WEIGHTS,
    ),
    source='Cho et al. 2023, arXiv 2307.08809, Algorithm 1',
    needs=Needs(labels_at='clients', unlabelled=True),
    objective=objectives.TwoExperts,
    # The server adds the mean update as it is.
    server_optimizer=lambda server_learning_rate=1.0: (
      optimizers.build_server_sgd(server_learning_rate)
    ),
    defaults=_COMPARED,
    makes_pseudo_labels=True,
    has_gradient_diversity=False,
  ),
  *(
    _baseline(average, method)
    for average in ('FedAvg', 'FedProx')
    for method in ('UDA', 'FixMatch')
  ),
  consistency_at_clients(
    'fedavg_fixmatch_received',
    'FedAvg with FixMatch at clients, labelled by the model that they receive.',
    'received',
    source='A baseline of Liu et al. 2025, arXiv 2503.13227; arXiv 2001.07685',
  ),
)
