"""Curves as they are stored, and figures as pages write them."""

import pytest

from experiments.tables import seeds
from tools import stored_results


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Files of FedUL, as this one is by its name, have 8,920 test examples."""
  monkeypatch.setattr(stored_results, 'RESULTS', tmp_path)
  (tmp_path / 'fedul_x_curves.csv').write_text(
    'run,seed,round,accuracy,mask_rate\n'
    'a,0,2,0.5001,.3\na,0,1,0.5,\na,1,2,,\nb,0,3,0.75,\n'
  )
  return tmp_path


def test_an_accuracy_is_a_number_of_examples(folder):
  curves = stored_results.curves('fedul_x')
  assert list(curves.index) == [1, 2, 3]
  assert list(curves.columns) == [('a', 0), ('b', 0)]
  assert curves['a', 0][2] == 4461 / 8920
  masks = stored_results.curves('fedul_x', column='mask_rate')
  assert masks.to_dict() == {('a', 0): {2: 0.3}}


def test_last_evaluations_of_runs_of_unequal_lengths(folder):
  curves = stored_results.curves('fedul_x')
  by_number = [stored_results.last(curves, number) for number in (1, 5)]
  assert [last['a', 0] for last in by_number] == [
    4461 / 8920,
    pytest.approx((0.5 + 4461 / 8920) / 2),
  ]
  assert [last['b', 0] for last in by_number] == [0.75, 0.75]


def test_the_same_run_twice_is_refused(folder):
  with pytest.raises(ValueError, match='duplicate'):
    stored_results.curves('fedul_x', 'fedul_x')


@pytest.mark.parametrize(
  ('value', 'share', 'signed'),
  [
    (0.0784, '.078', '+.078'),
    (-0.134, '-.134', '-.134'),
    (-0.0004, '-.000', '-.000'),
    (0.0, '.000', '+.000'),
    (1.0, '1.000', '+1.000'),
    (10.5, '10.500', '+10.500'),
    ([0.25, float('nan'), 0.75], '.500', '+.500'),
  ],
)
def test_as_pages_write_them(value, share, signed):
  assert stored_results.share(value) == share
  assert stored_results.signed(value) == signed


def test_a_lead_has_an_interval_if_there_is_one():
  assert (
    stored_results.lead(seeds.Spread(3, 0.0784, low=0.0411, high=0.1157))
    == '+.078 (+.041 to +.116)'
  )
  assert stored_results.lead(seeds.Spread(1, -0.0784)) == '-.078'
