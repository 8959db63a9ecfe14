"""State that stays with a client from one of its rounds to the next.

On a device the state lies in the application's storage. Here each version is a
file, `<folder>/seed-<seed>/<client>/<round>.state`. The client's own
computation writes it in a round. When the client takes part again, it reads the
newest version of an earlier round. This has three consequences:

* nothing of the state passes the server;
* a round that is repeated reads what it read before and writes the same bytes;
* a run that goes on from a checkpoint finds the versions that belong to the
  checkpoint, whatever later ones a crash has left.

Whoever runs the process keeps a digest of the versions that a checkpoint needs
(`newest`), and removes old ones (`prune`).

A client is known by the index in its context. Without a context it is known by
a fingerprint of its data, so that it begins anew when its data change.
"""

import os
import pathlib
from collections.abc import Callable, Iterable

import tensorflow as tf

from tff_ssl import protocols
from tff_ssl.templates import client_task

_SUFFIX = '.state'
# Names of rounds have one length, and so a fixed place in a path.
_DIGITS = 10
# TensorFlow's fast hash (FarmHash) has this many values at most.
_HASH_VALUES = 2**63 - 1
# A pattern finds versions; in it these characters mean something else.
_OF_PATTERNS = frozenset('[]*?\\')


def check_folder(folder: str) -> None:
  """Raises `ValueError` unless states can be found again below the path."""
  if not isinstance(folder, str) or not os.path.isabs(folder):
    raise ValueError(
      f'client_state_dir={folder!r} must be an absolute path, which all '
      'workers share: they do not run in the working folder.'
    )
  if found := sorted(_OF_PATTERNS & set(folder)):
    raise ValueError(
      f'client_state_dir={folder!r} has {" ".join(found)} in its name, so that '
      'states would not be found again: choose another folder.'
    )


def read(
  folder: str,
  task: client_task.ClientTask,
  initial: Callable[[], protocols.Structure],
) -> tuple[protocols.Structure, tf.Tensor]:
  """Returns a client's state, and whether it has one of an earlier round.

  The task says whose state it is; `initial` returns that of a client that has
  none, with the dtypes and the static shapes of all later ones. A damaged file
  is an error of the computation (`tf.errors.InvalidArgumentError`).
  """
  paths = tf.io.matching_files(
    tf.strings.join([_folder_of(folder, task), '/*', _SUFFIX])
  )
  place = -(_DIGITS + len(_SUFFIX))
  rounds = tf.strings.to_number(
    tf.strings.substr(paths, place, _DIGITS), tf.int32
  )
  earlier = rounds < task.round
  found = tf.reduce_any(earlier)
  template = initial()

  def load():
    newest = tf.argmax(tf.where(earlier, rounds, -1))
    path = paths[newest]
    content = tf.io.parse_tensor(tf.io.read_file(path), tf.string)
    flat = tf.nest.flatten(template)
    # The hashes are sliced, for a slice of the contents would copy them.
    is_sound = tf.equal(content[-1], _seal(_hashes(content)[: len(flat)]))
    complaint = tf.strings.join(
      ['The client state ', path, ' is damaged: restore it from a copy.']
    )
    check = tf.debugging.Assert(is_sound, [complaint])
    with tf.control_dependencies([check]):
      content = tf.identity(content)
    values = [
      tf.ensure_shape(
        tf.io.parse_tensor(content[i], leaf.dtype), [None] * leaf.shape.rank
      )
      for i, leaf in enumerate(flat)
    ]
    return tf.nest.pack_sequence_as(template, values)

  def begin():
    return tf.nest.map_structure(tf.identity, template)

  state = tf.cond(found, load, begin)
  # An operation, which a graph that is imported again still knows.
  state = tf.nest.map_structure(
    lambda loaded, leaf: tf.ensure_shape(loaded, leaf.shape), state, template
  )
  return state, found


def write(
  folder: str,
  task: client_task.ClientTask,
  state: protocols.Structure,
  counts: tf.Tensor,
) -> tf.Operation:
  """Writes a client's state of this round, as `read` will return it.

  A client that does not count, being left out of the round, keeps the state
  that it has. All that the computation returns must depend on the operation, or
  it is left out.
  """
  leaves = [tf.io.serialize_tensor(leaf) for leaf in tf.nest.flatten(state)]
  seal = _seal(tf.stack([_hashes(leaf) for leaf in leaves]))
  content = tf.io.serialize_tensor(tf.stack([*leaves, seal]))
  name = tf.strings.as_string(task.round, width=_DIGITS, fill='0')
  path = tf.strings.join([_folder_of(folder, task), '/', name, _SUFFIX])

  def write_file():
    with tf.control_dependencies([tf.io.write_file(path, content)]):
      return tf.constant(True)

  return tf.cond(counts, write_file, lambda: tf.constant(False))


def _hashes(leaves: tf.Tensor) -> tf.Tensor:
  """Returns a hash of each string."""
  return tf.strings.to_hash_bucket_fast(leaves, _HASH_VALUES)


def _seal(hashes: tf.Tensor) -> tf.Tensor:
  """Returns the hashes of a state's strings, as one string.

  A file that was cut or changed may still parse: where a serialized tensor has
  lost its last strings, TensorFlow repeats the one before.
  """
  return tf.strings.reduce_join(tf.strings.as_string(hashes), separator=' ')


def folder_of(folder: str, seed: int, client: int) -> str:
  """Returns the folder of a client's versions."""
  return os.path.join(folder, f'seed-{seed}', str(client))


def newest(
  folder: str, seed: int, round_num: int, clients: Iterable[int] | None = None
) -> dict[int, pathlib.Path]:
  """Returns the files that clients, by default all, would read in a round."""
  of_run = pathlib.Path(folder, f'seed-{seed}')
  if clients is None:
    names = (path.name for path in of_run.glob('*'))
    clients = [int(name) for name in names if name.lstrip('-').isdecimal()]
  versions = {
    client: _versions_before(of_run / str(client), round_num)
    for client in clients
  }
  return {client: paths[-1] for client, paths in versions.items() if paths}


def prune(
  folder: str, seed: int, clients: Iterable[int], round_num: int
) -> None:
  """Removes what a run that goes on after `round_num` rounds cannot need."""
  for client in clients:
    own = pathlib.Path(folder_of(folder, seed, client))
    for path in _versions_before(own, round_num)[:-1]:
      path.unlink()


def _versions_before(own: pathlib.Path, round_num: int) -> list[pathlib.Path]:
  """Returns a client's versions of rounds before one, the oldest first."""
  versions = own.glob('[0-9]' * _DIGITS + _SUFFIX)
  return sorted(path for path in versions if int(path.stem) < round_num)


def _folder_of(folder, task):
  return tf.strings.join(
    [
      f'{folder}/seed-',
      tf.strings.as_string(task.seed),
      '/',
      tf.strings.as_string(task.client),
    ]
  )
