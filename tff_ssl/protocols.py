"""What the parts of a round ask of each other.

A user's own objective or views need not inherit from anything of this library:
whatever has these attributes and methods will do.
"""

import collections
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
  import tensorflow as tf

  from tff_ssl.templates.prediction import Predictor

# A structure of tensors, nested as `tf.nest` knows it.
Structure = Any
# The state of an optimizer: a structure that the optimizer alone knows.
OptimizerState = Any
# Hyperparameters of an optimizer, by name.
Hparams = collections.OrderedDict[str, Any]
# For each name two numbers, numerator and denominator of the metric, as a
# tensor `float32 [2]` or a pair of scalars.
Metrics = collections.OrderedDict[str, Any]


class Objective(Protocol):
  """What a participant minimises.

  An objective may have an attribute `rows`, which says which examples it is
  given unless `LocalTraining` is told otherwise: 'all', the default, or
  'labelled', those with `y >= 0`
  (`tff_ssl.templates.minibatches.Selection`). One that reads the second
  minibatch `labelled` has the attribute `needs_labelled_batch = True`; others
  are not given one.

  One that has a use for all examples before the first step has a method
  `survey(probabilities, examples, seed)`. It is called with a function from
  inputs `[n, ...]` to the probabilities `float32 [n, d]` of the anchors, which
  are `ModelWeights` then, at inference; with the tensors of the examples; and
  with a seed, `int32 [2]`. It returns a mapping of tensors, which every
  minibatch carries beside the constants.

  Attributes:
    metric_names: Names of the metrics that it reports.
  """

  @property
  def metric_names(self) -> tuple[str, ...]:
    """Names of the metrics that it reports."""

  def __call__(
    self,
    predict: 'Predictor',
    batch: 'collections.OrderedDict[str, tf.Tensor]',
    anchors: Structure,
    seed: 'tf.Tensor',
  ) -> 'tuple[tf.Tensor, Mapping[str, tuple[tf.Tensor, tf.Tensor]]]':
    """Computes the loss of a minibatch.

    Args:
      predict: The model at the present weights.
      batch: Tensors `x` and `y` of the examples and maybe `true_y`. Beside
        them: `step`, an `int32` scalar, the steps before this one in this local
        training; the constants of the participant, such as `class_priors` and
        `set_shares`; and `labelled`, a second minibatch of labelled examples,
        if the objective has `needs_labelled_batch = True`.
      anchors: What the objective compares with: the `ModelWeights` that
        training started from, unless the page gives something else.
      seed: `int32 [2]`, another one in each step.

    Returns:
      The loss, a scalar, and for each of `metric_names` a pair of scalars,
      numerator and denominator.
    """


class Views(Protocol):
  """Augmentation: what a model sees of examples.

  `tff_ssl.ImageViews` and `PlainViews` are implementations. The
  methods take examples `[n, ...]` as clients hold them, where n may be unknown,
  and return as many `float32` inputs of the model. The same seed gives the same
  views; the draws of `weak` and `strong` with one seed are independent.
  """

  def plain(self, examples: 'tf.Tensor') -> 'tf.Tensor':
    """Returns the examples as they are, normalised."""

  def weak(self, examples: 'tf.Tensor', seed: 'tf.Tensor') -> 'tf.Tensor':
    """Returns slightly changed examples; the seed is integers `[2]`."""

  def strong(self, examples: 'tf.Tensor', seed: 'tf.Tensor') -> 'tf.Tensor':
    """Returns strongly changed examples; the seed is integers `[2]`."""
