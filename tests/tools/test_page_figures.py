"""Figures of the pages: none is stale, and how they are filled in."""

import json

import pandas as pd
import pytest
from scipy import stats

from tools import page_figures, stored_results


@pytest.mark.parametrize(
  'page',
  page_figures.pages(),
  ids=lambda page: page.relative_to(page_figures.ROOT).as_posix(),
)
def test_no_figure_is_stale(page):
  _, stale = page_figures.fill(page.read_text('utf-8'), page.name)
  assert not stale, 'run python -m tools.page_figures'


# Mean .10 and standard deviation .02; Student's t with two degrees of freedom
# is 4.3027, so that half the interval is .0497.
_SEEDS = (
  '<!--: x = pd.Series({0: .1, 1: .12, 2: .08}); z = x + float("nan") -->'
)


def _filled(code):
  """What a slot of this code holds."""
  page = f'It is <!--= {code} -->old<!--/-->.\n\n{_SEEDS}\n'
  filled, stale = page_figures.fill(page, 'page.md')
  assert len(stale) == 1
  return filled.partition('-->')[2].partition('<!--/-->')[0]


@pytest.mark.parametrize(
  ('code', 'expected'),
  [
    ("'text'", 'text'),
    ('1234', '1,234'),
    ('len(x)', '3'),
    ('x[1]', '.120'),
    ('x', '.100'),
    ('signed(x - .2)', '-.100'),
    ('share(x, 1)', '.1'),
    ('lead(x)', '+.100 (+.050 to +.150)'),
    ('lead(x[[1]])', '+.120'),
    # Paired by seed: only seeds that both have.
    ('lead(x - x[[1]] / 2)', '+.060'),
    ('interval(x - .1)', '-.050 to .050'),
    ('interval(x, signed)', '+.050 to +.150'),
    ('reach(x)', '.080 to .120'),
    ("reach([40, 9, 77], '{}%'.format)", '9% to 77%'),
    ('plus_minus(x)', '.100 ± .020'),
    ('plus_minus(x[[1]])', '.120'),
    ('each(x)', '.100, .120 and .080'),
    ("cells('a', 2, x)", 'a | 2 | .100'),
    ('student(x).low < .051 and student(x).high > .149', 'True'),
    ('round(spearmanr(x, [1, 3, 2]).correlation, 3)', '.500'),
    ("published('fedul_e9:noise_16')", '.965'),
    ("last(curves('gain_texts'), 1)['fedavg', 0] * 800 % 1 < 1e-9", 'True'),
  ],
)
def test_a_value_is_written(code, expected):
  assert _filled(f'str({code})' if expected == 'True' else code) == expected


def test_intervals_are_those_of_scipy():
  values = [0.1, 0.12, 0.08]
  ends = stats.t.interval(0.95, 2, 0.1, stats.sem(values))
  spread = stored_results.student(pd.Series(values))
  assert (spread.low, spread.high) == pytest.approx(ends)


def test_stored_files_are_read(tmp_path, monkeypatch):
  monkeypatch.setattr(stored_results, 'RESULTS', tmp_path)
  (tmp_path / 'a.json').write_text(json.dumps({'speed': {'ratio': 1.76}}))
  (tmp_path / 'a.csv').write_text('name,mean\none,0.25\n')
  (tmp_path / 't.md').write_text(
    '| name | n |\n|---|---|\n| one | 3 |\n\nBy seed:\n\n'
    '| name | what | seed 0 | seed 1 |\n|:--|--:|--:|--:|\n'
    '| one | loss |  0.5 |  |\n\n'
    '    python -m experiments.run --process=fsl --rate=0.1 --recipe=t:ab --a\n'
    '    python -m experiments.run --process=fsl --rate=0.2 --recipe=t:a --a\n'
  )
  assert _filled("str(stored('a.json')['speed']['ratio'])") == '1.76'
  assert _filled("stored('a.csv').loc['one', 'mean']") == '.250'
  assert _filled("stored('t.md').loc['one', 'n']") == '3'
  assert _filled("stored('t.md', 'By seed:').loc['one', 'what']") == 'loss'
  assert _filled("plus_minus(stored('t.md', 'By seed:').loc['one'][1:])") == (
    '.500'
  )
  assert _filled("flags('t:a')['rate']") == '0.2'
  with pytest.raises(page_figures.PageError, match="no table after 'Runs:'"):
    _filled("stored('t.md', 'Runs:')")


_TABLE = (
  "<!--= table(['a', 'b'], [['one', .25], ['two', x]]) -->\n"
  '| a | b |\n|---|---|\n| one | .250 |\n| two | {} |\n<!--/-->\n'
)


def test_a_page_is_filled_once():
  page = (
    '| a | b | c |\n|---|---|---|\n'
    '| x | <!--= cells(x, x[1]) -->{} | .120<!--/--> |\n\n'
    'It has <!--= lead(x) -->+.100 (+.050\nto +.150)<!--/-->, <!--! 1 > 0 -->'
    f' So\nit is.\n\n{_TABLE}\n{_SEEDS}\n'
  )
  old, new = page.replace('{}', '.5'), page.replace('{}', '.100')
  filled, stale = page_figures.fill(old, 'page.md')
  assert filled == new
  assert [line.partition(': ')[0] for line in stale] == [
    'page.md:3',
    'page.md:9',
  ]
  assert page_figures.fill(new, 'page.md') == (new, [])


@pytest.mark.parametrize(
  ('broken', 'error'),
  [
    ('a <!--= nobody -->.1<!--/-->', "NameError: name 'nobody' is not defined"),
    ("a <!--= open('x') -->.1<!--/-->", "NameError: name 'open'"),
    ('a <!--= x[7] -->.1<!--/-->', 'KeyError: 7'),
    ('a <!--= x + -->.1<!--/-->', 'SyntaxError'),
    ('a <!--= z -->.1<!--/-->', 'a value is missing'),
    ('a <!--! x[1] < x[0] -->', 'this is not true'),
    ('<!--: y = nobody -->', "name 'nobody' is not defined"),
    ('a <!--= x -->.1', 'not closed'),
    ('a <!--= x .1<!--/-->', 'not closed'),
    ('a <!--= x -->.1 <!--= x -->.1<!--/-->', 'not closed'),
    ('a .1<!--/-->', 'closes nothing'),
    ('a <!--= 1 --1 -->2<!--/-->', 'must not hold --'),
    ('| <!--= max(1|2, 3) -->3<!--/--> |', r'must not hold \|'),
    ('<!--= x -->.1<!--/--> is', 'begins a line must be alone'),
    ('- <!--= x -->.1<!--/-->', 'begins a line must be alone'),
    ('  > 1. <!--! x[0] --> is', 'begins a line must be alone'),
    ('<!--= x -->\n.1\n<!--/--> is', 'begins a line must be alone'),
    ('a <!--= x -->.1\n<!--/--> is', 'begins as a comment'),
    ('a <!--! x[1]\n> 0 --> is', 'begins as a comment, a list or a quote'),
    ('a <!--! x[\n1] < max(3,\n1) --> is', 'begins as a comment, a list'),
    ('a <!--! x[1] <\n\n1 --> is', 'begins as a comment, a list'),
    ("a <!--= 'b\\nc' -->b<!--/-->", 'needs comments with lines of their own'),
  ],
)
def test_a_broken_slot_is_an_error_with_its_place(broken, error):
  with pytest.raises(page_figures.PageError, match=f'^page.md:3: .*{error}'):
    page_figures.fill(f'A page\n\n{broken}\n\n{_SEEDS}\n', 'page.md')


@pytest.fixture
def root(tmp_path, monkeypatch):
  """A page whose figure is stale, and a copy of it."""
  monkeypatch.setattr(page_figures, 'ROOT', tmp_path)
  for name in (
    'README.md',
    'results/a.md',
    'docs/b/c.md',
    'docs/evidence/a.md',
  ):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('It is <!--= 2 -->1<!--/-->.\n')
  (tmp_path / 'docs' / 'plain.md').write_text('<!-- No figure. -->\n')
  return tmp_path


def test_check_writes_nothing(root, capsys):
  before = {path: path.read_text() for path in root.rglob('*.md')}
  assert page_figures.main(['--check']) == 1
  assert {path: path.read_text() for path in root.rglob('*.md')} == before
  assert (
    'docs/b/c.md:1: <!--= 2 -->1<!--/--> must be' in capsys.readouterr().out
  )
  assert page_figures.main([]) == 0
  changed = {path for path, text in before.items() if path.read_text() != text}
  assert {path.relative_to(root).as_posix() for path in changed} == {
    'README.md',
    'results/a.md',
    'docs/b/c.md',
  }
  assert page_figures.main(['--check']) == 0


def test_a_page_with_an_error_is_left_and_the_others_are_filled(root, capsys):
  (root / 'README.md').write_text('It is <!--= 2 -->1<!--/-->, <!--= y -->.\n')
  assert page_figures.main([]) == 1
  assert (root / 'README.md').read_text().startswith('It is <!--= 2 -->1')
  assert '-->2<' in (root / 'results' / 'a.md').read_text()
  assert capsys.readouterr().err.startswith('README.md:1: ')
