"""What this machine's processor can do, and how TensorFlow uses it."""

from __future__ import annotations

import logging
import os

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import doctor
  from tff_ssl.simulation import contexts

# Processor flags that make bfloat16 arithmetic faster than float32.
_FAST_BFLOAT16 = ('amx_bf16', 'avx512_bf16')


def choose_kernels(
  precision: str | None, clients_per_round: int | None
) -> None:
  """Lets TensorFlow compute clients fast, unless the user has chosen.

  To be called before it is imported.
  """
  # TensorFlow takes oneDNN by itself on processors with AVX512_VNNI or later
  # alone; those with AVX2 gain, too (docs/explanation/speed.md). It has no
  # kernels for bfloat16 on processors without AVX512.
  if precision != 'bfloat16':
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


def warn_of_slow_precision(precision: str) -> None:
  """Logs a warning where `precision` is slower than float32 here."""
  if precision == 'bfloat16' and not doctor.processor_flags() & set(
    _FAST_BFLOAT16
  ):
    logging.getLogger(__name__).warning(
      '--precision=bfloat16 is slower than float32 on this processor: it has '
      'none of %s.',
      ', '.join(_FAST_BFLOAT16),
    )
