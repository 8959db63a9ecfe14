"""Whether a server can be reached, asked before a long download begins.

Download libraries retry for minutes, and some wait for ever. Here a machine
without a network is told in seconds.
"""

import http.client
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable

_SECONDS = 10.0


def check_reachable(
  urls: Iterable[str],
  dataset: str,
  remedy: str,
  seconds: float = _SECONDS,
  mirror: str | None = None,
) -> None:
  """Asks the server of each URL for an answer, whatever it says.

  Proxies are taken from the environment, as the download libraries do.

  Args:
    urls: What is to be downloaded. One URL of each server is asked for.
    dataset: Name of the data set, for the message.
    remedy: What to do without a network, the end of a sentence.
    seconds: How long to wait in all.
    mirror: A URL of a server that may have all of it, and is enough.

  Raises:
    ValueError: If a server does not answer in time, and the mirror neither.
  """
  by_server = {urllib.parse.urlsplit(url).netloc: url for url in urls}
  of_mirror = None
  if mirror is not None:
    of_mirror = urllib.parse.urlsplit(mirror).netloc
    by_server[of_mirror] = mirror
  errors = dict.fromkeys(by_server, f'no answer in {seconds:g} seconds')

  def ask(server: str, url: str) -> None:
    errors[server] = _error_of(url, seconds)

  # In threads, for nothing limits the time in which a name is looked up, and
  # daemons, so that they do not hold the program back.
  threads = [
    threading.Thread(target=ask, args=item, daemon=True)
    for item in by_server.items()
  ]
  for thread in threads:
    thread.start()
  deadline = time.monotonic() + seconds
  for thread in threads:
    thread.join(max(0.0, deadline - time.monotonic()))
  if of_mirror is not None and errors[of_mirror] is None:
    return
  for server, error in errors.items():
    if error is not None:
      raise ValueError(
        f'dataset={dataset!r} must be downloaded, and {server} cannot be '
        f'reached ({error}): {remedy}.'
      )


def _error_of(url: str, seconds: float) -> str | None:
  """Returns why a server does not answer, `None` where it does."""
  request = urllib.request.Request(url, method='HEAD')
  try:
    urllib.request.urlopen(request, timeout=seconds).close()
  except (OSError, ValueError, http.client.HTTPException) as error:
    reason = getattr(error, 'reason', error)
    # It answers, if only that it does not like the question, or by a
    # certificate that the download library may know: that one shall judge.
    answered = isinstance(error, urllib.error.HTTPError) or isinstance(
      reason, ssl.SSLCertVerificationError
    )
    return None if answered else str(reason)
  return None
