"""The connection to a Ray cluster.

Ray is optional: `requirements/ray.txt` has it. This module works without
TensorFlow.
"""

import atexit
import concurrent.futures
import contextlib
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import grpc

from tff_ssl.simulation import processes

_INSTALL = (
  'Ray is not installed: install it with the pins of requirements/ray.txt '
  '(make ray, in a checkout).'
)
_ANSWER_S = 5.0
_BETWEEN_PINGS_S = 1.0
# More than one, since all processes may have been stopped, and continued.
_UNANSWERED_PINGS = 3
_WATCHES: list['Watch'] = []
_LISTENERS: list[subprocess.Popen] = []
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def connect(address: str) -> None:
  """Connects this process to a Ray cluster, unless it is connected already.

  The address is `local` to start one on this machine, which ends with this
  process; `auto` for the one that runs on this machine; or that of another. One
  that cannot be reached is a `RuntimeError`.
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
    raise _unreachable(address, processes.first_cause(error)) from error


class Watch:
  """Notices that the cluster does not answer any more.

  Ray itself then waits for ever, or ends this process without a word.
  """

  def __init__(self):
    """Begins to watch the cluster to which this process is connected."""
    ray = import_ray()
    from ray._common import network_utils

    self._lost = concurrent.futures.Future()
    self._driver = ray._private.worker.global_worker
    self._node = self._driver.node
    context = ray.get_runtime_context()
    [node_address] = [
      network_utils.build_address(
        node['NodeManagerAddress'], node['NodeManagerPort']
      )
      for node in ray.nodes()
      if node['NodeID'] == context.get_node_id()
    ]
    is_own = self._node.is_head()
    self._pings = {
      'node of this machine in': functools.partial(
        _answers, node_address, is_here=True
      ),
      'head of': functools.partial(
        _answers, context.gcs_address, is_here=is_own
      ),
    }
    remedy = '' if is_own else 'see that it runs (`ray status`), and '
    for name, ping in self._pings.items():
      error = RuntimeError(
        f'The {name} the Ray cluster does not answer any more: {remedy}start '
        'again to continue.'
      )
      threading.Thread(
        target=self._watch, args=(ping, error), daemon=True
      ).start()
    _WATCHES.append(self)
    # It comes before Ray's own handler, which would wait for the cluster.
    atexit.register(leave)

  def wait(
    self,
    futures: Sequence[concurrent.futures.Future],
    timeout: float | None = None,
  ) -> set[concurrent.futures.Future]:
    """Waits for the first of some futures, and returns those that are done.

    If the cluster does not answer any more, this is a `RuntimeError`.
    """
    done, _ = concurrent.futures.wait(
      [*futures, self._lost],
      timeout=timeout,
      return_when=concurrent.futures.FIRST_COMPLETED,
    )
    if self._lost in done:
      self._lost.result()
    return done

  def end_if_lost(self) -> bool:
    """Has a local cluster killed that does not answer, and says so.

    It dies when this process has ended. Killed before, its node would end this
    process, by `_exit` with an exit code of its own.
    """
    if self._driver.node is not self._node:  # It has left the cluster.
      return False
    if not self._lost.done() and all(ping() for ping in self._pings.values()):
      return False
    started = [
      str(one.process.pid)
      for kind in self._node.all_processes.values()
      for one in kind
    ]
    self._killer = _start_survivor(
      'read _; kill -9 "$@" 2>/dev/null', 'sh', *started
    )
    return True

  def _watch(self, ping, error) -> None:
    unanswered = 0
    while unanswered < _UNANSWERED_PINGS:
      unanswered = 0 if ping() else unanswered + 1
      time.sleep(_BETWEEN_PINGS_S)
    # The other process may have been lost before.
    with contextlib.suppress(concurrent.futures.InvalidStateError):
      self._lost.set_exception(error)


def _answers(address: str, *, is_here: bool) -> bool:
  """Returns whether a process of Ray answers.

  Where it refuses connections on this machine, it is gone. Behind a network, it
  may come back, and is waited for.
  """
  from ray._private import grpc_utils  # It knows Ray's token and TLS.

  options = [('grpc.enable_http_proxy', 0)]
  try:
    # A channel that stays would complain when the cluster ends.
    with grpc_utils.init_grpc_channel(address, options) as channel:
      ping = channel.unary_unary('/grpc.health.v1.Health/Check')
      ping(b'', timeout=_ANSWER_S, wait_for_ready=not is_here)
  except grpc.RpcError as error:
    return error.code() not in _SILENT
  return True


def say_if_killed(sentence: str) -> None:
  """Has a sentence printed if this process ends without calling `leave`.

  Ray ends it by `_exit` where it writes to a node that is gone.
  """
  _LISTENERS.append(_start_survivor('read _ || echo "$0" >&2', sentence))
  atexit.register(leave)


def _start_survivor(script: str, *arguments: str) -> subprocess.Popen:
  """Starts a shell whose input closes when this process ends, however."""
  return subprocess.Popen(
    ['/bin/sh', '-c', script, *arguments],
    stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL,
    start_new_session=True,  # Ctrl-C does not end it.
  )


def leave(exit_code: int = 1) -> None:
  """Ends this process if its cluster does not answer.

  Ray's own end would hang then, or crash. A local cluster ends, too. Python
  calls this at its exit.
  """
  while _LISTENERS:
    _LISTENERS.pop().communicate(b'\n')
  if any(watch.end_if_lost() for watch in _WATCHES):
    with contextlib.suppress(AttributeError, OSError, ValueError):
      sys.stdout.flush()
    os._exit(exit_code)


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
  """Returns the module `ray`; `RuntimeError` if it is not installed.

  Ray puts copies of some packages, such as psutil, before those that are
  installed. Here they go behind them, so that the versions that a run records,
  and the doctor examines, are those that are installed.
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
