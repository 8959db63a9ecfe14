"""Starts or reaches the workers that compute for TFF."""

from experiments.running import client_state_files
from tff_ssl.simulation import addresses, client_reader, workers


def install(
  *,
  num_workers: int | None,
  worker_addresses: str | None,
  timeout_s: float,
  clients_per_round: int | None,
  store_path: str,
  client_state_folder: str | None,
) -> None:
  """Makes the workers of a run TFF's execution context.

  Prints the ports on which workers listen that are started on this machine.

  Args:
    num_workers: Workers to start on this machine; `None` for one.
    worker_addresses: Workers that run already, as `host:port,...`, to be used
      instead; `None` or empty for none.
    timeout_s: Seconds without an answer after which a worker is given up.
    clients_per_round: C; `None` where no client takes part.
    store_path: The client store, which every worker must be able to read.
    client_state_folder: The folder of the clients' states, which every worker
      must see, too; `None` where clients keep none.

  Raises:
    ValueError: If a worker of --worker_addresses cannot be used.
    RuntimeError: If a worker cannot be started on this machine.
  """
  if not worker_addresses:
    workers.install_context(
      num_workers or 1,
      threads_per_op=workers.threads_for(clients_per_round or 0),
      answer_timeout_s=timeout_s,
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
      addresses=addresses.parse(worker_addresses), answer_timeout_s=timeout_s
    )
    client_reader.check_readable(store_path, context)
    if client_state_folder is not None:
      client_reader.check_readable(
        client_state_files.make_probe(client_state_folder), context
      )
  except RuntimeError as error:
    raise ValueError(f'--worker_addresses={worker_addresses}: {error}') from (
      error
    )
