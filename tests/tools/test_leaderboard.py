"""Ranks of leaderboards: who is told apart, and what a table shows."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tools import leaderboard, stored_results

DATA = ('writers', 'balanced', 'cifar10', 'texts')


def test_holm():
  # R: p.adjust(c(.03, .01, .05, .02, .04), 'holm').
  values = [0.03, 0.01, 0.05, 0.02, 0.04]
  expected = [0.09, 0.05, 0.09, 0.08, 0.09]
  assert leaderboard.holm(values) == pytest.approx(expected)
  # A pair that was not run makes the others no surer: .004 * 3.
  assert leaderboard.holm([np.nan, 0.004, 0.9]) == pytest.approx([1, 0.012, 1])


def _accuracy(leads, seeds=3, noise=0.002):
  """The accuracies of methods that lead `a` by so much on each data set."""
  rng = np.random.default_rng(0)
  found = {}
  for place, data in enumerate(DATA):
    base = pd.Series(rng.uniform(0.4, 0.6, seeds))
    for method, lead in leads.items():
      if lead[place] is not None:
        found[data, method] = base + lead[place] + rng.normal(0, noise, seeds)
  return found


def test_a_pair_is_compared_by_the_means_of_data_sets():
  found = _accuracy({'a': [0] * 4, 'b': [0.03, 0.05, 0.04, 0.02]})
  (pair,) = leaderboard.pairs(found)
  ours, theirs = (
    [found[data, method].mean() for data in DATA] for method in 'ba'
  )
  expected = stats.ttest_rel(ours, theirs)
  assert (pair.better, pair.worse) == ('b', 'a')
  assert pair.p == pytest.approx(expected.pvalue)
  assert pair.lead == pytest.approx(np.mean(ours) - np.mean(theirs))


def test_seeds_are_no_further_data_sets():
  """As many seeds as one likes: two of the four data sets differ."""
  one_sided = {'a': [0] * 4, 'b': [0.3, 0.3, 0, 0]}
  (pair,) = leaderboard.pairs(_accuracy(one_sided, seeds=300))
  assert not pair.is_told_apart
  (pair,) = leaderboard.pairs(
    _accuracy({'a': [0] * 4, 'b': [0.3] * 4}, seeds=3)
  )
  assert pair.is_told_apart


def test_by_chance_few_pairs_are_told_apart():
  """Where nothing differs but by data set, on some more than on others."""
  rng = np.random.default_rng(1)
  told = 0
  for _ in range(500):
    leads = rng.normal(0, [0.1, 0.01, 0.02, 0.05])
    found = {(data, 'a'): pd.Series([0.5] * 3) for data in DATA}
    found |= {
      (data, 'b'): pd.Series([0.5 + lead] * 3)
      for data, lead in zip(DATA, leads, strict=True)
    }
    told += leaderboard.pairs(found)[0].is_told_apart
  # 5 are expected at a level of .01, and fewer with unequal variances.
  assert told <= 5


@pytest.mark.parametrize(
  'change',
  [
    lambda found: found.update({('texts', 'b'): pd.Series(dtype=float)}),
    lambda found: found.update({('texts', 'b'): found['texts', 'b'][:2]}),
  ],
  ids=['not run', 'two seeds'],
)
def test_what_is_not_run_is_not_told_apart(change):
  found = _accuracy({'a': [0] * 4, 'b': [0.3] * 4})
  change(found)
  (pair,) = leaderboard.pairs(found)
  assert pair.p == 1


def test_a_method_that_does_not_take_some_data():
  found = _accuracy({'a': [0] * 4, 'b': [0.3, 0.301, 0.299, None]}, noise=0)
  (pair,) = leaderboard.pairs(found)
  expected = stats.ttest_1samp([0.3, 0.301, 0.299], 0).pvalue
  assert pair.p == pytest.approx(expected)


def test_ranks():
  pairs = [
    leaderboard.Pair(better, worse, 0.1, p)
    for better, worse, p in (
      *(('a', 'b', 0.2), ('a', 'c', 0.001), ('a', 'd', 0.001)),
      *(('b', 'c', 0.04), ('b', 'd', 0.001), ('c', 'd', 0.001)),
    )
  ]
  ranks = {name: leaderboard.rank(name, pairs, 4) for name in 'abcd'}
  assert ranks == {'a': '1 to 2', 'b': '1 to 3', 'c': '2 to 3', 'd': '4'}
  none = [pair._replace(p=0.5) for pair in pairs]
  assert leaderboard.rank('a', none, 4) == 'not told apart'


def test_the_least_lead():
  """It is told apart by Holm's first step, and a smaller one is not."""
  least = leaderboard.least_lead(4, 6)
  shape = stats.zscore([1.0, 2, 3, 4], ddof=1)
  for factor, is_told in ((1.001, True), (0.999, False)):
    p = stats.ttest_1samp(shape + least * factor, 0).pvalue
    assert (
      leaderboard.holm([p] + [1.0] * 14)[0] < leaderboard.LEVEL
    ) == is_told


@pytest.fixture
def stored(tmp_path, monkeypatch):
  """Results of one seed of two methods on texts, and of all on one."""
  monkeypatch.setattr(stored_results, 'RESULTS', tmp_path)
  lines = ['run,seed,round,accuracy']
  costs = [
    '| name | s per round | bytes down | bytes up |',
    '|---|---|---|---|',
  ]
  for row, seeds in (
    ('texts_p10_fedavg', (0, 1, 2)),
    ('texts_p10_sage', (0,)),
    ('writers_p10_sage', (0,)),
  ):
    for seed in seeds:
      lines += [f'{row},{seed},{n},{0.5 + seed / 100}' for n in range(1, 7)]
      costs.append(f'| {row} | {0.5 if row[0] == "w" else 0.25} | 3e5 | 2e5 |')
  (tmp_path / 'leaderboard_clients_curves.csv').write_text('\n'.join(lines))
  (tmp_path / 'leaderboard_clients.md').write_text(
    '\n'.join(['Single runs:', '', *costs, ''])
  )


def _rows(text):
  lines = [line.strip('| ').split(' | ') for line in text.splitlines()]
  return lines[0], {line[0]: line[1:] for line in lines[2:]}


def test_a_leaderboard_says_what_is_not_run(stored):
  header, rows = _rows(leaderboard.leaderboard('leaderboard_clients', 'p10'))
  assert header == [
    *('method', *DATA, 'rank', 's per round', 'MB per round'),
  ]
  one, none = '.500 (1 of 3 seeds)', ['not run'] * 3
  # Ten clients, 5e5 bytes each.
  assert rows['`fedavg`'] == [
    *(*none, '.510 ± .010', '', '0.25', '5.0'),
  ]
  assert rows['`sage`'][:-2] == [one, *none[:2], one, '']
  assert rows['`sage`'][-2:] == ['0.25 to 0.50', '5.0']
  assert rows['`fedavg_uda`'][:4] == ['not run'] * 4
  assert '`fedavg`, all labels' in rows
  assert leaderboard.runs_done('leaderboard_clients') == (5, 240)
  assert leaderboard.told_apart('leaderboard_clients', 'p10') == (
    'none of 36 pairs'
  )


def test_a_method_that_does_not_apply(stored):
  """SemiFL does not take texts; nothing of this table is stored."""
  _, rows = _rows(leaderboard.leaderboard('leaderboard_server', 'n10'))
  assert rows['`semifl`'][:4] == ['not run'] * 3 + ['does not apply']
  assert list(rows)[0] == '`server_only`'
