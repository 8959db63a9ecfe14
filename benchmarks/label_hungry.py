"""The round of Hegde et al., "Label Hungry? Not Anymore", as a benchmark.

Many small clients, each with ten passes over its own examples, on the paper's
network 784-256-10. What its three methods cost is compared, and supervised
training with stock TFF: same model, data, passes and client optimizer.
"""

import dataclasses

import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from datasets.store import client_store
from tff_ssl import augmentation, models
from tff_ssl.algorithms import PROCESSES
from tff_ssl.models import dense

_ENCODER = 'dense_encoder'
_LEARNING_RATE = 0.001
_MOMENTUM = 0.99


@dataclasses.dataclass(frozen=True)
class LabelHungry:
  """The sizes of a round; by default, those of EMNIST's writers.

  Attributes:
    clients: C = K, all clients take part.
    fewest: Examples of the smallest client.
    most: Examples of the largest one.
    epochs: E, passes of a client over its examples.
    batch_size: B, examples in a minibatch.
    mask_ratio: The share of labels that is hidden, where some are.
  """

  clients: int = 100
  fewest: int = 76
  most: int = 101
  epochs: int = 10
  batch_size: int = 20
  mask_ratio: float = 0.9

  def build_store(
    self, folder: str, mask_ratio: float | None = None
  ) -> client_store.ClientStore:
    """Packs the clients; with a mask ratio, without most of their labels."""
    return workloads.build_store(
      self.clients,
      self.fewest,
      folder,
      most_examples=self.most,
      mask_ratio=mask_ratio,
    )


def build_all(workload: LabelHungry, folder: str) -> candidates.Rounds:
  """Returns the candidates by name.

  Returns:
    `fsl`, with all labels, and `stock_tff`, which does the same; `fsl_masked`
    and `ssjo`, with the labels that the mask leaves; `sspt_pretraining`, the
    first stage on all images.
  """
  labelled = workload.build_store(folder)
  masked = workload.build_store(folder, workload.mask_ratio)

  def ours(name, store, **settings):
    def build(data_spec):
      return PROCESSES[name].build(
        workloads.build_model(_ENCODER),
        data_spec=data_spec,
        views=augmentation.PlainViews(),
        client_optimizer=_optimizer(),
        batch_size=workload.batch_size,
        local_epochs=workload.epochs,
        **settings,
      )

    return candidates.rounds_over_store(build, store, workload.clients)

  # Continuous passes are what `repeat` and `batch` give stock TFF.
  return {
    'fsl': ours('fsl', labelled, epoch_batches='continuous'),
    'stock_tff': candidates.rounds_of_stock_tff(
      build_keras_model,
      labelled,
      workload.clients,
      batch_size=workload.batch_size,
      epochs=workload.epochs,
      client_optimizer=_optimizer(),
    ),
    'fsl_masked': ours('fsl', masked, epoch_batches='continuous'),
    'ssjo': ours('ssjo', masked),
    # More rounds of pre-training than are ever run.
    'sspt_pretraining': ours('sspt', masked, pretraining_rounds=2**30),
  }


def build_keras_model() -> tf.keras.Model:
  """Returns the network of `build_all` in one piece, for stock TFF."""
  encoder = models.ENCODERS[_ENCODER].build(workloads.INPUT_SHAPE, 'none')
  (num_features,) = encoder.output_shape[1:]
  head = dense.linear_head(num_features, workloads.NUM_CLASSES)
  return tf.keras.Model(encoder.inputs, head(encoder.output))


def _optimizer():
  return tff.learning.optimizers.build_sgdm(_LEARNING_RATE, _MOMENTUM)


SECTION = measurement.Section(
  LabelHungry(), build_all, {'fsl_over_stock': ('fsl', 'stock_tff')}
)
