"""The arithmetic of gradient diversity: sums over participants, and ratios.

One participant's *terms* are its vector g_k and the powers of its norms. Terms
are added up over participants, in any order and any grouping; a ratio needs
nothing but such a sum.
"""

import collections

import tensorflow as tf


def powers(vector: list[tf.Tensor]) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns the l2- and l1-norm of one vector, squared and plain.

  Args:
    vector: Float tensors that together are the vector.

  Returns:
    An ordered dict of `float32` scalars with the keys `l2_squared`, `l2_plain`,
    `l1_squared` and `l1_plain`.
  """
  parts = [tf.cast(part, tf.float32) for part in vector]
  squared = tf.add_n([tf.reduce_sum(tf.square(part)) for part in parts])
  absolute = tf.add_n([tf.reduce_sum(tf.abs(part)) for part in parts])
  return collections.OrderedDict(
    l2_squared=squared,
    l2_plain=tf.sqrt(squared),
    l1_squared=tf.square(absolute),
    l1_plain=absolute,
  )


def terms(vector) -> collections.OrderedDict:
  """Returns one participant's terms, `<vector=..., powers=...>`.

  Args:
    vector: A structure of float tensors, a gradient or an update.
  """
  vector = tf.nest.flatten(vector)
  return collections.OrderedDict(vector=vector, powers=powers(vector))


def add(one, other):
  """Adds the terms of different participants."""
  return tf.nest.map_structure(tf.add, one, other)


def ratios(total) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns sum_k ||g_k||^p / ||sum_k g_k||^p for the norms and powers.

  Args:
    total: Terms, added over the participants k.

  Returns:
    `float32` scalars with the keys of `powers`. Without participants, or if all
    vectors are zero, they are NaN (0/0); if vectors cancel, infinite.
  """
  of_sum = powers(total['vector'])
  return collections.OrderedDict(
    (name, numerator / of_sum[name])
    for name, numerator in total['powers'].items()
  )


def mean_scaled_ratio(groups, counts: tf.Tensor, server=None) -> tf.Tensor:
  """Returns the mean over groups of n_i times Eq. 1 within group i.

  Args:
    groups: Terms with a leading dimension S, each row added over the members
      of a group.
    counts: `float32 [S]`, members of each group. A group without any is left
      out.
    server: The server's terms, which count once in every group, or `None`.

  Returns:
    A `float32` scalar; n_i counts the server too, where there is one.
  """

  def scaled(row):
    total, size = row
    if server is not None:
      total, size = add(total, server), size + 1.0
    return size * ratios(total)['l2_squared']

  of_groups = tf.map_fn(
    scaled, (groups, counts), fn_output_signature=tf.float32
  )
  return tf.reduce_mean(tf.boolean_mask(of_groups, counts > 0))
