"""From the flags of workers to TFF's execution context."""

from experiments.running import client_states
from tff_ssl.simulation import addresses, client_reader, workers


def install(settings, spec, store) -> None:
  """Starts or reaches the workers of a run, which then compute for TFF.

  Prints on which ports the workers listen that are started here.

  Args:
    settings: From `experiments.config.settings.make`.
    spec: The process's `ProcessSpec`.
    store: The client store, which every worker must be able to read, as it
      must the states of clients, where they keep any.

  Raises:
    ValueError: If a worker of --worker_addresses cannot be used.
    RuntimeError: If a local worker cannot start.
  """
  if not settings.worker_addresses:
    workers.install_context(
      settings.workers or 1,
      threads_per_op=workers.threads_for(settings.clients_per_round or 0),
      answer_timeout_s=settings.worker_timeout,
    )
    ports = ', '.join(map(str, workers.listening_ports()))
    print(
      "TFF's worker processes listen on all network interfaces, without a "
      f'password (port {ports}): keep this machine behind a firewall.',
      flush=True,
    )
    return
  try:
    context = workers.install_context(
      addresses=addresses.parse(settings.worker_addresses),
      answer_timeout_s=settings.worker_timeout,
    )
    client_reader.check_readable(store.path, context)
    if spec.keeps_client_state:
      client_reader.check_readable(client_states.make_probe(settings), context)
  except RuntimeError as error:
    raise ValueError(
      f'--worker_addresses={settings.worker_addresses}: {error}'
    ) from error
