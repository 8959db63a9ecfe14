"""What computes: TensorFlow's kernels and devices, and TFF's context."""

from __future__ import annotations

import logging
import os
import types

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl.simulation import (
    contexts,
    ray_cluster,
    ray_context,
    worker_context,
  )


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


def install(
  settings: types.SimpleNamespace,
  *,
  store_path: str,
  client_state_folder: str | None,
) -> None:
  """Makes what a run computes on TFF's execution context.

  Prints the port on which a worker listens. Where clients keep states, these
  lie in `client_state_folder`.
  """
  if not settings.cluster:
    contexts.install_context(settings.context, device=settings.device)
  else:
    _install_cluster(settings, store_path, client_state_folder)
  for port in worker_context.ports():
    print(
      "TFF's worker listens on all network interfaces, without a password "
      f'(port {port}): keep this machine behind a firewall.',
      flush=True,
    )


def _install_cluster(settings, store_path, client_state_folder) -> None:
  # Ray may end this process from its first moment on.
  ray_cluster.say_if_killed(
    'error: The run was killed, or lost a process of its Ray cluster: start '
    'again to continue.'
  )
  needed = [store_path]
  if client_state_folder is not None:
    needed.append(_write_probe(client_state_folder))
  try:
    ray_context.install_ray_context(
      settings.cluster,
      num_parts=min(settings.cluster_parts, settings.clients_per_round),
      cores_per_process=settings.cluster_cores,
      part_timeout_s=settings.part_timeout,
      needed_files=needed,
    )
  except RuntimeError as error:
    raise ValueError(f'--cluster={settings.cluster}: {error}') from error


def _write_probe(states: str) -> str:
  """Writes a file that shows whether a worker sees the folder of the states.

  The clients of a worker that does not see it would begin anew in every round.
  """
  path = os.path.join(states, 'shared_by_all_workers')
  os.makedirs(states, exist_ok=True)
  with open(path, 'wb') as file:
    file.write(b'1')
  return path
