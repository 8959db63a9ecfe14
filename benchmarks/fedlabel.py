"""A FedLabel client against the sum of its parts, as a benchmark.

Its two trainings are tau supervised steps, and tau' steps on the strong view
with two forward passes more. What it takes beyond them is overhead. All
examples pass the threshold, and the term of consistency is on the strong view,
so that the passes do not hang on what the experts say.
"""

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from benchmarks import candidates, measurement, workloads
from datasets.store import client_store
from tff_ssl import augmentation, randomness
from tff_ssl.algorithms import PROCESSES


@dataclasses.dataclass(frozen=True)
class FedLabel:
  """The sizes of a round; by default, those of the section `cnn`.

  Attributes:
    model: Name of the network.
    clients: C = K, all clients take part.
    examples: Examples of a client.
    steps: tau = tau'.
    batch_size: b, examples in a minibatch of either kind.
    mask_ratio: The share of labels that is hidden.
  """

  model: str = 'emnist_cnn'
  clients: int = 4
  examples: int = 1024
  steps: int = 16
  batch_size: int = 64
  mask_ratio: float = 0.8


@dataclasses.dataclass(frozen=True)
class UnlabelledPasses:
  """The passes of FedLabel's second training, without what it decides by them.

  Attributes:
    views: Gives the plain and the strong view.
  """

  views: Any

  metric_names = ('loss',)

  def __call__(self, predict, batch, anchors, seed):
    """Trains the strong view on the labels of two other models."""
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 0))
    plain = self.views.plain(batch['x'])
    experts = [predict.at(anchors, plain) for _ in range(2)]
    labels = tf.argmax(tf.add_n(experts), axis=-1)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels, predict(strong, seed=randomness.fold_in(seed, 1))
    )
    total, size = tf.reduce_sum(each), tf.cast(tf.size(each), tf.float32)
    return total / size, collections.OrderedDict(loss=(total, size))


def builders(workload: FedLabel) -> dict[str, Any]:
  """Returns functions from the type of client data to a process, by name."""
  views = augmentation.rand_augment_views(
    1, 10, mean=(0.3,), stddev=(0.37,), flip=False
  )

  def of(build, **settings):
    return lambda data_spec: build(
      workloads.build_model(workload.model),
      data_spec=data_spec,
      views=views,
      batch_size=workload.batch_size,
      **settings,
    )

  steps = {'local_steps': workload.steps}
  return {
    'fedlabel': of(
      PROCESSES['fedlabel'].build,
      labelled_steps=workload.steps,
      threshold=0.0,
      consistency_view='strong',
    ),
    'supervised': of(PROCESSES['fedavg'].build, **steps),
    'unlabelled': of(
      PROCESSES['fedavg'].build,
      client_objective=UnlabelledPasses(views),
      **steps,
    ),
  }


def build_store(workload: FedLabel, folder: str) -> client_store.ClientStore:
  """Packs the clients, most of whose labels are hidden."""
  return workloads.build_store(
    workload.clients,
    workload.examples,
    folder,
    mask_ratio=workload.mask_ratio,
  )


def build_all(workload: FedLabel, folder: str) -> candidates.Rounds:
  """Returns the process and its parts, by name."""
  store = build_store(workload, folder)
  return {
    name: candidates.rounds_over_store(build, store, workload.clients)
    for name, build in builders(workload).items()
  }


SECTION = measurement.Section(
  FedLabel(),
  build_all,
  {'fedlabel_over_parts': ('fedlabel', 'supervised', 'unlabelled')},
)
