"""The connection to a Ray cluster.

Ray is optional: `requirements-ray.txt` has it. This module works without
TensorFlow.
"""

import logging
import os
import signal
import socket
import sys

from tff_ssl.simulation import channels

_INSTALL = (
  'Ray is not installed: install it with the pins of requirements-ray.txt '
  '(make ray, in a checkout).'
)


def connect(address: str) -> None:
  """Connects this process to a Ray cluster, unless it is connected already.

  Args:
    address: `local` to start one on this machine, which ends with this process;
      `auto` for the one that runs on this machine; or the address of another.

  Raises:
    RuntimeError: If Ray is not installed, or the cluster cannot be reached.
    SystemExit: With 143, on SIGTERM while Ray starts.
  """
  ray = import_ray()
  if ray.is_initialized():
    return
  if ':' in address:
    _check_listens(address)
  # Ray reports the use of a cluster to its makers unless it is told not to.
  os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
  # Without it, Ray warns of a change that only concerns GPUs.
  os.environ.setdefault('RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO', '0')
  handler = signal.getsignal(signal.SIGTERM)
  options = {}
  if address == 'local':
    # By default it would listen on all interfaces, without a password.
    options = {'include_dashboard': False, '_node_ip_address': '127.0.0.1'}
    # Seconds after which the last processes of the cluster notice that this one
    # was killed; by default, a minute.
    os.environ.setdefault('RAY_gcs_rpc_server_reconnect_timeout_s', '5')
  try:
    ray.init(
      address=address,
      log_to_driver=False,
      logging_level=logging.ERROR,
      **options,
    )
    if callable(handler):  # Ray has put its own in the place of any.
      signal.signal(signal.SIGTERM, handler)
  except SystemExit as error:
    # Ray's handler exits with the bare number of the signal.
    if error.code != signal.SIGTERM:
      raise
    raise SystemExit(128 + signal.SIGTERM) from error
  except (ConnectionError, ValueError, RuntimeError) as error:
    raise _unreachable(address, channels.first_cause(error)) from error


def _check_listens(address: str) -> None:
  """Refuses an address where nobody listens, for which Ray waits minutes."""
  host, _, port = address.rpartition(':')
  try:
    socket.create_connection((host.strip('[]'), int(port)), 5.0).close()
  except (OSError, ValueError) as error:
    raise _unreachable(address, f'{error}.') from error


def _unreachable(address: str, why: str) -> RuntimeError:
  return RuntimeError(
    f'The Ray cluster {address!r} cannot be reached: {why.rstrip(".")}. Start '
    'one with `ray start --head`, or name the address of one that runs. If it '
    'asks for a token or TLS, set the variables of Ray that it has.'
  )


def import_ray():
  """Returns the module `ray`.

  Ray puts copies of some packages, such as psutil, before those that are
  installed. Here they go behind them, so that the versions that a run records,
  and the doctor examines, are those that are installed.

  Raises:
    RuntimeError: If it is not installed.
  """
  before = list(sys.path)
  try:
    import ray
    import ray.exceptions
  except ImportError as error:
    raise RuntimeError(_INSTALL) from error
  added = [path for path in sys.path if path not in before]
  sys.path[:] = [path for path in sys.path if path in before] + added
  return ray
