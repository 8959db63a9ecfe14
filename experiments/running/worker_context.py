"""Starts what computes for TFF: a worker, and with it maybe a cluster."""

import types

from experiments.running import client_state_files
from tff_ssl.simulation import ray_cluster, ray_context, workers


def install(
  settings: types.SimpleNamespace,
  *,
  store_path: str,
  client_state_folder: str | None,
) -> None:
  """Makes what a run computes on TFF's execution context.

  Prints the ports on which workers of this machine listen.

  Args:
    settings: What has `cluster`, `cluster_parts`, `cluster_cores`,
      `part_timeout`, `shared_disk`, `worker_timeout`, `clients_per_round`,
      `precision` and `seed`.
    store_path: The client store.
    client_state_folder: The folder of the clients' states; `None` where clients
      keep none.

  Raises:
    ValueError: If the cluster of --cluster cannot be used.
    RuntimeError: If no worker can be started on this machine.
  """
  # oneDNN has no kernels for bfloat16 on processors without AVX512.
  use_onednn = settings.precision == 'float32'
  if not settings.cluster:
    workers.install_context(
      threads_per_op=workers.threads_for(settings.clients_per_round or 0),
      answer_timeout_s=settings.worker_timeout,
      use_onednn=use_onednn,
    )
  else:
    if settings.shared_disk:
      probes = []
      if client_state_folder is not None:
        probes.append(client_state_files.make_probe(client_state_folder))
      files = {'needed_files': [store_path, *probes]}
    else:
      files = {'sent_files': [store_path]}
      if client_state_folder is not None:
        files['travelling_folders'] = client_state_files.Travelling(
          client_state_folder, settings.seed
        )
    try:
      ray_context.install_ray_context(
        settings.cluster,
        num_parts=min(settings.cluster_parts, settings.clients_per_round),
        cores_per_process=settings.cluster_cores,
        part_timeout_s=settings.part_timeout,
        answer_timeout_s=settings.worker_timeout,
        use_onednn=use_onednn,
        **files,
      )
    except RuntimeError as error:
      raise ValueError(f'--cluster={settings.cluster}: {error}') from error
    ray_cluster.say_if_killed(
      'error: The run was killed, or lost a process of its Ray cluster: start '
      'again to continue.'
    )
  ports = ', '.join(map(str, workers.listening_ports()))
  print(
    "TFF's worker processes listen on all network interfaces, without a "
    f'password (port {ports}): keep this machine behind a firewall.',
    flush=True,
  )
