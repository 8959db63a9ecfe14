"""Addresses as users write them."""

import pytest

from tff_ssl.simulation import addresses


@pytest.mark.parametrize(
  'text, parsed',
  [
    ('127.0.0.1:8000', ['127.0.0.1:8000']),
    ('a:1, B.example:65535', ['a:1', 'b.example:65535']),
    ('[::1]:8000', ['[::1]:8000']),
  ],
)
def test_lists(text, parsed):
  assert addresses.parse(text) == parsed


@pytest.mark.parametrize(
  'text',
  [
    *('host', 'host:', ':8000', 'host:port', 'host:0', 'host:65536', 'a:1,'),
    *('http://host:1', 'host:1/x', 'user@host:1', 'a b:1', '::1:8000', '[::1'),
    *('a:1;b:2', 'a:-1'),
  ],
)
def test_what_is_no_address(text):
  with pytest.raises(ValueError, match='is not host:port'):
    addresses.parse(text)


def test_a_worker_is_named_once():
  with pytest.raises(ValueError, match='a:1 stands there twice'):
    addresses.parse('a:1,b:1,A:1')


@pytest.mark.parametrize(
  'address, is_near',
  [
    ('127.0.0.1:1', True),
    ('127.8.0.1:1', True),
    ('[::1]:1', True),
    ('localhost:1', True),
    ('10.0.0.1:1', False),
    ('0.0.0.0:1', False),
    ('localhost.example:1', False),
  ],
)
def test_loopback(address, is_near):
  assert addresses.is_loopback(address) == is_near
