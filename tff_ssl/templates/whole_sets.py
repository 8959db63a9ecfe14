"""Which examples lie in one set together."""

import tensorflow as tf


def members(labels: tf.Tensor) -> tf.RaggedTensor:
  """Returns the indices of each set's examples; sets may differ in size.

  Args:
    labels: `int32 [n]`, the set that an example lies in; one below 0 lies in
      none.

  Returns:
    `int32 [sets, (size)]`, a row for each set that has examples, by its index.
  """
  by_set = tf.argsort(labels, stable=True)
  outside = tf.math.count_nonzero(labels < 0, dtype=tf.int32)
  by_set = by_set[outside:]
  _, _, sizes = tf.unique_with_counts(tf.gather(labels, by_set))
  return tf.RaggedTensor.from_row_lengths(by_set, sizes)
