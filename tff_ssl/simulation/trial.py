"""Starts a worker, computes with it and ends it: `tff_ssl.doctor` runs this.

It is a program of its own, so that one that hangs can be given up. It writes a
line after each step:

  * `imported`: TensorFlow Federated is there;
  * `answered SECONDS`: a worker has started and returned what it had to;
  * `failed SENTENCE`: it has not.
"""

import ctypes
import signal
import time

_SET_PARENT_DEATH_SIGNAL = 1


def main() -> int:
  """Runs all steps and returns the exit code."""
  # Whoever waits for the steps may be killed; nobody would give this up then.
  ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl.simulation import workers

  print('imported', flush=True)

  @tff.tensorflow.computation(tf.int32)
  def double(number):
    return 2 * number

  began = time.monotonic()
  try:
    workers.install_context()
    answer = double(21)
  except RuntimeError as error:
    print('failed', ' '.join(str(error).split()), flush=True)
    return 1
  if answer != 42:
    print(f'failed The TFF worker says that 2 * 21 is {answer}.', flush=True)
    return 1
  print(f'answered {time.monotonic() - began:.2f}', flush=True)
  workers.stop_workers()
  return 0


if __name__ == '__main__':
  raise SystemExit(main())
