"""What this machine's processor can do, and how TensorFlow uses it."""

import atexit
import functools
import logging

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import processor

# Processor flags that make bfloat16 arithmetic faster than float32.
_FAST_BFLOAT16 = ('amx_bf16', 'avx512_bf16')


class _NoContext(tff.framework.SyncContext):
  """Takes the place of TFF's default context when a command ends."""

  def invoke(self, comp, arg):
    raise RuntimeError('The command has ended.')


def set_up_tensorflow() -> None:
  """Hides GPUs from TensorFlow, and silences logs below a warning."""
  logging.getLogger().setLevel(logging.WARNING)
  tf.get_logger().addFilter(_is_no_false_alarm)
  tf.config.set_visible_devices([], 'GPU')
  _end_quietly()


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
  """Passes over a warning of each secure sum that is traced.

  TFF checks its bounds by an operation that TensorFlow takes for a forgotten
  one.
  """
  return 'Object was never used' not in record.getMessage()


@functools.cache
def _end_quietly() -> None:
  """Removes TFF's default context before Python removes its modules.

  It needs them to end, and prints an error message without them.
  """
  atexit.register(tff.framework.set_default_context, _NoContext())


def warn_of_slow_precision(precision: str) -> None:
  """Logs a warning where `precision` is slower than float32 here."""
  if precision == 'bfloat16' and not processor.flags() & set(_FAST_BFLOAT16):
    logging.getLogger(__name__).warning(
      '--precision=bfloat16 is slower than float32 on this processor: it has '
      'none of %s.',
      ', '.join(_FAST_BFLOAT16),
    )
