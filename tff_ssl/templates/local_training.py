"""The local training loop: the one place where weights meet examples.

Clients, the server and central training all run this loop. A
`tff_ssl.TrainingPlan` says by which steps, a `LocalTraining` adds the model and
what is minimised.

The loop is one compiled `tf.while_loop` over minibatches that are cut out of
tensors. With small models, operations cost more than arithmetic, and so there
are few of them in a step.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols, randomness
from tff_ssl.models import functional, structures
from tff_ssl.plans import TrainingPlan
from tff_ssl.templates import client_task, minibatches, prediction

ModelWeights: TypeAlias = tff.learning.models.ModelWeights


class ObjectiveGradient(NamedTuple):
  """What a call of an objective gives, with the new non-trainable weights.

  The gradient is in the structure of the trainable weights; of the passes see
  `prediction.Predictor.passes`.
  """

  gradient: protocols.Structure
  metrics: Mapping[str, Any]
  non_trainable: protocols.Structure
  passes: tf.Tensor


def objective_gradient(
  model: functional.FunctionalModel,
  objective: protocols.Objective,
  weights: tff.learning.models.ModelWeights,
  batch: collections.OrderedDict[str, Any],
  anchors: protocols.Structure,
  seed: tf.Tensor,
) -> ObjectiveGradient:
  """Calls an objective (`protocols.Objective`) and differentiates its loss."""
  with tf.GradientTape() as tape:
    tape.watch(weights.trainable)
    predict = prediction.Predictor(
      model, weights.trainable, weights.non_trainable
    )
    loss, metrics = objective(predict, batch, anchors, seed)
  # Those of the outputs are computed on the way to those of the weights.
  gradient, of_outputs = tape.gradient(
    loss, (weights.trainable, predict.outputs)
  )
  gradient = tf.nest.map_structure(_as_tensor, weights.trainable, gradient)
  return ObjectiveGradient(
    gradient, metrics, predict.non_trainable, predict.passes(of_outputs)
  )


def _as_tensor(weight, gradient):
  """Returns a gradient of which nothing is left out."""
  if gradient is None:
    return tf.zeros_like(weight)
  # That of an embedding has the rows of those words alone that occur.
  return tf.convert_to_tensor(gradient)


def full_gradient(
  model: functional.FunctionalModel,
  objective: protocols.Objective,
  weights: ModelWeights,
  examples: collections.OrderedDict[str, tf.Tensor],
  *,
  batch_size: int,
  seed: tf.Tensor,
  with_labelled: bool = False,
  constants: collections.OrderedDict[str, tf.Tensor] | None = None,
) -> protocols.Structure:
  """Returns the mean gradient over all examples, in one compiled loop.

  Zhang et al. (arXiv 2008.11364), Definition 1, call it "the gradient of w_k
  evaluated on all data held by the k-th user". Each example is seen once, in
  train mode and at the same weights. The order of examples is random; it
  matters with batch normalisation only. The gradients of minibatches are
  weighted by their numbers of examples. This is exact for objectives that are
  means over the minibatch: CRL is one, and the supervised objective is one if
  every example has a label.

  The objective's anchors are `weights`; where it wants a second minibatch
  (`with_labelled`), that has the examples of the first that have a label. The
  seed may be that of the participant's training, which draws other numbers with
  it. Minibatches carry the `constants`, and 0 as `step`. Without examples the
  gradient is zero.
  """
  seed = randomness.fold_in(seed, randomness.Purpose.FULL_GRADIENT)
  of_order, of_batches = (randomness.fold_in(seed, i) for i in range(2))
  size = tf.shape(examples['y'])[0]
  order = tf.random.experimental.stateless_shuffle(tf.range(size), of_order)

  # A function of its own, as the training loop's step is and for its reason.
  @tf.function(autograph=False, experimental_attributes={'_noinline': True})
  def batch_gradient(weights, batch, seed):
    return objective_gradient(
      model, objective, weights, batch, weights, seed
    ).gradient

  def body(step, mean):
    indices = order[step * batch_size : (step + 1) * batch_size]
    batch = minibatches.gather(examples, indices)
    if with_labelled:
      batch['labelled'] = minibatches.gather(
        batch, tf.where(batch['y'] >= 0)[:, 0]
      )
    # No step of a training: the gradient is that of the weights before them.
    batch.update(constants or {}, step=tf.constant(0))
    gradient = batch_gradient(
      weights, batch, randomness.fold_in(of_batches, step)
    )
    share = tf.size(indices) / size
    mean = tf.nest.map_structure(
      lambda total, part: total + tf.cast(share, part.dtype) * part,
      mean,
      gradient,
    )
    return step + 1, mean

  weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
  num_batches = -(-size // batch_size)
  _, mean = tf.while_loop(
    lambda step, _: step < num_batches,
    body,
    (
      tf.constant(0),
      tf.nest.map_structure(tf.zeros_like, weights.trainable),
    ),
  )
  return mean


class LocalTraining:
  """How one participant trains: what is minimised, and by which steps."""

  def __init__(
    self,
    model: functional.FunctionalModel,
    objective: protocols.Objective,
    plan: TrainingPlan,
    selection: minibatches.Selection | None = None,
  ):
    """Initializes the training; a plan that does not fit is a `ValueError`.

    The plan names the optimizer and either steps or epochs, and a batch size
    unless minibatches are whole sets. Where the objective needs a second
    minibatch, that one is by default as large as the first. By default the
    examples are those that the objective asks for (its `rows`).
    """
    if selection is None:
      selection = minibatches.Selection(getattr(objective, 'rows', 'all'))
    if plan.redrawn_mask_ratio:
      selection = dataclasses.replace(
        selection, redrawn_mask_ratio=plan.redrawn_mask_ratio
      )
    if getattr(objective, 'needs_labelled_batch', False):
      size = plan.labelled_batch_size or plan.batch_size
      plan = dataclasses.replace(plan, labelled_batch_size=size)
    elif plan.labelled_batch_size is not None:
      raise ValueError(
        f'labelled_batch_size={plan.labelled_batch_size} has no effect on '
        f'{type(objective).__name__}, which reads no second minibatch: '
        'leave it out. An objective of your own that reads batch["labelled"] '
        'has the attribute needs_labelled_batch = True.'
      )
    plan.check_schedule()
    self.model = model
    self.objective = objective
    self.plan = plan
    self.selection = selection
    self._minibatches()  # Refuses what does not fit.

  def _minibatches(self) -> minibatches.Minibatches:
    plan = self.plan
    return minibatches.Minibatches(
      plan.batch_size,
      plan.steps,
      plan.epochs,
      plan.epoch_batches or 'separate',
      self.selection,
    )

  @property
  def metric_names(self) -> tuple[str, ...]:
    """Names of the metrics that `run` reports."""
    return tuple(self.objective.metric_names)

  def initial_optimizer_state(self) -> protocols.OptimizerState:
    """Returns a fresh optimizer state (tensors)."""
    return self.plan.optimizer.initialize(self.model.weights_spec.trainable)

  def initial_hparams(self) -> protocols.Hparams:
    """Returns the optimizer's hyperparameters, an ordered dict of tensors."""
    return self.plan.optimizer.get_hparams(self.initial_optimizer_state())

  def run(
    self,
    start: ModelWeights,
    examples: collections.OrderedDict[str, tf.Tensor],
    *,
    seed: tf.Tensor,
    round_num: tf.Tensor,
    optimizer_state: protocols.OptimizerState | None = None,
    hparams: protocols.Hparams | None = None,
    active: tf.Tensor | bool = True,
    anchors: protocols.Structure | None = None,
    constants: collections.OrderedDict[str, tf.Tensor] | None = None,
    work: tf.Tensor | None = None,
  ) -> client_task.TrainingResult:
    """Trains from `start` on `examples`.

    Args:
      start: `ModelWeights` of tensors.
      examples: Tensors with a leading dimension n (`client_data.collect`). With
        n = 0 nothing is trained.
      seed: `int32 [2]`.
      round_num: `int32` scalar, the number of rounds before this one.
      optimizer_state: State to go on from; by default a fresh one.
      hparams: Optimizer hyperparameters to set before the first step.
      active: Whether to train at all; a `bool` scalar, maybe a tensor.
      anchors: What the objective compares with; by default `start`.
      constants: Tensors of this participant that every minibatch carries beside
        its examples, such as FedUL's `class_priors`. Examples have no tensors
        of these names.
      work: `int32` scalar, the share of the steps that is taken, in percent,
        rounded up to whole steps; by default all.
    """
    plan = self.plan
    if optimizer_state is None:
      optimizer_state = self.initial_optimizer_state()
    if hparams is not None:
      optimizer_state = plan.optimizer.set_hparams(optimizer_state, hparams)
    base_rate = plan.learning_rate(optimizer_state)

    batches = self._minibatches().draw(examples['y'], seed)
    num_steps = tf.where(active, batches.num_steps, 0)
    if work is not None:
      num_steps = -(-num_steps * work // 100)
    labelled = None
    if plan.labelled_batch_size is not None:
      labelled = minibatches.draw_labelled(
        examples['y'], plan.labelled_batch_size, batches.num_steps, seed
      )
    anchors = start if anchors is None else anchors
    take_step = self._build_step(anchors)
    surveyed, passes = self._survey(anchors, examples, seed, active)
    constants = collections.OrderedDict(constants or {}, **surveyed)

    def body(step, weights, state, totals):
      batch = batches.cut(examples, step)
      if labelled is not None:
        batch['labelled'] = labelled.cut(examples, step)
      batch.update(constants, step=step)
      state = plan.at_step(state, base_rate, round_num, step)
      step_seed = randomness.fold_in(
        randomness.fold_in(seed, randomness.Purpose.STEP), step
      )
      weights, state, sums = take_step(weights, state, batch, step_seed)
      return step + 1, weights, state, totals + sums

    _, weights, optimizer_state, totals = tf.while_loop(
      lambda step, *_: step < num_steps,
      body,
      (
        tf.constant(0),
        tf.nest.map_structure(tf.convert_to_tensor, start),
        optimizer_state,
        tf.zeros([2 + len(self.metric_names), 2]),
      ),
    )
    if base_rate is not None:
      optimizer_state = plan.with_learning_rate(optimizer_state, base_rate)
    metrics = collections.OrderedDict(
      zip(self.metric_names, tf.unstack(totals[2:]), strict=True)
    )
    return client_task.TrainingResult(
      weights,
      optimizer_state,
      metrics,
      totals[0, 0],
      tf.add_n([totals[1], *passes]),
      num_steps=num_steps,
    )

  def _survey(self, anchors, examples, seed, active=True):
    """Returns what the objective makes of all examples, and the passes."""
    survey = getattr(self.objective, 'survey', None)
    passes: list[tf.Tensor] = []
    if survey is None:
      return {}, passes

    def probabilities(x):
      passes.append(prediction.forward_passes(x))
      return prediction.probabilities(self.model, anchors, x)

    # Who does not train needs none.
    count = tf.where(active, structures.size(examples), 0)
    examples = structures.rows(self.selection.of(examples), 0, count)
    of_survey = randomness.fold_in(seed, randomness.Purpose.PSEUDO_LABEL)
    return survey(probabilities, examples, of_survey), passes

  def run_task(
    self, task: client_task.ClientTask, **more: Any
  ) -> client_task.TrainingResult:
    """Trains on a client's task, from the weights that the client was sent.

    The task gives most arguments of `run`; `more` are further ones, or others
    in the place of the task's.
    """
    arguments = {
      'start': task.weights,
      'examples': task.examples,
      'seed': task.client_seed,
      'round_num': task.round,
      'optimizer_state': task.optimizer_state,
      'hparams': task.hparams,
      'constants': task.constants,
      'work': task.work,
    }
    return self.run(**{**arguments, **more})

  def full_gradient(
    self,
    weights: ModelWeights,
    examples: client_task.Examples,
    *,
    seed: tf.Tensor,
    constants: collections.OrderedDict[str, tf.Tensor] | None = None,
  ) -> protocols.Structure:
    """Returns the `full_gradient` of what this training minimises."""
    surveyed, _ = self._survey(weights, examples, seed)
    return full_gradient(
      self.model,
      self.objective,
      weights,
      self.selection.of(examples),
      batch_size=self.plan.batch_size,
      seed=seed,
      with_labelled=self.plan.labelled_batch_size is not None,
      constants=collections.OrderedDict(constants or {}, **surveyed),
    )

  def _build_step(self, anchors):
    """Returns the compiled step; weights and batch are its arguments."""

    # As a function of its own the step keeps the graph optimiser from choosing
    # the slow kernel of MaxPoolGrad, which it does for some loops over tensors.
    @tf.function(autograph=False, experimental_attributes={'_noinline': True})
    def take_step(weights, state, batch, seed):
      result = objective_gradient(
        self.model, self.objective, weights, batch, anchors, seed
      )
      state, trainable = self.plan.optimizer.next(
        state, weights.trainable, result.gradient
      )
      size = tf.cast(tf.shape(batch['y'])[0], tf.float32)
      sums = tf.stack(
        [tf.stack([size, size]), result.passes]
        + [tf.stack(result.metrics[name]) for name in self.metric_names]
      )
      new_weights = ModelWeights(trainable, result.non_trainable)
      return new_weights, state, sums

    return take_step
