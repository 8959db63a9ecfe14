"""Proxy tasks, which need no labels, and objectives with them: SSPT, SSJO.

A proxy task makes inputs and targets out of a batch, brings the head that
predicts them, and says how wrong a prediction is. Source of reconstruction as a
proxy task in federated learning, and of both objectives: Hegde et al., "Label
Hungry? Not Anymore: Towards Federated Semi-supervised Learning", Figures 3 and
4; of rotations: Gidaris et al., arXiv 1803.07728.
`examples/own_proxy_task.py` adds another one.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import types
from collections.abc import Mapping

import numpy as np
from etils import epy

from tff_ssl import checks, protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives.supervised import CLASS_WEIGHTS, Checked

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import dense, functional, split, structures
  from tff_ssl.objectives import losses

# Quarter turns of an image.
_TURNS = 4

RECONSTRUCTION_LOSSES = ('binary_crossentropy', 'linear_mean_squared_error')


class ProxyTask(abc.ABC):
  """A task whose targets come from the examples themselves."""

  @abc.abstractmethod
  def build_head(
    self, num_features: int, input_shape: tuple[int, ...]
  ) -> tf.keras.Model:
    """Returns a head for features `float32 [batch, num_features]`.

    Args:
      num_features: Of the encoder.
      input_shape: Of one example.
    """

  @abc.abstractmethod
  def make(self, x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns inputs for the encoder and targets for the head.

    Args:
      x: `float32 [n, ...]`, examples as the model sees them, or `int32` where
        they are the numbers of words. To return it as the inputs saves a pass
        of the encoder where another head needs its features, too.
      seed: `int32 [2]`.

    Returns:
      Inputs `[m, ...]` of the type of `x` and targets with a first dimension m;
      m may differ from n.
    """

  @abc.abstractmethod
  def losses(self, outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each prediction, `float32 [m]`.

    Args:
      outputs: The head's.
      targets: From `make`.
    """

  def check_views(self, views, input_shape: tuple[int, ...]) -> None:
    """Raises `ValueError` if examples of these views do not suit the task.

    Args:
      views: Augmentation, as `tff_ssl.PlainViews`.
      input_shape: Of one example.
    """
    del views, input_shape


@dataclasses.dataclass(frozen=True)
class Reconstruction(ProxyTask):
  """To give the example back: an autoencoder.

  Attributes:
    loss: Of an example, the mean over its pixels or features.
      'binary_crossentropy' between pixels in [0, 1] (the label-hungry paper's):
      the decoder's outputs are logits, their sigmoid is the image. Or
      'linear_mean_squared_error', for features of any size: the decoder's
      outputs are the features themselves.
  """

  loss: str = 'binary_crossentropy'

  def __post_init__(self):
    checks.choice(RECONSTRUCTION_LOSSES, loss=self.loss)

  def build_head(self, num_features, input_shape):
    return dense.dense_decoder(num_features, input_shape)

  def make(self, x, seed):
    del seed
    return x, x

  def losses(self, outputs, targets):
    if not outputs.shape.is_compatible_with(targets.shape):
      raise ValueError(
        f'The head gives images of shape {outputs.shape[1:]}, but examples '
        f'have {targets.shape[1:]}: build it for these.'
      )
    if self.loss == 'linear_mean_squared_error':
      errors = tf.square(outputs - targets)
    else:
      errors = tf.nn.sigmoid_cross_entropy_with_logits(targets, outputs)
    return tf.reduce_mean(errors, axis=tuple(range(1, errors.shape.rank)))

  def check_views(self, views, input_shape):
    if self.loss == 'linear_mean_squared_error':
      return
    extremes = np.stack([np.zeros(input_shape), np.ones(input_shape)])
    x = views.plain(extremes.astype(np.float32))
    low, high = float(tf.reduce_min(x)), float(tf.reduce_max(x))
    if low < 0 or high > 1:
      raise ValueError(
        f'views give pixels from {low:.2f} to {high:.2f}, which no sigmoid '
        'reconstructs: give views that leave them in [0, 1], such as '
        'tff_ssl.PlainViews(); for features that are no pixels, take '
        "loss='linear_mean_squared_error'."
      )


@dataclasses.dataclass(frozen=True)
class Rotation(ProxyTask):
  """To tell by how many quarter turns a square image was rotated.

  One batch holds four copies of each image, one of each turn (Gidaris et al.,
  arXiv 1803.07728, Eqs. 2 and 3; the label-hungry paper's future work).
  """

  def build_head(self, num_features, input_shape):
    if len(input_shape) != 3 or input_shape[0] != input_shape[1]:
      raise ValueError(
        f'proxy_task=Rotation() needs square images, but examples have shape '
        f'{tuple(input_shape)}: choose another task.'
      )
    return dense.linear_head(num_features, _TURNS)

  def make(self, x, seed):
    del seed
    inputs = tf.concat([tf.image.rot90(x, turn) for turn in range(_TURNS)], 0)
    targets = tf.repeat(tf.range(_TURNS), tf.shape(x)[0])
    return inputs, targets

  def losses(self, outputs, targets):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)


@dataclasses.dataclass(frozen=True)
class Words(ProxyTask):
  """To tell which words a text has, without their order.

  The target is the share of a text's words in each bucket: the word of number i
  is in bucket i modulo `buckets`. The loss is the cross-entropy between these
  shares and the softmax of the outputs; that of an empty text is 0.

  Attributes:
    buckets: At least 2. So the head does not grow with the vocabulary.
  """

  buckets: int = 512

  def __post_init__(self):
    checks.integers_at_least(2, buckets=self.buckets)

  def build_head(self, num_features, input_shape):
    del input_shape
    return dense.linear_head(num_features, self.buckets)

  def make(self, x, seed):
    del seed
    is_word = tf.cast(x > 0, tf.float32)
    counts = tf.reduce_sum(
      tf.one_hot(x % self.buckets, self.buckets) * is_word[..., tf.newaxis],
      axis=1,
    )
    return x, counts / tf.maximum(tf.reduce_sum(is_word, 1, keepdims=True), 1)

  def losses(self, outputs, targets):
    return tf.nn.softmax_cross_entropy_with_logits(targets, outputs)

  def check_views(self, views, input_shape):
    try:
      views.plain(np.zeros([1, *input_shape], np.int32))
    except (TypeError, ValueError) as error:
      raise ValueError(
        f'proxy_task={self} needs the numbers of words, which these views do '
        f'not take ({error}): choose another task.'
      ) from error


PROXY_TASKS: Mapping[str, ProxyTask] = types.MappingProxyType(
  {
    'reconstruction': Reconstruction(),
    'reconstruction_of_features': Reconstruction('linear_mean_squared_error'),
    'rotation': Rotation(),
    'words': Words(),
  }
)

PROXY_TASK = Setting(
  'proxy_task',
  str,
  'What encoders learn without labels: reconstruction (binary cross-entropy), '
  'reconstruction_of_features (squared error of numbers that are no pixels), '
  'rotation or words (which words a text has).',
  default='reconstruction',
  choices=tuple(PROXY_TASKS),
  parse=PROXY_TASKS.__getitem__,
  optional=True,
  refused=('by_hand',),
  needed_by="a user's own rows and texts",
)


SSJO_LOSS_WEIGHT = Setting(
  'ssjo_loss_weight',
  float,
  "Weight of the proxy task's loss beside the classifier's.",
  at_least=0,
)


@dataclasses.dataclass(frozen=True)
class SelfSupervised:
  """The mean loss of the proxy task (Figure 3, left).

  For models whose only head is the task's; labels are not read.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    task: The `ProxyTask`.
  """

  views: protocols.Views
  task: ProxyTask

  metric_names = ('proxy_loss',)

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    inputs, targets = self.task.make(x, randomness.fold_in(seed, 1))
    outputs = predict(inputs, seed=randomness.fold_in(seed, 2))
    return _proxy_loss(self.task, outputs, targets)


@dataclasses.dataclass(frozen=True)
class JointlyOptimized(Checked):
  """Cross-entropy of what has a label, and the proxy task on all (Figure 4).

  ```math
  L = L_s(labelled examples) + weight * L_proxy(all examples)
  ```

  For models with two outputs, the classifier's and the task's. Each loss is a
  mean; L_s is 0 in a minibatch without labels, so that gradients come from the
  task's head alone there. The paper leaves the weight open.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    proxy_task: The `ProxyTask`.
    ssjo_loss_weight: Of the task's loss, >= 0.
    class_weights: Of L_s; as in `tff_ssl.Supervised`.
  """

  views: protocols.Views
  proxy_task: ProxyTask = Reconstruction()
  ssjo_loss_weight: float = 1.0
  class_weights: tuple[float, ...] | None = None

  metric_names = ('loss', 'accuracy', 'proxy_loss')
  settings = (SSJO_LOSS_WEIGHT, CLASS_WEIGHTS)

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    inputs, targets = self.proxy_task.make(x, randomness.fold_in(seed, 1))
    logits, outputs = predict(x, seed=randomness.fold_in(seed, 2))
    # A task that changes the images needs a pass of its own.
    if inputs is not x:
      _, outputs = predict(inputs, seed=randomness.fold_in(seed, 3))
    supervised, metrics = losses.supervised(
      batch['y'], logits, self.class_weights
    )
    proxy, proxy_metrics = _proxy_loss(self.proxy_task, outputs, targets)
    return supervised + self.ssjo_loss_weight * proxy, collections.OrderedDict(
      {**metrics, **proxy_metrics}
    )


def _proxy_loss(task, outputs, targets):
  each = task.losses(tf.cast(outputs, tf.float32), targets)
  total, count = tf.reduce_sum(each), tf.cast(tf.size(each), tf.float32)
  metrics = collections.OrderedDict(proxy_loss=(total, count))
  return total / tf.maximum(count, 1.0), metrics


def add_head(
  model: split.SplitModel, task: ProxyTask, views
) -> split.SplitModel:
  """Returns a model with the task's head behind the model's own heads."""
  split.check(model)
  if not isinstance(task, ProxyTask):
    raise TypeError(
      f'proxy_task is {task!r}: give a tff_ssl.ProxyTask, such as '
      'tff_ssl.Reconstruction().'
    )
  structures.refuse_several(model.input_spec, 'A proxy task needs')
  input_shape = tuple(model.input_spec.shape[1:])
  features = split.features_spec(model.encoder)
  if features.shape.rank != 2:
    raise ValueError(
      f'The encoder gives features of shape {features.shape}: let it end with '
      'a layer that flattens them.'
    )
  task.check_views(views, input_shape)
  head = task.build_head(features.shape[1], input_shape)
  if not isinstance(head, tf.keras.Model):
    raise TypeError(
      f'proxy_task ({type(task).__name__}) builds a {type(head).__name__} as '
      'its head: let build_head return a tf.keras.Model.'
    )
  head = functional.from_keras(head, from_logits=True)
  joint = split.join(model.encoder, *model.heads, head)
  _check_losses(joint, task)
  return joint


def _check_losses(joint, task) -> None:
  """Traces the task once, so that shapes that do not fit are found early."""

  @tf.function(autograph=False)
  def trace(weights, x, seed):
    inputs, targets = task.make(x, seed)
    outputs, _ = joint.predict(
      weights.trainable, weights.non_trainable, inputs, training=False
    )
    return inputs, task.losses(tf.cast(outputs[-1], tf.float32), targets)

  name = f'proxy_task ({type(task).__name__})'
  spec = joint.input_spec
  # Of two sizes, one at least is not that of another dimension by chance.
  for size in (7, 11):
    batch = tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)
    try:
      inputs, result = trace.get_concrete_function(
        joint.weights_spec, batch, tf.TensorSpec([2], tf.int32)
      ).structured_outputs
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
      raise ValueError(
        f'{name} does not fit its head or the encoder: {error}'
      ) from error
    wanted = tf.TensorSpec(inputs.shape[:1], tf.float32)
    if not tf.is_tensor(result) or not wanted.is_compatible_with(result):
      given = type(result).__name__
      if tf.is_tensor(result):
        given = structures.signature(result)
      raise ValueError(
        f'{name} gives losses {given} for inputs of shape {inputs.shape}: give '
        'a float32 vector with one loss per input.'
      )
