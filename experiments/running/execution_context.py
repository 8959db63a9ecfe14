"""Installs what computes for TFF: this process, a worker, or a cluster."""

import types

from experiments.running import client_state_files
from tff_ssl.simulation import (
  contexts,
  ray_cluster,
  ray_context,
  worker_context,
)


def install(
  settings: types.SimpleNamespace,
  *,
  store_path: str,
  client_state_folder: str | None,
) -> None:
  """Makes what a run computes on TFF's execution context.

  Prints the port on which a worker listens.

  Args:
    settings: What has `context`, `device`, `cluster`, `cluster_parts`,
      `cluster_cores`, `part_timeout`, `shared_disk`, `clients_per_round`
      and `seed`.
    store_path: The client store.
    client_state_folder: The folder of the clients' states; `None` where clients
      keep none.

  Raises:
    ValueError: If the device or the cluster cannot be used.
    RuntimeError: If no worker can be started on this machine.
  """
  if not settings.cluster:
    contexts.install_context(settings.context, device=settings.device)
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
        **files,
      )
    except RuntimeError as error:
      raise ValueError(f'--cluster={settings.cluster}: {error}') from error
    ray_cluster.say_if_killed(
      'error: The run was killed, or lost a process of its Ray cluster: start '
      'again to continue.'
    )
  for port in worker_context.ports():
    print(
      "TFF's worker listens on all network interfaces, without a password "
      f'(port {port}): keep this machine behind a firewall.',
      flush=True,
    )
