"""SSJO: classifier and proxy task are trained jointly on one encoder.

Hegde et al., "Label Hungry? Not Anymore: Towards Federated Semi-supervised
Learning", Methods 2 and Figure 4. A client's minibatches are all labelled or
all unlabelled, drawn at random; a labelled one trains both heads, an unlabelled
one the proxy task's head alone, and both the encoder. The server averages as in
FedAvg.

The method is not among the authors' published code, and the paper leaves two
things open. Which share of minibatches is labelled: here the labelled examples'
share of all, or `labelled_batch_probability`. How the losses are weighed: here
1, or `ssjo_loss_weight`. Where a minibatch has no labels, the classifier's
gradient is 0; its momentum goes on all the same, as in any optimizer over one
loss, or rests (`idle_momentum`).
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl.algorithms import label_hungry, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments, condition
from tff_ssl.objectives import proxy_tasks
from tff_ssl.objectives.proxy_tasks import PROXY_TASK
from tff_ssl.objectives.self_supervised import SSJO_LOSS_WEIGHT
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging


@condition('hidden or absent labels')
def _all_labelled(values):
  """Says so where each minibatch has labels."""
  if values.get('mask_ratio') == 0 and not values.get('may_lack_labels'):
    return '`mask_ratio=0` hides no label'
  return None


SETTINGS = (
  *label_hungry.SETTINGS,
  PROXY_TASK,
  SSJO_LOSS_WEIGHT,
  Setting(
    'labelled_batch_probability',
    float,
    'Probability of a labelled minibatch, in [0, 1]; by default the labelled '
    "examples' share of the client's.",
    at_least=0,
    at_most=1,
    optional=True,
    used_when=(_all_labelled,),
  ),
  Setting(
    'idle_momentum',
    str,
    'Weights that get no gradient in a step: momentum carries them on '
    '(coasts), or they and their momentum stay as they are (rests).',
    choices=('coasts', 'rests'),
  ),
)


_CLASSIFIER = (0, 1)

_CLIENT_TRAINING = TrainingPlan(batch_size=20, epochs=10)


@tff_arguments.taken
def build_ssjo(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  proxy_task: proxy_tasks.ProxyTask | None = None,
  ssjo_loss_weight: float = 1.0,
  labelled_batch_probability: float | None = None,
  redrawn_mask_ratio: float | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  idle_momentum: str = 'coasts',
  client_momentum: str = 'reset',
  client_weighting: str = 'examples',
  class_weights: tuple[float, ...] | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds SSJO-FedAvg.

  The global weights are those of the model with the proxy task's head behind
  its own; `get_model_weights` gives the model's alone, the classifier.

  Args:
    model: A classifier that `tff_ssl.join` made of an encoder and a head.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation; `tff_ssl.augmentation.PlainViews()` is the paper's.
    proxy_task: A `tff_ssl.ProxyTask`; by default `tff_ssl.Reconstruction()`.
    ssjo_loss_weight: Weight of the proxy task's loss, >= 0.
    labelled_batch_probability: Of a labelled minibatch, in [0, 1]; by default
      the labelled examples' share of the client's.
    redrawn_mask_ratio: If given, the share of a client's labels that is hidden,
      others in each pass; one is left.
    client_training: How a client trains; by default the paper's SGD with
      learning rate 0.001 and momentum 0.99, on minibatches of 20. `epochs`,
      by default 10, stands for as many steps as so many passes over all of the
      client's examples take. `tff_ssl.exponential`, a schedule, decays over
      rounds, which the paper proposes against oscillation.
    server_optimizer: By default SGD with learning rate 1.
    idle_momentum: What a step does to weights that get no gradient in it:
      'coasts', momentum carries them on, or 'rests', neither they nor their
      momentum change (`tff_ssl.optimizers.rest_without_gradient`).
    client_momentum: 'reset', 'slot' or 'mean'; see
      `tff_ssl.algorithms.fed_avg`.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    class_weights: d positive factors of the classifier's loss by class; by
      default 1.
    wiring: Distributor, aggregators and seed; see `tff_ssl.Wiring`.

  Returns:
    A `tff.learning.templates.LearningProcess`. Clients report `loss` and
    `accuracy` on labelled examples, and `proxy_loss` on all.

  Raises:
    ValueError: If an argument is out of range, or proxy task, encoder and views
      do not fit each other.
    TypeError: If the model has no encoder of its own, or does not fit the
      client data.
  """
  check_arguments(SETTINGS, locals())
  data_spec.check_model(model)
  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=tff.learning.optimizers.build_sgdm(0.001, 0.99)
  )
  if idle_momentum == 'rests':
    plan = dataclasses.replace(
      plan, optimizer=optimizers.rest_without_gradient(plan.optimizer)
    )
  task = proxy_task or proxy_tasks.Reconstruction()
  joint = proxy_tasks.add_head(model, task, views)
  training = templates.LocalTraining(
    joint,
    objectives.JointlyOptimized(views, task, ssjo_loss_weight, class_weights),
    plan,
    templates.Selection(
      'either', labelled_batch_probability, redrawn_mask_ratio
    ),
  )

  return averaging.compose(
    training.run_task,
    model=joint,
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    client_weighting=client_weighting,
    server_optimizer=server_optimizer,
    wiring=wiring,
    memories=templates.client_momentum(
      client_momentum, data_spec, training.initial_optimizer_state
    ),
    view=templates.ModelView(
      lambda weights: joint.take(weights, _CLASSIFIER),
      lambda weights, present: joint.put(present, _CLASSIFIER, weights),
    ),
  )


SPEC = ProcessSpec(
  'ssjo',
  'Classifier and self-supervised task trained jointly, FedAvg.',
  build_ssjo,
  SETTINGS,
  source=f'{label_hungry.PAPER}, Methods 2 and Figure 4',
  needs=Needs(labels_at='clients', views='none', unlabelled=True, encoder=True),
  defaults=label_hungry.DEFAULTS,
  has_gradient_diversity=False,
)
