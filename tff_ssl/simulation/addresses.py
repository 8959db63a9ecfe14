"""Addresses of workers on other machines, as a user writes them.

This module works without TensorFlow. So a wrong address is refused before the
import of TensorFlow, which takes seconds.
"""

import ipaddress
import urllib.parse


def parse(text: str) -> list[str]:
  """Returns the addresses in a comma-separated list.

  Args:
    text: `host:port,...`; an IPv6 host stands in brackets.

  Returns:
    The addresses, each `host:port`, with host names in small letters.

  Raises:
    ValueError: If an address has another form, or is listed twice.
  """
  addresses = []
  for part in text.split(','):
    address = _normalized(part.strip())
    if address in addresses:
      raise ValueError(f'{address} stands there twice: name each worker once.')
    addresses.append(address)
  return addresses


def is_loopback(address: str) -> bool:
  """Returns whether only this machine can reach an address of `parse`."""
  host = urllib.parse.urlsplit(f'//{address}').hostname
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == 'localhost'


def _normalized(address: str) -> str:
  try:
    parts = urllib.parse.urlsplit(f'//{address}')
    port = parts.port
  except ValueError:  # A port outside [0, 65535], or half a bracket.
    parts, port = None, None
  # Whatever else a URL can hold is no part of an address.
  if (
    not port
    or not parts.hostname
    or address.split() != [address]
    or address.lower()
    not in (f'{parts.hostname}:{port}', f'[{parts.hostname}]:{port}')
  ):
    raise ValueError(
      f'{address!r} is not host:port: write addresses such as 10.0.0.2:8000, '
      'with commas between them.'
    )
  return address.lower()
