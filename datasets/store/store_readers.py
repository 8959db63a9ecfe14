"""Reads a client store inside TFF: from a client's index to the client's data.

Every reader returns a sequence of one element, all examples as a few tensors: a
loop that slices one tensor is faster than a dataset of single examples.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from datasets.store.client_store import ClientStore


def element_spec(store: ClientStore) -> collections.OrderedDict:
  """Returns the `tf.TypeSpec` of the one element that a reader returns.

  It holds the examples `x`, `uint8 [n, H, W, C]` or `float32 [n, F]`, and `y`
  and `true_y`, `int32 [n]`, as `client_store.Part`. `n` may be 0.
  """
  return collections.OrderedDict(
    x=tf.TensorSpec([None, *store.input_shape], store.input_type.type),
    y=tf.TensorSpec([None], tf.int32),
    true_y=tf.TensorSpec([None], tf.int32),
  )


def client_reader(store: ClientStore) -> tff.Computation:
  """Returns `(int32 -> E*)`, from a client's index to the client's data.

  E is the type of `element_spec`. The file must lie at the same path on every
  machine.
  """

  @tff.tensorflow.computation(tf.int32)
  def read_client(index):
    return client_dataset(store, index)

  return read_client


def set_reader(
  store: ClientStore, class_priors: np.ndarray, set_shares: np.ndarray
) -> tff.Computation:
  """Returns a `client_reader` of examples in sets, which are `y` in the store.

  Clients know `class_priors`, `float [K, M, d]`, and each set's share of their
  examples, `float [K, M]`. It is `(int32 -> <examples=E*,
  context=<class_priors=float32[M,d], set_shares=float32[M]>>)`.
  """

  @tff.tensorflow.computation(tf.int32)
  def read_client(index):
    return collections.OrderedDict(
      examples=client_dataset(store, index),
      context=collections.OrderedDict(
        class_priors=tf.constant(class_priors, tf.float32)[index],
        set_shares=tf.constant(set_shares, tf.float32)[index],
      ),
    )

  return read_client


def server_reader(store: ClientStore) -> tff.Computation:
  """Returns `( -> E*)`, which reads the server's labelled examples."""
  return tff.tensorflow.computation(lambda: server_dataset(store))


def client_dataset(store: ClientStore, index: tf.Tensor) -> tf.data.Dataset:
  """Returns the one-element dataset of a client, for use in TensorFlow code."""
  index = tf.convert_to_tensor(index, tf.int32)
  in_range = tf.debugging.Assert(
    tf.logical_and(index >= 0, index < store.num_clients),
    [f'The client index is outside [0, {store.num_clients}):', index],
  )
  # TFF cuts the graph out by its outputs: an assertion that is not on the way
  # to the data would be left out.
  with tf.control_dependencies([] if in_range is None else [in_range]):
    index = tf.identity(index)
  return _part_dataset(store, index)


def server_dataset(store: ClientStore) -> tf.data.Dataset:
  """Returns the one-element dataset of the server, for TensorFlow code."""
  return _part_dataset(store, tf.constant(store.server_part))


def _part_dataset(store, part):
  count = tf.constant(store.part_sizes, tf.int64)[part]
  # The one op that reads a TFRecord from anywhere in a file; unbuffered,
  # because one is read. Such a dataset cannot go from one TFF computation to
  # the next (TensorFlow 2.14 serialises it without its offset), so the data
  # are read here and go on as tensors.
  records = tf.data.experimental.from_variant(
    tf.raw_ops.TFRecordDatasetV2(
      filenames=store.path,
      compression_type='',
      buffer_size=0,
      byte_offsets=tf.constant(store.record_starts, tf.int64)[part],
    ),
    tf.TensorSpec([], tf.string),
  )
  record = records.take(1).get_single_element()
  label_start = count * store.input_bytes
  examples = tf.io.decode_raw(
    tf.strings.substr(record, tf.zeros_like(label_start), label_start),
    store.input_type.type,
  )
  labels = tf.io.decode_raw(
    tf.strings.substr(record, label_start, -1), tf.int32
  )
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(
      x=tf.reshape(examples, [-1, *store.input_shape]),
      y=labels[:count],
      true_y=labels[count:],
    )
  )
