"""What is trained in the benchmark: two models, and enlarged digits."""

import dataclasses
from collections.abc import Callable

import numpy as np
import sklearn.datasets
import tensorflow as tf

from datasets.partition import partitions
from datasets.sources.source import Source, Split
from datasets.store import client_store
from tff_ssl import models
from tff_ssl.models import functional

INPUT_SHAPE = (28, 28, 1)
NUM_CLASSES = 10
LEARNING_RATE = 0.03

_ENLARGEMENT = 4
_BORDER = 2


@dataclasses.dataclass(frozen=True)
class Workload:
  """One model and the sizes of a round.

  A client holds as many examples as it processes in a round, so that all
  candidates see every example once.

  Attributes:
    build_model: Returns a new `tf.keras.Model` for images of `INPUT_SHAPE`.
    clients: C, clients in a round.
    steps: T, steps of a client.
    batch_size: B, examples in a minibatch.
    has_augmentation: Whether a client with consistency regularization and
      augmentation is measured, too.
  """

  build_model: Callable[[], tf.keras.Model]
  clients: int
  steps: int
  batch_size: int
  has_augmentation: bool

  @property
  def examples(self) -> int:
    """Examples of a client."""
    return self.steps * self.batch_size

  def with_clients(self, clients: int) -> 'Workload':
    """Returns the same with another number of clients in a round."""
    return dataclasses.replace(self, clients=clients)


@dataclasses.dataclass(frozen=True)
class Steps:
  """The sizes of a round: by default the paper's steps and minibatch.

  Attributes:
    clients: C = K, all clients take part.
    steps: T.
    batch_size: B.
  """

  clients: int = 4
  steps: int = 16
  batch_size: int = 64

  def build_store(self, folder: str) -> client_store.ClientStore:
    """Packs the clients, whose examples are enough for one pass."""
    return build_store(self.clients, self.steps * self.batch_size, folder)


def build_model(name: str) -> functional.FunctionalModel:
  """Returns a network of the registry, without normalisation."""
  return models.build(name, INPUT_SHAPE, NUM_CLASSES, 'none')


def _build(name):
  return lambda: models.MODELS[name].build(INPUT_SHAPE, NUM_CLASSES, 'none')


WORKLOADS = {
  'dense': Workload(_build('dense'), 20, 50, 20, has_augmentation=False),
  'cnn': Workload(_build('emnist_cnn'), 4, 16, 64, has_augmentation=True),
}


def enlarged_digits() -> tuple[np.ndarray, np.ndarray]:
  """Returns scikit-learn's digits as 28x28 images, a stand-in for MNIST.

  Each of the 8x8 pixels becomes a square of 4x4; a border of 2 is cut off.

  Returns:
    Images `uint8 [1797, 28, 28, 1]` and labels `int32 [1797]`.
  """
  digits = sklearn.datasets.load_digits()
  square = np.ones((1, _ENLARGEMENT, _ENLARGEMENT))
  images = np.kron(digits.images * (255 / 16), square)
  images = images[:, _BORDER:-_BORDER, _BORDER:-_BORDER, np.newaxis]
  return np.rint(images).astype(np.uint8), digits.target.astype(np.int32)


def build_store(
  num_clients: int,
  examples: int,
  folder: str,
  *,
  most_examples: int | None = None,
  mask_ratio: float | None = None,
) -> client_store.ClientStore:
  """Packs clients; the digits are repeated as often as it takes.

  Args:
    num_clients: K.
    examples: Examples of each client, or of the smallest one.
    folder: Where the file goes.
    most_examples: If given, examples of the largest client; those of the others
      lie between at equal distances.
    mask_ratio: If given, the share of each client's labels that is hidden.

  Returns:
    The store, with labels at the clients.
  """
  images, labels = enlarged_digits()
  most = most_examples or examples
  sizes = np.rint(np.linspace(examples, most, num_clients)).astype(int)
  chosen = np.arange(sizes.sum()) % len(labels)
  owners = np.repeat(np.arange(num_clients), sizes).astype(str).astype(object)
  source = Source(
    name='enlarged-digits',
    version=f'sklearn-digits-{num_clients}x{examples}-{most}',
    title='scikit-learn digits enlarged to 28x28 pixels and repeated',
    train=Split(images[chosen], labels[chosen], owners),
    test=Split(images[:1], labels[:1]),
    num_classes=NUM_CLASSES,
    mean=(0.3,),
    stddev=(0.37,),
    background=0,
    mirrorable=False,
  )
  partition = partitions.build(
    'native',
    source,
    server_examples=0,
    seed=0,
    server_writers='everyone',
    mask_ratio=mask_ratio,
  )
  labelled = 'clients' if mask_ratio is None else 'dealt'
  return client_store.build(
    source, partition, cache_dir=folder, labelled=labelled
  )
