"""Models: one functional form, and a registry of networks.

Importing the registry is cheap: a network's module, and with it TensorFlow, is
imported when it is built.
"""

import dataclasses
import importlib
import types
from collections.abc import Callable, Mapping
from typing import Any

from tff_ssl.common import user_modules
from tff_ssl.common.setting import Setting

NORM = Setting(
  'norm',
  str,
  'Normalisation: none, batch or group. The published emnist_cnn has none, '
  'though its paper says group.',
  default='none',
  choices=('none', 'batch', 'group'),
)


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  """How to build a model.

  Attributes:
    description: One sentence for users.
    builder: `module.function` below `tff_ssl.models`; call `build`.
    forms: What examples may be: 'images', 'vectors' of features, or 'tokens',
      the numbers of words.
    head: Of a network without a head, the name of the classifier in
      `tff_ssl.models.dense` that belongs to it.
  """

  description: str
  builder: str
  forms: tuple[str, ...] = ('images',)
  head: str = 'linear_head'

  @property
  def build(self) -> Callable[..., Any]:
    """`build(input_shape, num_classes, norm)` returns a `tf.keras.Model`.

    It maps float32 inputs [batch, *input_shape], of height, width and channels
    or of features, or int32 inputs [batch, length], to logits
    [batch, num_classes]. A network of tokens takes `num_tokens`, too; one of
    `ENCODERS` takes no `num_classes`, and maps to features [batch, n]. `norm`
    is 'none', 'batch' or 'group': what follows each convolution, or each hidden
    layer where there is none, ahead of its ReLU
    (`tff_ssl.models.blocks.make_norm`). Raises `ValueError` if an
    argument is out of range.
    """
    module, name = self.builder.split('.')
    return getattr(importlib.import_module(f'tff_ssl.models.{module}'), name)


_ALL_FORMS = ('images', 'vectors')

MODELS: Mapping[str, ModelSpec] = types.MappingProxyType(
  {
    'dense': ModelSpec(
      'Multilayer perceptron with one hidden layer of 200.',
      'dense.dense',
      _ALL_FORMS,
    ),
    'emnist_cnn': ModelSpec(
      'The EMNIST network of the grouping paper: two convolutions, channel '
      'dropout, 1.2 million weights at 28x28x1; norm "none" is the published '
      'network, "group" what the paper describes.',
      'convolutional.emnist_cnn',
    ),
    'fedul_mnist': ModelSpec(
      'The MNIST network of FedUL: three convolutions of 5x5 and two hidden '
      'layers, 14.2 million weights at 28x28x1; norm "batch" is the published '
      'network; slow on a CPU.',
      'convolutional.fedul_mnist',
    ),
    'fedul_mnist_dropout': ModelSpec(
      'fedul_mnist with a fifth of the outputs of each block dropped out: what '
      'its authors trained by FedLLP.',
      'convolutional.fedul_mnist_dropout',
    ),
    'resnet18': ModelSpec(
      'ResNet-18 for CIFAR, of the grouping paper: 3x3 stem, 11.2 million '
      'weights; slow on a CPU.',
      'residual.resnet18',
    ),
    'resnet34': ModelSpec(
      'ResNet-34 for CIFAR: as resnet18, 21.3 million weights.',
      'residual.resnet34',
    ),
    'resnet50': ModelSpec(
      'ResNet-50 for CIFAR: bottlenecks, 23.5 million weights.',
      'residual.resnet50',
    ),
    'resnet9': ModelSpec(
      'ResNet-9 of FedMatch: 6.6 million weights; norm "none" is the published '
      'network.',
      'residual.resnet9',
    ),
    'small_cnn': ModelSpec(
      'Two narrow convolutions, small and fast, for images of 4x4 and more.',
      'convolutional.small_cnn',
    ),
    'wide_resnet28_2': ModelSpec(
      'Wide ResNet 28-2, the network of FixMatch: 1.5 million weights; norm '
      '"batch" is the published network; slow on a CPU.',
      'residual.wide_resnet28_2',
    ),
    'word_average': ModelSpec(
      'The mean of word embeddings of 64, and a hidden layer of 64.',
      'dense.word_average',
      ('tokens',),
    ),
    'vgg11': ModelSpec(
      'VGG11 for CIFAR: eight convolutions and one linear layer, 9.2 million '
      'weights; norm "none" is the published network.',
      'convolutional.vgg11',
    ),
  }
)

ENCODERS: Mapping[str, ModelSpec] = types.MappingProxyType(
  {
    'dense_encoder': ModelSpec(
      'One hidden layer of 256 with a linear classifier, as an encoder and its '
      'head: the network of the label-hungry paper.',
      'dense.dense_encoder',
      _ALL_FORMS,
    ),
    'word_average_encoder': ModelSpec(
      'word_average with a linear classifier, as an encoder and its head.',
      'dense.word_average_encoder',
      ('tokens',),
    ),
    'cnn_encoder': ModelSpec(
      'The convolutions of small_cnn with a linear classifier, as an encoder '
      'and its head.',
      'convolutional.cnn_encoder',
    ),
    **{
      f'resnet{depth}_encoder': ModelSpec(
        f'The network resnet{depth}, as an encoder and its last layer; slow on '
        'a CPU.',
        f'residual.resnet{depth}_encoder',
        head='unsure_head',
      )
      for depth in (18, 34, 50)
    },
  }
)


def names_for(form: str, with_encoder: bool = False) -> list[str]:
  """Returns the names of the networks for examples of a form.

  Args:
    form: One of `ModelSpec.forms`.
    with_encoder: Whether only of those in `ENCODERS`, or of all.
  """
  known = ENCODERS if with_encoder else {**MODELS, **ENCODERS}
  return [name for name, spec in known.items() if form in spec.forms]


def build(
  name: str,
  input_shape,
  num_classes: int,
  norm: str,
  num_tokens: int | None = None,
):
  """Builds a classifier by name.

  Args:
    name: Of `MODELS` or `ENCODERS`; the latter get a linear head. Or
      'module:FUNCTION' of one's own on the import path: as `ModelSpec.build`,
      but it may return a `FunctionalModel` or `SplitModel` too.
    input_shape: Height, width and channels; the number of features; or the
      length of a text in words.
    num_classes: Of the data.
    norm: 'none', 'batch' or 'group'.
    num_tokens: For texts, how many numbers words may have.

  Returns:
    A `FunctionalModel` to logits; a `SplitModel` where it is an encoder's name.
  """
  if user_modules.is_reference(name):
    own_model = importlib.import_module('tff_ssl.models.own_model')
    return own_model.build(name, input_shape, num_classes, norm, num_tokens)
  more = {} if num_tokens is None else {'num_tokens': num_tokens}
  if name not in MODELS and name not in ENCODERS:
    raise ValueError(f'name is {name!r}: give one of {(*MODELS, *ENCODERS)}.')
  blocks, dense, functional, split = (
    importlib.import_module(f'tff_ssl.models.{module}')
    for module in ('blocks', 'dense', 'functional', 'split')
  )
  if name in MODELS:
    return functional.from_keras(
      MODELS[name].build(input_shape, num_classes, norm, **more)
    )
  blocks.check_network(num_classes, norm)
  encoder = functional.from_keras(
    ENCODERS[name].build(input_shape, norm, **more)
  )
  (num_features,) = split.features_spec(encoder).shape[1:]
  build_head = getattr(dense, ENCODERS[name].head)
  return split.join(encoder, build_head(num_features, num_classes))
