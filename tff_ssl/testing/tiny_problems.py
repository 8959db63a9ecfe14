"""Tiny federated problems of real digits, to check a process with.

The data are scikit-learn's 1,797 digits of 8x8 pixels (UCI's optical
recognition of handwritten digits), which come with the package: nothing is
downloaded. They are dealt, once for all, to the server, to clients and to a
held-out part.

Where clients know of classes only their shares in sets, set m of a client holds
digits of class m, of which those of class 0 to 9 come in three passes: what the
second pass brings lies two sets further. So the matrix of class counts [12, 10]
is lower triangular, and class priors have full column rank, for every client
with a whole pass; from the second pass on classes are mixed, from the third on
the mixed sets are uneven.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epy

from tff_ssl import algorithms
from tff_ssl.aggregators import recommended

with epy.lazy_imports():
  import sklearn.datasets
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import augmentation, compat, optimizers, templates
  from tff_ssl.models import blocks, dense, functional, split

INPUT_SHAPE = (8, 8, 1)
NUM_CLASSES = 10
NUM_SETS = 12
BATCH_SIZE = 8
CLIENT_SIZES = (10, 17, 24, 30)
# As many as take part in ten rounds, where not all are in each.
NUM_CLIENTS = 40

_NUM_TEST = 400
_NUM_SERVER = 100
# The digits are dealt to so many clients.
_NUM_CLIENTS = 43
# How far the second pass lies behind the first, in sets.
_SHIFT = 2
# Clients start this far apart in their part of the digits.
_STRIDE = 30

# Settings that a process gets where its spec lists them.
_SETTINGS = {
  'num_groups': 2,
  # Low, so that an untrained model gives pseudo-labels.
  'threshold': 0.2,
  'min_confidence': 0.2,
  'batch_size': BATCH_SIZE,
  'labelled_batch_size': BATCH_SIZE,
  'local_epochs': 1,
  'server_steps': 3,
  'server_epochs': 1,
  # Else few labels at the server would take long to outweigh the clients.
  'server_weight': 2.0,
  'server_batch_size': BATCH_SIZE,
  'proximal_strength': 0.01,
  # The one that has a proximal strength.
  'base_process': 'fedprox',
  'pretraining_rounds': 1,
  'supervised_rounds': 1,
  'labelled_steps': 3,
  'unlabelled_steps': 3,
  # Where it is not the default, there may be no weights to ignore.
  'client_weighting': 'examples',
  # From the first round on, and with weights that suit the rate for all.
  'server_warmup_rounds': 0,
  'helper_interval': 1,
  'supervised_weight': 1.0,
  'sigma_psi_weight': 0.1,
}
# What aggregators need.
_AGGREGATION: Mapping[str, Mapping[str, Any]] = {
  'dp': {'noise_multiplier': 0.01},
  'secure_dp': {'noise_multiplier': 0.01, 'clip_norm': 1.0},
}


def _own_arguments(name: str) -> Mapping[str, Any]:
  """Returns what a process of ours needs beside, by its name, to learn here."""
  if name in ('fedllp', 'fedllp_vat'):
    # Momentum would carry minibatches of one or two classes far at a higher
    # rate.
    low = {'client_optimizer': optimizers.build_grouping_sgd(0.02)}
    vat = {'vat_weight': 0.5, 'vat_radius': 0.5}
    return {**low, **vat} if name == 'fedllp_vat' else low
  arguments: dict[str, dict[str, Any]] = {
    # Its votes need a model that knows something, as that of its first phase.
    'fedtrinet': {'supervised_rounds': 15},
    # On 80 digits a round, the model's own labels at the usual low threshold
    # end in one class within a few rounds.
    'fedpl': {'warmup_rounds': 25, 'threshold': 0.95},
    # A client without a confident example takes no part: all are, of 10
    # classes.
    'semifl': {'threshold': 0.1},
  }
  return arguments.get(name, {})


@functools.cache
def load_digits() -> tuple[np.ndarray, np.ndarray]:
  """Returns images in [0, 1] and their labels, in a fixed random order."""
  digits = sklearn.datasets.load_digits()
  order = np.random.default_rng(0).permutation(len(digits.target))
  images = digits.images[order].astype(np.float32)[..., np.newaxis] / 16
  return images, digits.target[order].astype(np.int32)


def to_batches(images: np.ndarray, **labels: np.ndarray) -> tf.data.Dataset:
  """Returns a data set of batches of 5, `x` and the given keys in order."""
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=images, **labels)
  ).batch(5)


def build_server_data(
  images: np.ndarray, labels: np.ndarray
) -> compat.Computation:
  """Returns a computation `( -> <x=float32[?,...],y=int32[?]>*)`."""

  @tff.tensorflow.computation
  def server_data():
    return to_batches(images, y=labels)

  return server_data


def in_passes(labels: np.ndarray, size: int) -> np.ndarray:
  """Returns indices that bring each class, of 0 to d - 1, once in each pass.

  A class that runs out starts anew.
  """
  num_classes = labels.max() + 1
  passes = -(-size // num_classes)
  by_class = [
    np.resize(np.flatnonzero(labels == label), passes)
    for label in range(num_classes)
  ]
  return np.stack(by_class, axis=1).ravel()[:size]


@dataclasses.dataclass(frozen=True)
class NoisyViews:
  """Views that let NaN and Inf pass; the strong view has noise on it."""

  mean: float = 0.0

  def plain(self, examples: tf.Tensor) -> tf.Tensor:
    return augmentation.PlainViews(self.mean).plain(examples)

  def weak(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    del seed
    return self.plain(examples)

  def strong(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns `plain(examples)` with normal noise of stddev 0.2."""
    noise = tf.random.stateless_normal(tf.shape(examples), seed, stddev=0.2)
    return self.plain(examples) + noise


@functools.cache
def build_model(normalised: bool = False) -> functional.FunctionalModel:
  """Returns a network for the digits.

  It has a hidden layer of 24, or if `normalised` two convolutions with batch
  and with group normalisation.
  """
  return functional.from_keras(
    lambda: tf.keras.Sequential(
      [*_hidden_layers(normalised), tf.keras.layers.Dense(NUM_CLASSES)]
    )
  )


@functools.cache
def _build_split_model(normalised: bool) -> split.SplitModel:
  """Returns the same network as an encoder with a head."""
  encoder = functional.from_keras(
    lambda: tf.keras.Sequential(_hidden_layers(normalised))
  )
  (num_features,) = split.features_spec(encoder).shape[1:]
  return split.join(
    encoder, functional.from_keras(dense.linear_head(num_features, NUM_CLASSES))
  )


def _hidden_layers(normalised):
  layers = tf.keras.layers
  start = layers.Input(INPUT_SHAPE)
  if not normalised:
    return [start, layers.Flatten(), layers.Dense(24), layers.ReLU()]
  convolutions = [
    layer
    for channels, norm in ((4, 'batch'), (8, 'group'))
    for layer in (
      layers.Conv2D(channels, 3, padding='same'),
      blocks.make_norm(norm),
      layers.ReLU(),
      layers.MaxPool2D(),
    )
  ]
  return [start, *convolutions, layers.Flatten()]


@dataclasses.dataclass
class TinyProblem:
  """A process to check, with tiny data that it can be run on.

  The checks share `process`, which is built when the first of them needs it.

  Attributes:
    spec: The process, as in `tff_ssl.algorithms.PROCESSES`.
    arguments: Arguments of the builder that go before the tiny defaults.
    learning_rounds: Rounds in which the process has to learn.
    learning_bar: Accuracy on held-out digits that it has to reach.
  """

  spec: algorithms.ProcessSpec
  arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  learning_rounds: int = 30
  learning_bar: float = 0.5

  def __post_init__(self):
    self.num_traces = 0

  @functools.cached_property
  def tiny_arguments(self) -> dict[str, Any]:
    """The arguments of `process`, all but the model."""
    given = {
      name: value
      for name, value in _SETTINGS.items()
      if name in self.spec.setting_names
    }
    given['views'] = NoisyViews()
    given['data_spec'] = self.data_spec()
    given['client_optimizer'] = optimizers.build_grouping_sgd(0.1)
    if self.spec.takes('client_state_dir'):
      self._state_folder = tempfile.TemporaryDirectory()
      given['client_state_dir'] = self._state_folder.name
    if self.spec.takes('server_data'):
      given['server_data'] = build_server_data(*self.server_examples)
      given['server_optimizer'] = optimizers.build_grouping_sgd(0.1)
    own = _own_arguments(self.spec.name)
    return {**given, 'seed': 1, **own, **self.arguments}

  def build_model(self, normalised: bool = False) -> functional.FunctionalModel:
    """Returns the model that the process gets."""
    if self.spec.needs.encoder:
      return _build_split_model(normalised)
    return build_model(normalised)

  def build(
    self, *, model=None, without: Sequence[str] = (), **overrides
  ) -> tff.learning.templates.LearningProcess:
    """Builds the process.

    Args:
      model: By default `build_model()`.
      without: Names of arguments to leave out.
      **overrides: Arguments that replace `tiny_arguments`.

    Returns:
      A new process.
    """
    arguments = {**self.tiny_arguments, **overrides}
    for name in without:
      del arguments[name]
    return self.spec.build(model or self.build_model(), **arguments)

  @functools.cached_property
  def process(self) -> tff.learning.templates.LearningProcess:
    """The process that checks share; `num_traces` counts calls of its model."""
    model: Any = self.build_model()
    counted = model.encoder if self.spec.needs.encoder else model

    def predict(*args, **kwargs):
      self.num_traces += 1
      return counted.predict(*args, **kwargs)

    counting = dataclasses.replace(counted, predict=predict)
    if self.spec.needs.encoder:
      counting = split.join(counting, *model.heads)
    return self.build(model=counting)

  @functools.cached_property
  def rebuilt(self) -> tff.learning.templates.LearningProcess:
    """The same process, built once more."""
    return self.build()

  @functools.cached_property
  def reseeded(self) -> tff.learning.templates.LearningProcess:
    """The same process with another seed."""
    return self.build(seed=self.tiny_arguments['seed'] + 1)

  @functools.cached_property
  def initial_state(self) -> Any:
    """The state with which `process` starts."""
    return self.process.initialize()

  @functools.cached_property
  def first_round(self) -> tff.learning.templates.LearningProcessOutput:
    """What `process` gives for `clients()` in the round of `initial_state`."""
    return self.process.next(self.initial_state, self.clients())

  def aggregation(self, name: str, clients_per_round: int) -> dict[str, Any]:
    """Returns arguments of `build` that choose an aggregator of ours.

    With 'mean' a process is built as it is otherwise.

    Args:
      name: A key of `recommended.AGGREGATORS`.
      clients_per_round: Which some of them divide by.
    """
    if name == 'mean':
      return {}
    spec = recommended.AGGREGATORS[name]
    arguments: dict[str, Any] = {
      'model_aggregator': recommended.recommended_aggregator(
        name, clients_per_round=clients_per_round, **_AGGREGATION.get(name, {})
      )
    }
    if spec.is_secure:
      arguments['metrics_aggregator'] = recommended.CLIENT_METRICS['secure']
    if self.spec.takes('client_weighting') and not spec.is_weighted:
      arguments['client_weighting'] = 'uniform'
    return arguments

  @property
  def num_clients(self) -> int:
    """Number of clients that take part in rounds of `clients`."""
    needs_all = self.spec.needs.clients == 'all'
    return len(CLIENT_SIZES) if needs_all else NUM_CLIENTS

  @property
  def averages_groups(self) -> bool:
    """Whether results meet within groups of clients, of which one may do."""
    return 'num_groups' in {**self.spec.fixed, **self.tiny_arguments}

  @property
  def num_groups(self) -> int:
    """Number of groups that clients are dealt to."""
    known = {**self.spec.fixed, **self.tiny_arguments}
    return known.get('num_groups', 1)

  @property
  def lies_in_sets(self) -> bool:
    """Whether clients have sets with class priors in place of labels."""
    return self.spec.needs.labels_at == 'sets'

  @property
  def server_examples(self) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of the server."""
    images, labels = load_digits()
    part = slice(_NUM_TEST, _NUM_TEST + _NUM_SERVER)
    return images[part], labels[part]

  def data_spec(
    self,
    input_shape: tuple[int, ...] = INPUT_SHAPE,
    *,
    in_context: bool = True,
  ) -> templates.ClientDataSpec:
    """Returns the type of the client data."""
    element_spec = templates.image_element_spec(
      input_shape, dtype=tf.float32, true_labels=True
    )
    priors_shape = None
    if self.lies_in_sets and in_context:
      priors_shape = (NUM_SETS, NUM_CLASSES)
    return templates.ClientDataSpec(
      element_spec,
      in_context,
      priors_shape=priors_shape,
      num_clients=self.num_clients,
    )

  def examples(
    self, size: int, *, digits_of: int = 0
  ) -> collections.OrderedDict[str, np.ndarray]:
    """Returns the arrays of a client's examples.

    Args:
      size: Number of examples, 0 to 30.
      digits_of: Index of the client whose digits they are, 0 to 42.

    Returns:
      `x`, `y` (-1 where clients have no labels; where they have some, behind
      the first third; the index of the set where they have sets) and `true_y`.
    """
    images, labels = load_digits()
    start = _NUM_TEST + _NUM_SERVER
    begin = _STRIDE * digits_of
    if self.lies_in_sets:
      order = in_passes(labels[start:], _STRIDE * _NUM_CLIENTS)
      chosen = start + order[begin : begin + size]
      is_second = np.arange(size) // NUM_CLASSES == 1
      sets = labels[chosen] + _SHIFT * is_second
      return collections.OrderedDict(
        x=images[chosen], y=sets.astype(np.int32), true_y=labels[chosen]
      )
    part = slice(start + begin, start + begin + size)
    third = (size + 2) // 3
    shown = {
      'server': 0,
      'clients': third if self.spec.needs.unlabelled else size,
      'dealt': third,
    }
    visible = np.arange(size) < shown[self.spec.needs.labels_at]
    return collections.OrderedDict(
      x=images[part],
      y=np.where(visible, labels[part], -1).astype(np.int32),
      true_y=labels[part],
    )

  def client(
    self,
    index: int,
    size: int = 20,
    *,
    digits_of: int | None = None,
    pixel: float | None = None,
    in_context: bool = True,
  ) -> Any:
    """Returns the data of one client.

    Args:
      index: Of the client; its group is `index % num_groups`.
      size: Number of examples.
      digits_of: Whose digits they are, by default the client's own.
      pixel: Replaces all pixels of the first image, where given.
      in_context: Whether to give `<examples=..., context=...>` or a sequence.

    Returns:
      An ordered dict of data sets, or a data set.
    """
    arrays = self.examples(
      size, digits_of=index if digits_of is None else digits_of
    )
    if pixel is not None:
      arrays['x'] = arrays['x'].copy()
      arrays['x'][0] = pixel
    images = arrays.pop('x')
    examples = to_batches(images, **arrays)
    if not in_context:
      return examples
    context = collections.OrderedDict(
      client=np.int32(index),
      group=np.int32(index % self.num_groups),
      **self.constants(arrays),
    )
    return collections.OrderedDict(
      examples=examples, context=tf.data.Dataset.from_tensors(context)
    )

  def constants(
    self, arrays: Mapping[str, np.ndarray]
  ) -> collections.OrderedDict[str, np.ndarray]:
    """Returns what a client knows of its `examples` beside them.

    Where it has sets, `class_priors`, `float32 [NUM_SETS, NUM_CLASSES]`, and
    `set_shares`, `float32 [NUM_SETS]`, counted exactly; zeros for sets without
    examples. Else nothing.
    """
    if not self.lies_in_sets:
      return collections.OrderedDict()
    counts = np.zeros((NUM_SETS, NUM_CLASSES), np.float32)
    np.add.at(counts, (arrays['y'], arrays['true_y']), 1)
    sizes = counts.sum(axis=1)
    return collections.OrderedDict(
      class_priors=counts / np.maximum(sizes, 1)[:, np.newaxis],
      set_shares=sizes / max(len(arrays['y']), 1),
    )

  def reader(
    self, clients: Sequence[Mapping[str, np.ndarray]]
  ) -> compat.Computation:
    """Returns the reader of clients that are held in memory.

    Args:
      clients: The arrays of each, as `examples` returns them.

    Returns:
      `(int32 -> <x=...,y=...,true_y=...>*)`, or in sets the same as `examples`
      beside their constants as `context`.
    """
    arrays = tf.nest.map_structure(lambda *each: np.concatenate(each), *clients)
    constants = tf.nest.map_structure(
      lambda *each: np.stack(each), *map(self.constants, clients)
    )
    ends = np.cumsum([0, *(len(client['y']) for client in clients)])

    @tff.tensorflow.computation(np.int32)
    def reader(index):
      begin, end = (tf.constant(ends)[index + i] for i in range(2))
      examples = tf.data.Dataset.from_tensors(
        tf.nest.map_structure(lambda all_: tf.constant(all_)[begin:end], arrays)
      )
      if not constants:
        return examples
      return collections.OrderedDict(
        examples=examples,
        context=tf.nest.map_structure(
          lambda all_: tf.constant(all_)[index], constants
        ),
      )

    return reader

  def clients(
    self, round_num: int = 0, *, in_context: bool = True
  ) -> list[Any]:
    """Returns the data of the participants of a round, four clients.

    They are others in each of ten rounds, but where a process needs all.
    """
    first = len(CLIENT_SIZES) * round_num % self.num_clients
    return [
      self.client(first + position, size, in_context=in_context)
      for position, size in enumerate(CLIENT_SIZES)
    ]

  def accuracy(self, weights: tff.learning.models.ModelWeights) -> float:
    """Returns the share of held-out digits that a model gets right."""
    images, labels = load_digits()
    logits, _ = self.build_model().predict(
      weights.trainable,
      weights.non_trainable,
      images[:_NUM_TEST],
      training=False,
    )
    return float(np.mean(np.argmax(logits, axis=1) == labels[:_NUM_TEST]))
