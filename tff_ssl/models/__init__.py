"""Models: the door to one functional form, and a registry of networks."""

import dataclasses
import types
from collections.abc import Callable, Mapping

import tensorflow as tf

from tff_ssl.models import convolutional, dense


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  """How to build a model.

  Attributes:
    description: One sentence for users.
    build: `build(input_shape, num_classes, norm)` returns a `tf.keras.Model`
      with logits, for float32 inputs of `input_shape` (height, width,
      channels); `norm` is 'none', 'batch' or 'group'.
  """

  description: str
  build: Callable[[tuple[int, ...], int, str], tf.keras.Model]


MODELS: Mapping[str, ModelSpec] = types.MappingProxyType(
  {
    'dense': ModelSpec(
      'Multilayer perceptron with one hidden layer of 200.', dense.dense
    ),
    'emnist_cnn': ModelSpec(
      'The EMNIST network of the grouping paper: two convolutions, channel '
      'dropout, 1.2 million weights at 28x28x1.',
      convolutional.emnist_cnn,
    ),
    'small_cnn': ModelSpec(
      'Two narrow convolutions, small and fast, for images of 4x4 and more.',
      convolutional.small_cnn,
    ),
  }
)
