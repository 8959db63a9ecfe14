"""How TensorFlow uses this machine."""

from __future__ import annotations

import logging
import os

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl.simulation import contexts


def choose_kernels(clients_per_round: int | None) -> None:
  """Lets TensorFlow compute clients fast, unless the user has chosen.

  To be called before it is imported.
  """
  # TensorFlow takes oneDNN by itself on processors with AVX512_VNNI or later
  # alone; those with AVX2 gain, too (docs/explanation/speed.md).
  os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
  # Clients are computed side by side.
  cores = len(os.sched_getaffinity(0))
  threads = max(1, cores // max(1, clients_per_round or cores))
  os.environ.setdefault('TF_NUM_INTRAOP_THREADS', str(threads))


def set_up_tensorflow(device: str | None = None) -> None:
  """Silences logs below a warning, and may hide GPUs from TensorFlow.

  Args:
    device: `'cpu'` hides them.
  """
  logging.getLogger().setLevel(logging.WARNING)
  tf.get_logger().addFilter(_is_no_false_alarm)
  if device == 'cpu':
    tf.config.set_visible_devices([], 'GPU')
  contexts.end_quietly()


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
  """Passes over a warning of each secure sum that is traced.

  TFF checks its bounds by an operation that TensorFlow takes for a forgotten
  one.
  """
  return 'Object was never used' not in record.getMessage()
