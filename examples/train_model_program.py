"""Grouping-based semi-supervised FL inside a TFF program with `train_model`.

Clients are keys, read inside TFF, and nobody outside the process knows of
groups: `python -m examples.train_model_program OUTPUT_FOLDER`.
"""

import asyncio
import collections
import sys

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from sklearn import datasets as sklearn_datasets

import tff_ssl


def as_dataset(images, labels):
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(x=images, y=labels)
  )


async def main(folder):
  images, labels = sklearn_datasets.load_digits(return_X_y=True)
  images = np.uint8(images.reshape(-1, 8, 8, 1) * 255 / 16)
  labels = labels.astype(np.int32)
  unlabelled = images[100:1300].reshape(20, 60, 8, 8, 1)

  @tff.tensorflow.computation(np.int32)
  def read_client(index):
    return as_dataset(tf.constant(unlabelled)[index], -tf.ones(60, tf.int32))

  labelled = images[:100], labels[:100]
  model = tff_ssl.from_keras(tff_ssl.MODELS['small_cnn'].build((8, 8, 1), 10))
  process = tff_ssl.build_grouping_ssfl(
    model,
    server=tff_ssl.ServerPlan(
      data=tff.tensorflow.computation(lambda: as_dataset(*labelled)),
      warmup_rounds=5,
    ),
    data_spec=tff_ssl.ClientDataSpec(tff_ssl.image_element_spec((8, 8, 1))),
    views=tff_ssl.ImageViews(mean=(0.3,), stddev=(0.38,), flip=False),
    num_groups=2,
    group_assignment='in_process',
    client_training=tff_ssl.TrainingPlan(batch_size=20, epochs=1),
  )
  process = tff_ssl.compose_with_reader(process, read_client)
  tff.framework.set_default_context(
    tff.program.NativeFederatedContext(
      tff_ssl.install_context(asynchronous=True)
    )
  )
  await tff.learning.programs.train_model(
    train_process=process,
    train_data_source=tff_ssl.ClientKeySource(num_clients=20, seed=1),
    train_per_round_clients=6,
    train_total_rounds=20,
    program_state_manager=tff.program.FileProgramStateManager(folder),
    model_output_manager=tff.program.LoggingReleaseManager(),
    train_metrics_manager=tff.program.CSVFileReleaseManager(
      f'{folder}/metrics.csv', key_fieldname='round'
    ),
    evaluation_manager=None,
    evaluation_periodicity=1,
  )


if __name__ == '__main__':
  if len(sys.argv) != 2:
    sys.exit('usage: python -m examples.train_model_program OUTPUT_FOLDER')
  asyncio.run(main(sys.argv[1]))
