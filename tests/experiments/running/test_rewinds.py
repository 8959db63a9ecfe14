"""When clients pause, and what a checkpoint says of it, by hand."""

from experiments.running import rewinds


def test_clients_pause_from_the_sound_round_to_the_collapse():
  noted = rewinds.Rewinds()
  noted.note(10, {'is_collapsing': 0})
  noted.note(15, {})  # Not measured.
  noted.note(20, {'is_collapsing': 1})
  assert noted.go_back(20) == 10
  paused = [n for n in range(1, 40) if noted.is_paused(n)]
  assert paused == list(range(11, 21))
  # The next collapse is later, and so is what it leads back to.
  noted.note(20, {'is_collapsing': 0})
  noted.note(30, {'is_collapsing': 1})
  assert noted.go_back(30) == 20
  paused = [n for n in range(1, 40) if noted.is_paused(n)]
  assert paused == list(range(11, 31))


def test_a_collapse_at_once_leads_back_to_the_start():
  noted = rewinds.Rewinds()
  assert noted.go_back(5) == 0
  assert [n for n in range(9) if noted.is_paused(n)] == [1, 2, 3, 4, 5]


def test_what_is_packed_is_unpacked():
  noted = rewinds.Rewinds([(10, 20), (20, 30)], 30)
  assert rewinds.Rewinds.unpack(noted.pack()) == noted


def test_a_checkpoint_without_the_file_knows_no_sound_round():
  unpacked = rewinds.Rewinds.unpack(None)
  assert unpacked.sound_round is None and not unpacked.pauses
