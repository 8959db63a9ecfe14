"""SCAFFOLD: control variates against the drift of clients.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning (arXiv 1910.06378), Algorithm 1. The server has a control c, and each
client i one of its own, c_i, which stays with it; all are 0 at first. In a
round of the clients S, out of N,

```math
client    y_i <- y_i - eta (g_i(y_i) - c_i + c),  K steps from y_i = x
          c_i^+ = g_i(x), over all its examples              (option I)
          c_i^+ = c_i - c + (x - y_i) / (K eta)              (option II)
server    x <- x + eta_g mean_S(y_i - x)
          c <- c + |S| / N mean_S(c_i^+ - c_i)
```

The correction c - c_i enters as the linear term <c - c_i, w> of the objective
(`tff_ssl.Corrected`). So the one training loop knows nothing of it,
and it goes with any objective, optimizer and proximal term.

For option II with momentum or a schedule, K eta is the length that gradients
are multiplied with in a round (`tff_ssl.templates.effective_steps`), so that
c_i+ is still a mean of the client's gradients.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import averaging, effective_steps


def _local_update(training, control_update):
  """Returns what a client does: its corrected steps, then its new control."""
  new_control = {
    'from_steps': _from_steps,
    'full_gradient': _full_gradient,
  }[control_update]
  corrected = templates.LocalTraining(
    training.model,
    objectives.Corrected(training.objective),
    training.plan,
    training.selection,
  )

  def train(task):
    own = task.client_state
    correction = tf.nest.map_structure(tf.subtract, task.shared_state, own)
    result = corrected.run_task(
      task, anchors=objectives.Correction(task.weights, correction)
    )
    new = tf.cond(
      result.num_steps > 0,
      lambda: new_control(training, task, result, correction),
      # Without examples there is no gradient to learn a control from.
      lambda: own,
    )
    return result._replace(
      client_state=new,
      shared_change=tf.nest.map_structure(tf.subtract, new, own),
    )

  return train


def _full_gradient(training, task, result, correction):
  """Returns the new control by option I."""
  del result, correction
  return training.full_gradient(
    task.weights,
    task.examples,
    seed=task.client_seed,
    constants=task.constants,
  )


def _from_steps(training, task, result, correction):
  """Returns the new control by option II; the old one at learning rate 0."""
  rate = task.hparams['learning_rate']
  length = rate * effective_steps.effective_steps(
    training.plan, result.num_steps, task.round, task.hparams
  )
  return tf.nest.map_structure(
    lambda own, difference, start, end: tf.where(
      length > 0,
      tf.math.divide_no_nan(start - end, length) - difference,
      own,
    ),
    task.client_state,
    correction,
    task.weights.trainable,
    result.weights.trainable,
  )


@tff_arguments.taken
def build_scaffold(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  client_state_dir: str,
  control_update: str = 'from_steps',
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = fed_avg.CLIENT_TRAINING,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds SCAFFOLD.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`, with N,
      `num_clients`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    client_state_dir: Absolute path of the folder where clients keep their
      controls; see `tff_ssl.templates.client_state`.
    control_update: 'from_steps', option II, or 'full_gradient', option I, one
      more pass over the client's examples, which is not among the passes that
      it reports.
    client_objective: As in `build_fed_avg`.
    client_training: How a client trains; by default 16 steps of plain SGD, as
      in Algorithm 1, on minibatches of 64, with the learning rate 0.03.
      Momentum starts afresh every round; other optimizers than SGD go with
      'full_gradient' alone, and `redrawn_mask_ratio` with 'from_steps'.
    server_optimizer: By default SGD with learning rate 1, which is eta_g.
    client_weighting: 'uniform', as in Algorithm 1, or 'examples' (as in
      `build_fed_avg`), which then weigh both means.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator is for the models alone, as in `build_fed_avg`; changes of
      controls are summed in the clear, so that private and secure aggregators
      are refused.

  Returns:
    A `tff.learning.templates.LearningProcess`; c is `client_work['shared']` of
    its state.

  Raises:
    ValueError: If an argument is out of range, or the client optimizer does not
      go with `control_update`.
    TypeError: If model and client data do not fit each other.
  """
  CONTROL_UPDATE.check(control_update)
  num_clients = data_spec.checked_num_clients
  training = fed_avg.build_training(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective,
    client_training=client_training.over(
      fed_avg.CLIENT_TRAINING,
      optimizer=tff.learning.optimizers.build_sgdm(0.03),
    ),
  )
  if control_update == 'from_steps':
    effective_steps.check_optimizer(
      training.plan.optimizer, "control_update='from_steps'"
    )
  elif ratio := training.plan.redrawn_mask_ratio:
    raise ValueError(
      f'redrawn_mask_ratio={ratio} hides labels that control_'
      "update='full_gradient' would see: take 'from_steps'."
    )

  def zeros():
    return tf.nest.map_structure(
      lambda spec: tf.zeros(spec.shape, spec.dtype),
      model.weights_spec.trainable,
    )

  def change(control, mean, count):
    # A client that was not there has changed its control by 0.
    return tf.nest.map_structure(
      lambda old, delta: old + count / num_clients * delta, control, mean
    )

  return averaging.compose(
    training,
    train=_local_update(training, control_update),
    data_spec=data_spec,
    client_weighting=client_weighting,
    server=server_optimizer,
    wiring=wiring,
    memories=(
      templates.ClientMemory(client_state_dir, lambda task: zeros()),
      templates.SharedMean(zeros, change),
    ),
  )


CONTROL_UPDATE = Setting(
  'control_update',
  str,
  "How a client's control is renewed: from_steps or full_gradient.",
  choices=('from_steps', 'full_gradient'),
  needed_by='SCAFFOLD, options I and II',
)


def _check(values):
  """Raises `ValueError` where a gradient would see hidden labels."""
  if (
    values.get('mask') == 'redrawn'
    and values.get('control_update') == 'full_gradient'
  ):
    raise ValueError(
      '`control_update=full_gradient` would see the labels that `mask=redrawn` '
      'hides: choose `control_update=from_steps`, or `mask=fixed`.'
    )


SPEC = ProcessSpec(
  'scaffold',
  'Supervised SCAFFOLD, controls against drift, all labels at clients.',
  build_scaffold,
  (
    CONTROL_UPDATE,
    shared.SERVER_LEARNING_RATE,
    shared.CLIENT_WEIGHTING,
    CLASS_WEIGHTS,
    *shared.LOCAL,
  ),
  source='Karimireddy et al. 2020, arXiv 1910.06378, Algorithm 1',
  needs=Needs(labels_at='clients', views='weak', sgd=True),
  objective=objectives.Supervised,
  server_optimizer=lambda server_learning_rate=1.0: optimizers.build_server_sgd(
    server_learning_rate
  ),
  # Algorithm 1 has neither momentum nor other weights. At a rate of 0.1 it
  # learns faster on digits, and diverges after 60 rounds.
  defaults={'momentum': 0.0},
  check=_check,
  has_gradient_diversity=False,
)
