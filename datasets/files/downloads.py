"""Checks that a server can be reached before a long download begins.

Download libraries retry for minutes, and some wait forever.
"""

import http.client
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable


def check_reachable(
  urls: Iterable[str],
  dataset: str,
  remedy: str,
  seconds: float = 10.0,
  mirror: str | None = None,
) -> None:
  """Checks that the server of each URL, or the mirror, gives any answer.

  Like the download libraries, it takes proxies from the environment. `remedy`
  ends a sentence that says what to do without a network.
  """
  by_server = {urllib.parse.urlsplit(url).netloc: url for url in urls}
  of_mirror = None
  if mirror is not None:
    of_mirror = urllib.parse.urlsplit(mirror).netloc
    by_server[of_mirror] = mirror
  errors = dict.fromkeys(by_server, f'no answer in {seconds:g} seconds')

  def ask(server: str, url: str) -> None:
    request = urllib.request.Request(url, method='HEAD')
    try:
      urllib.request.urlopen(request, timeout=seconds).close()
    except urllib.error.HTTPError:
      pass  # An answer, too.
    except (OSError, ValueError, http.client.HTTPException) as error:
      reason = getattr(error, 'reason', error)
      # The download library may know a certificate that is unknown here.
      if not isinstance(reason, ssl.SSLCertVerificationError):
        errors[server] = str(reason)
        return
    errors[server] = None

  # Threads, because a name lookup has no time limit. Daemons, because the
  # program must be able to end while a lookup hangs.
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
