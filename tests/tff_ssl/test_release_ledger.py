"""Rounds that are repeated after a kill count twice."""

import pytest

import tff_ssl


def test_a_kill_after_a_release_costs_as_much_as_it_should(tmp_path):
  """Rounds 1 to 3, a kill after the release of 3, then 3 and 4 from round 2."""
  file = tmp_path / 'released_rounds.json'

  def train(first, last, ledger):
    for _ in range(first, last + 1):
      ledger.begin_round()
      file.write_bytes(ledger.pack())

  train(1, 3, tff_ssl.ReleaseLedger.unpack(None))
  resumed = tff_ssl.ReleaseLedger.unpack(file.read_bytes(), rounds_done=2)
  train(3, 4, resumed)
  assert resumed.rounds == 5
  account = tff_ssl.PrivacyAccount(
    noise_multiplier=1.0,
    clients_per_round=4,
    num_clients=10,
    sampling='none',
  )
  assert account.epsilon(resumed.rounds) > account.epsilon(4)


@pytest.mark.parametrize(
  'content',
  [b'', b'[]', b'{}', b'{"rounds": -1}', b'{"rounds": "2"}', b'\xff', b'3'],
)
def test_damaged_ledgers(content):
  with pytest.raises(ValueError, match='ledger .* is damaged .*: restore'):
    tff_ssl.ReleaseLedger.unpack(content)


@pytest.mark.parametrize('content', [None, b'{"rounds": 6}'])
def test_a_ledger_older_than_its_run(content):
  with pytest.raises(ValueError, match='counts [06] .* rounds_done=7: restore'):
    tff_ssl.ReleaseLedger.unpack(content, rounds_done=7)
