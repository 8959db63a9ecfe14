"""State of the C slots of a round, kept at the server for stateless clients.

A slot is a position among the participants. Whoever fills it reads the slot's
row of a stack `[C, ...]` and leaves a new one: in the code of paper 1's authors
a slot's momentum survives the round while the client in it changes. The server
sends the whole stack to every client and gets as much back from each, so this
is for small models, and for comparison with that code.
"""

import tensorflow as tf

from tff_ssl import checks


def check_momentum(
  client_momentum: str, num_slots: int | None, data_spec
) -> None:
  """Checks whether momentum can stay with the slot where it is asked to.

  Args:
    client_momentum: 'reset' or 'slot'.
    num_slots: C, where momentum stays with the slot.
    data_spec: `ClientDataSpec`, the type of client data.

  Raises:
    ValueError: If a value is unknown, missing or unused.
    TypeError: If the client data do not name slots where they must.
  """
  checks.choice(client_momentum=client_momentum)
  checks.integers_at_least(1, num_slots=num_slots)
  if (num_slots is not None) != (client_momentum == 'slot'):
    raise ValueError(
      f'num_slots={num_slots} does not fit client_momentum='
      f"{client_momentum!r}: give the clients per round with 'slot' only."
    )
  check_data(data_spec, client_momentum=client_momentum)


def check_data(data_spec, **arguments) -> None:
  """Checks that client data name slots where an argument is 'slot'.

  Args:
    data_spec: `ClientDataSpec`, the type of client data.
    **arguments: The values, by the name that the caller's user knows.

  Raises:
    TypeError: If they do not.
  """
  for name, value in arguments.items():
    if value == 'slot' and not data_spec.in_slots:
      raise TypeError(
        f'{name}={value!r} needs client data with a context that names the '
        'slot: use ClientDataSpec(..., in_context=True, in_slots=True).'
      )


def scatter(value, slot, num_slots: int, counts: tf.Tensor):
  """Puts a client's new state into its row; summed over clients for `merge`.

  Args:
    value: Structure of number tensors.
    slot: `int32` scalar.
    num_slots: C.
    counts: `bool` scalar: whether the client's state is to be kept.

  Returns:
    Structure of `[C, ...]` tensors, zero in all other rows, and `float32 [C]`,
    one where there is a new state.
  """
  mask = tf.one_hot(slot, num_slots) * tf.cast(counts, tf.float32)

  def to_rows(leaf):
    shaped = tf.reshape(mask, [num_slots] + [1] * leaf.shape.rank)
    kept = tf.where(counts, leaf, tf.zeros_like(leaf))
    return tf.cast(shaped, leaf.dtype) * kept[tf.newaxis]

  return tf.nest.map_structure(to_rows, value), mask


def merge(stacked, rows, taken: tf.Tensor):
  """Returns the stack with the new rows.

  Args:
    stacked: Structure of `[C, ...]`, the old states.
    rows: The same, summed over clients (`scatter`).
    taken: `float32 [C]`, summed over clients. A slot that several clients claim
      keeps its old state.
  """

  def choose(old, new):
    shaped = tf.reshape(taken, [-1] + [1] * (old.shape.rank - 1))
    return tf.where(tf.equal(shaped, 1), new, old)

  return tf.nest.map_structure(choose, stacked, rows)
