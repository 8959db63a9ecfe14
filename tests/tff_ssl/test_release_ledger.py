"""Rounds that are repeated count once for each time, and by their draws."""

import json

import pytest

import tff_ssl


def _unpacked(ledger, **given):
  return tff_ssl.ReleaseLedger.unpack(ledger.pack(), **given)


def test_a_kill_after_a_release_costs_as_much_as_it_should():
  """Rounds 0 to 2, a kill after the release of 2, then 2 and 3 again."""
  ledger = tff_ssl.ReleaseLedger.unpack(None)
  for round_num in range(3):
    ledger.begin_round(round_num)
  resumed = _unpacked(ledger, rounds_done=2)
  for round_num in (2, 3):
    resumed.begin_round(round_num)
  assert resumed.rounds == 5
  assert resumed.releases() == {1: 3, 2: 1}
  account = tff_ssl.PrivacyAccount(
    noise_multiplier=1.0, clients_per_round=4, num_clients=100
  )
  epsilon = account.epsilon(resumed.releases())
  assert epsilon > account.epsilon(resumed.rounds) > account.epsilon(4)


def test_other_clients_for_one_round_are_another_draw():
  ledger = tff_ssl.ReleaseLedger()
  # The round 1 is given up twice. Of its draws, one is repeated after a kill,
  # and another one after a second kill.
  for round_num, attempt in ((0, 0), (1, 0), (1, 1), (1, 2), (1, 1), (1, 2)):
    ledger.begin_round(round_num, attempt)
    ledger = _unpacked(ledger)
  assert ledger.releases() == {1: 2, 2: 2}
  assert ledger.rounds == 6 and ledger.begun == 2
  # The file grows with what is repeated, not with the rounds.
  for round_num in range(2, 2000):
    ledger.begin_round(round_num)
  assert len(ledger.pack()) < 100
  with pytest.raises(ValueError, match='attempt must be .* but is -1'):
    ledger.begin_round(3, -1)


@pytest.mark.parametrize(
  'rounds, done, releases',
  [(0, 0, {}), (5, 5, {1: 5}), (7, 5, {1: 4, 3: 1}), (2, 0, {2: 1})],
)
def test_files_that_count_rounds_alone(rounds, done, releases):
  """As older versions wrote them: the worst that they can mean."""
  content = json.dumps({'rounds': rounds}).encode()
  ledger = tff_ssl.ReleaseLedger.unpack(content, rounds_done=done)
  assert ledger.releases() == releases
  assert ledger.rounds == rounds
  ledger.begin_round(done)
  assert ledger.rounds == rounds + 1


@pytest.mark.parametrize(
  'content',
  [
    *(b'', b'[]', b'{}', b'\xff', b'3', b'{"begun": 2}', b'{"rounds": -1}'),
    *(
      json.dumps({'begun': 2, 'repeated': {}, **wrong}).encode()
      for wrong in (
        {'begun': -1},
        {'begun': '2'},
        {'repeated': []},
        {'repeated': {'2': [2]}},
        {'repeated': {'1': []}},
        {'repeated': {'1': [-2]}},
        {'repeated': {'one': [2]}},
      )
    ),
  ],
)
def test_damaged_ledgers(content):
  with pytest.raises(ValueError, match='ledger .* is damaged .*: restore'):
    tff_ssl.ReleaseLedger.unpack(content)


@pytest.mark.parametrize('content', [None, b'{"begun": 6, "repeated": {}}'])
def test_a_ledger_older_than_its_run(content):
  with pytest.raises(ValueError, match='counts [06] .* rounds_done=7: restore'):
    tff_ssl.ReleaseLedger.unpack(content, rounds_done=7)
