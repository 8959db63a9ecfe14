"""What a client of `grouping_robust` costs beside one of plain CRL.

Both label every example, so that as many go through the network: one with the
model that it trains, the other with the average that it received. The server
takes one step in both.
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from tff_ssl import augmentation

_MODEL = 'small_cnn'


WORKLOAD = workloads.Steps()


def build_all(
  workload: workloads.Steps, folder: str
) -> dict[str, candidates.Round]:
  """Returns the candidates by name: `crl` and `robust`.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
  """
  store = workload.build_store(folder)
  images, labels = workloads.enlarged_digits()
  images, labels = images[: workload.batch_size], labels[: workload.batch_size]

  @tff.tensorflow.computation
  def server_data():
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=images, y=labels)
    )

  def rounds(name):
    return candidates.rounds_of(
      name,
      _MODEL,
      workload,
      store,
      server_data=server_data,
      views=augmentation.ImageViews(mean=(0.0,), stddev=(1.0,), flip=False),
      num_groups=1,
      # Both train on as many pseudo-labels: on all.
      pseudo_label_rule='fixed',
      threshold=0.0,
      server_steps=1,
    )

  return {'crl': rounds('grouping'), 'robust': rounds('grouping_robust')}


def compare(workload: workloads.Steps, folder: str, repetitions: int) -> dict:
  """Compares both candidates.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
    repetitions: Timed rounds of each candidate.

  Returns:
    The sizes; times as `measurement.compare` has them; and `robust_over_crl`,
    the ratio of the best rounds.
  """
  return measurement.compare_steps(
    workload,
    build_all(workload, folder),
    repetitions,
    {'robust_over_crl': ('robust', 'crl')},
  )
