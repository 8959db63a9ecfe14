"""Faults of clients: how they are found, left out and, in simulations, made.

A client whose values are not finite notices it itself; it is left out and
counted. What is wrong and finite has to be borne by the aggregator.
"""

import collections
from collections.abc import Sequence
from typing import TypeVar

import tensorflow as tf

from tff_ssl import compat
from tff_ssl.plans import Corruption
from tff_ssl.templates import client_data, client_task

Structure = TypeVar('Structure')

# What a corrupt client multiplies its change of the model with.
_FACTORS = {
  'nan': float('nan'),
  'overflow': 1e25,
  'exploding': 1e6,
  'flipped_signs': -1.0,
}


def all_finite(structure) -> tf.Tensor:
  """Returns a `bool` scalar: whether every float in `structure` is finite."""
  return tf.reduce_all(
    [
      tf.reduce_all(tf.math.is_finite(value))
      for value in tf.nest.flatten(structure)
      if value.dtype.is_floating
    ]
  )


def has_finite_norm(delta) -> tf.Tensor:
  """Returns a `bool` scalar: whether the L2 norm of a delta is finite.

  It is not where a number is not, nor where the squares of finite numbers
  exceed float32 (from 1.8e19 on). By such a norm nothing can be clipped: TFF's
  clipping gives NaN, and so tells who sent it, under differential privacy too.
  """
  floats = [v for v in tf.nest.flatten(delta) if v.dtype.is_floating]
  if not floats:
    return tf.constant(True)
  return tf.math.is_finite(
    tf.linalg.global_norm([tf.cast(value, tf.float32) for value in floats])
  )


def find_faults(
  update: client_task.LocalUpdate,
  examples: client_task.Examples,
  further=(),
) -> tuple[collections.OrderedDict[str, tf.Tensor], tf.Tensor]:
  """Says why a client must be left out, and whether it counts.

  The reasons are `bool` scalars, and it counts where none of them is true.
  `further` are more tensors that must be finite.
  """
  # The examples too: augmentation may turn NaN pixels into finite ones.
  finite = has_finite_norm(update.delta) & all_finite(
    (update.weight, update.result.metrics, examples, further)
  )
  faults = collections.OrderedDict(
    empty=tf.equal(tf.shape(examples['y'])[0], 0),
    non_finite=~finite,
    invalid=update.invalid,
  )
  return faults, ~tf.reduce_any(list(faults.values()))


def zero_unless(counts: tf.Tensor, values: Structure) -> Structure:
  """Returns a client's values, or zeros if it does not count."""
  return tf.nest.map_structure(
    lambda value: tf.where(counts, value, tf.zeros_like(value)), values
  )


def choose(
  condition: tf.Tensor, if_true: Structure, if_false: Structure
) -> Structure:
  """Returns one of two structures of tensors, by a `bool` scalar."""
  return tf.nest.map_structure(
    lambda a, b: tf.where(condition, a, b), if_true, if_false
  )


def if_finite(new: Structure, old: Structure) -> Structure:
  """Returns the new structure of tensors if it is finite, else the old one."""
  return choose(all_finite(new), new, old)


def with_corrupt_clients(
  local_update: client_task.LocalWork,
  corruption: Corruption | Sequence[Corruption],
  data_spec: client_data.ClientDataSpec,
  initial: compat.Computation,
) -> client_task.LocalWork:
  """Returns the local update of clients some of which are corrupt.

  `initial` gives the global weights before the first round, `( -> W)`. Client
  data that do not say who is corrupt are a `TypeError`.
  """
  if not data_spec.has_faults:
    raise TypeError(
      'corruption needs client data that say who is corrupt: use '
      'ClientDataSpec(..., in_context=True, has_faults=True).'
    )
  kinds = [corruption] if isinstance(corruption, Corruption) else corruption
  for number, kind in enumerate(kinds, 1):
    local_update = _corrupted(local_update, kind, number, initial)
  return local_update


def _corrupted(local_update, corruption, number, initial):
  """Returns the update of clients, corrupt where `corrupt` is the number."""
  factor = _FACTORS.get(corruption.kind, 1.0)

  def corrupted(task):
    is_corrupt = tf.equal(task.corrupt, number)
    if corruption.kind == 'stale':
      task = task._replace(weights=choose(is_corrupt, initial(), task.weights))
    elif corruption.kind == 'flipped_labels':
      task = _with_flipped_labels(task, is_corrupt, corruption.num_labels)
    update, tag = local_update(task)
    spoilt = tf.nest.map_structure(
      lambda value: (
        value * tf.cast(factor, value.dtype)
        if value.dtype.is_floating
        else value
      ),
      update.delta,
    )
    # Of weight 0 is what did not train, as in rounds of the server alone.
    is_spoilt = is_corrupt & (update.weight > 0)
    return update._replace(delta=choose(is_spoilt, spoilt, update.delta)), tag

  return corrupted


def _with_flipped_labels(task, is_corrupt, num_labels):
  labels = task.examples['y']
  last = tf.reduce_max(labels) if num_labels is None else num_labels - 1
  is_flipped = is_corrupt & (labels >= 0)
  examples = task.examples.copy()
  examples['y'] = tf.where(is_flipped, last - labels, labels)
  return task._replace(examples=examples)
