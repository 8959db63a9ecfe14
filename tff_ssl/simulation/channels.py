"""What all gRPC channels to TFF workers share: options, pings, errors."""

import grpc

# The text of an error is sent as metadata, too.
_MAX_METADATA_BYTES = 16 * 2**20
OPTIONS = (
  # TFF's own limit; gRPC's default of 4 MB is smaller than most models.
  ('grpc.max_receive_message_length', 2_000_000_000),
  ('grpc.max_send_message_length', 2_000_000_000),
  # By default, an error of more than 16 kB arrives without its text.
  ('grpc.max_metadata_size', _MAX_METADATA_BYTES),
  ('grpc.absolute_max_metadata_size', _MAX_METADATA_BYTES),
  # With http_proxy set, gRPC would ask the proxy for this very machine.
  ('grpc.enable_http_proxy', 0),
  # The first attempt comes before the worker listens; the default waits 1 s.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.min_reconnect_backoff_ms', 100),
)
# Seconds between two pings.
PING_EVERY_S = 5.0
# Seconds to wait for a worker that has just failed.
SHORT_S = 1.0
# No worker has this method. The error that it returns shows that it is alive.
_PING = '/tff_ssl.Worker/Ping'
_MAX_LINE = 500
_COUNT_OF_CAUSES = 'root error(s) found.'


class Pings:
  """Asks a worker whether it is alive, also while it computes."""

  def __init__(self, channel: grpc.Channel):
    """Initializes the pings.

    Args:
      channel: To the worker.
    """
    self._ping = channel.unary_unary(_PING)

  def is_answered(self, within_s: float, wait_for_ready: bool = False) -> bool:
    """Sends one.

    Args:
      within_s: Seconds to wait for the answer.
      wait_for_ready: Whether to wait for the connection, too.

    Returns:
      Whether the worker has answered in time.
    """
    try:
      self._ping(b'', timeout=within_s, wait_for_ready=wait_for_ready)
    except grpc.RpcError as error:
      return error.code() == grpc.StatusCode.UNIMPLEMENTED
    return True


def first_cause(error: BaseException) -> str:
  """Returns the first cause that the text of an error names, in one line.

  Args:
    error: Any exception. TensorFlow's texts go on with names of nodes, and
      begin with the number of causes if there are several.
  """
  text = error.details() if hasattr(error, 'details') else str(error)
  lines = (text or type(error).__name__).splitlines()
  line = lines[0]
  if line.endswith(_COUNT_OF_CAUSES) and len(lines) > 1:
    line = f'{line} {lines[1].strip()}'
  return line if len(line) <= _MAX_LINE else f'{line[:_MAX_LINE]} ...'
