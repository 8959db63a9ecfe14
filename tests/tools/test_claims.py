"""The page of claims: figures worked by hand, and a verdict for each case."""

import dataclasses

import pytest

from experiments.tables import seeds
from tools import claims, stored_results

CLAIM = claims.Claim(
  'one', 'paper', 'Two beats one', 'digits', 'gain', ('t',), 'two', 'one'
)
PUBLISHED = (0.62, 0.5)


def figures(system, control, low=None, high=None, num_seeds=3, ended=False):
  lead = seeds.Spread(num_seeds, system - control, low=low, high=high)
  return claims.Figures(system, control, lead, ended)


def test_the_page_is_current():
  path = stored_results.RESULTS / 'README.md'
  assert path.read_text() == claims.page(), f'Stale: run {claims.COMMAND}'


def test_every_claim_leads_to_a_page():
  _, found = claims.load()
  for claim in found:
    assert bool(claim.page) == bool(claim.curves), claim.key
    if claim.page:
      assert (stored_results.RESULTS / f'{claim.page}.md').exists(), claim.key


AHEAD = figures(0.6, 0.5, 0.05, 0.15)
FAR_AHEAD = figures(0.6, 0.19, 0.3, 0.5)
BEHIND = figures(0.4, 0.5, -0.15, -0.05)
BEHIND_AT_ITS_END = dataclasses.replace(BEHIND, has_ended=True)
# One of the two published figures is .04 away.
AHEAD_OF_LESS = figures(0.6, 0.46, 0.05, 0.15)
LEVEL = {'expects': 'level'}
SETTING = {'in_published_setting': True}


@pytest.mark.parametrize(
  ('found', 'fields', 'published', 'expected'),
  [
    (None, {}, PUBLISHED, 'not run'),
    (AHEAD, {}, PUBLISHED, 'order only'),
    (AHEAD, SETTING, PUBLISHED, 'reproduced'),
    (AHEAD_OF_LESS, SETTING, PUBLISHED, 'order only'),
    (AHEAD, {}, (), 'holds'),
    (figures(0.6, 0.5, -0.01, 0.21), {}, PUBLISHED, 'open'),
    (figures(0.6, 0.5, num_seeds=2), {}, PUBLISHED, 'open'),
    (FAR_AHEAD, {}, PUBLISHED, 'open'),
    (FAR_AHEAD, {'num_classes': 47}, PUBLISHED, 'order only'),
    (BEHIND, {}, PUBLISHED, 'not at this scale'),
    (BEHIND_AT_ITS_END, {}, PUBLISHED, 'contradicted'),
    (figures(0.5, 0.5, -0.02, 0.02), LEVEL, (), 'holds'),
    (figures(0.51, 0.5, -0.02, 0.04), LEVEL, (), 'open'),
    (figures(0.6, 0.5, 0.05, 0.15, ended=True), LEVEL, (), 'contradicted'),
  ],
)
def test_verdicts(found, fields, published, expected):
  claim = claims.Claim(**{**vars(CLAIM), **fields})
  assert claims.verdict(claim, found, published) == expected


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Six evaluations a run, of which the first does not count."""
  rows = ['run,seed,round,accuracy,mask_rate']
  ends = {'one': (0.5, 0.6, 0.55, 0.9), 'two': (0.6, 0.72, 0.63)}
  for run, by_seed in ends.items():
    for seed, end in enumerate(by_seed):
      # Out of order, and with a round that was not evaluated.
      rows += [
        f'{run},{seed},{rnd},{accuracy},0'
        for rnd, accuracy in (
          *((30, end + 0.02), (20, end), (10, 0.0), (40, end - 0.02)),
          *((50, end), (55, ''), (60, end)),
        )
      ]
  monkeypatch.setattr(stored_results, 'RESULTS', tmp_path)
  (tmp_path / 't_curves.csv').write_text('\n'.join(rows) + '\n')
  return tmp_path


def test_figures_by_hand(folder):
  found = claims.measure(CLAIM)
  assert found.lead.n == 3
  assert found.system == pytest.approx(0.65)
  assert found.control == pytest.approx(0.55)
  # Differences .10, .12, .08: mean .10, standard deviation .02, and
  # Student's t with 2 degrees of freedom reaches 4.3027.
  half = 4.30265 * 0.02 / 3**0.5
  assert found.lead.low == pytest.approx(0.10 - half, abs=1e-6)
  assert found.lead.high == pytest.approx(0.10 + half, abs=1e-6)


def test_training_has_ended_where_nothing_is_gained(folder):
  # A line through the last five: (20, 0), (30, .02), (40, -.02), (50, 0) and
  # (60, 0) has the slope -.2 / 1000, of which a fifth of the rounds is 12.
  ends = stored_results.last_gain(stored_results.curves('t'))
  assert ends.to_numpy() == pytest.approx(-0.0024)
  assert claims.measure(CLAIM).has_ended
  rows = [f'two,{seed},{10 * i},0.{i}' for seed in range(3) for i in range(9)]
  table = '\n'.join(['run,seed,round,accuracy', *rows])
  (folder / 'long_curves.csv').write_text(table)
  longer = dataclasses.replace(CLAIM, longer={'control': 'long:two'})
  assert not claims.measure(longer).has_ended
  rising = dataclasses.replace(CLAIM, curves=('t', 'long'), system='long:two')
  assert not claims.measure(rising).has_ended


def test_a_run_of_two_files_is_named_with_its_file(folder):
  rows = [f'one,{seed},10,0.8' for seed in range(3)]
  table = '\n'.join(['run,seed,round,accuracy', *rows])
  (folder / 'long_curves.csv').write_text(table)
  both = dataclasses.replace(CLAIM, curves=('t', 'long'))
  found = claims.measure(dataclasses.replace(both, control='long:one'))
  assert (found.system, found.control) == pytest.approx((0.65, 0.8))
  found = claims.measure(dataclasses.replace(both, control='t:one'))
  assert found.control == pytest.approx(0.55)
  with pytest.raises(ValueError, match="several files have a run 'one'"):
    claims.measure(both)


TOML = """
[papers.p]
title = "A paper"
answer = "Two ends at {one.system}, {one.difference} above one."

[claims.one]
paper = "p"
text = "Two beats one"
setting = "digits"
page = "gain"
curves = ["t"]
system = "two"
control = "one"
"""


def test_a_page(folder):
  (folder / 'claims.toml').write_text(TOML)
  page = claims.page()
  assert '- Two ends at .650, +.100 above one.' in page
  (row,) = (line for line in page.splitlines() if '[Two beats one]' in line)
  difference = '| .650, .550 | +.100 (+.050 to +.150) |'
  for cells in ('gain.md', difference, '| digits | 3 | **holds** |'):
    assert cells in row
  told = TOML.replace('page =', 'published = [0.7, 0.6]\npage =')
  (folder / 'claims.toml').write_text(told)
  assert '| .700, .600 | .650, .550 |' in claims.page()


@pytest.mark.parametrize(
  ('before', 'after', 'error'),
  [
    ('paper = "p"', 'paper = "q"', "claims.one: no paper 'q'"),
    ('setting', 'seting', r"claims.one has unknown \['seting'\]"),
    ('{one.system}', '{two.system}', "papers.p: its answer quotes 'two'"),
    ('setting', 'expects = "below"\nsetting', "expects='below' must be one of"),
    ('setting', 'published = ["a:b"]\nsetting', 'must name the rows of system'),
    ('control = "one"', 'control = "three"', "'two' and 'three' have no seed"),
    (
      'page',
      'longer.system = "t:three"\npage',
      "longer.system='t:three' is no",
    ),
    ('page', 'longer.sistem = "t:two"\npage', "longer.sistem='t:two' is no"),
  ],
)
def test_errors_of_the_file(folder, before, after, error):
  (folder / 'claims.toml').write_text(TOML.replace(before, after))
  with pytest.raises(ValueError, match=error):
    claims.page()
