"""What an error of a computation says, in one line."""

import grpc
import pytest

from tff_ssl.simulation import errors


class RpcError(grpc.RpcError):
  """As gRPC raises it; its `str` is of several lines."""

  def __init__(self, details):
    self._details = details

  def details(self):
    return self._details


@pytest.mark.parametrize(
  'error, line',
  [
    (ValueError('bad shape\nat node x'), 'bad shape'),
    (ValueError(), 'ValueError'),
    (RpcError(None), 'RpcError'),
    (RpcError('Failed: no file\n\t [[{{node Read}}]]'), 'Failed: no file'),
    (
      RpcError(
        'Failed: 2 root error(s) found.\n  (0) ABORTED: first\n\t [[x]]\n  (1)'
      ),
      'Failed: 2 root error(s) found. (0) ABORTED: first',
    ),
    (RpcError('2 root error(s) found.'), '2 root error(s) found.'),
    (RpcError('y' * 501), 'y' * 500 + ' ...'),
  ],
)
def test_first_cause(error, line):
  assert errors.first_cause(error) == line
