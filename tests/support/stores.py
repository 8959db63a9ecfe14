"""What a packed store holds, as arrays."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from datasets.store import client_store


class Part(NamedTuple):
  """Examples, the labels that the process may see, and the true ones."""

  examples: np.ndarray
  y: np.ndarray
  true_y: np.ndarray


def read(store: client_store.ClientStore, part: int | str) -> Part:
  """Reads the part of a client, or of the 'server'."""
  number = store.num_clients if part == 'server' else part
  dataset = client_store.part_dataset(store, tf.constant(number))
  element = dataset.get_single_element()
  return Part(*(tensor.numpy() for tensor in element.values()))
