"""The pictures of gradient diversity."""

import itertools

import numpy as np
import pytest
import run_folders
from PIL import Image

from experiments import report
from experiments.config.command_line import UsageError
from experiments.reporting import pictures, run_groups

ROUNDS = [5, 10]
# As `tff_ssl.metrics` names them, and the title of each.
VARIANTS = {
  f'diversity/{kind}_{norm}_{power}{server}': f'{kind}, {norm}, {power}\n{who}'
  for kind, norm, (server, who), power in itertools.product(
    ('gradient', 'update'),
    ('l2', 'l1'),
    (('', 'clients'), ('_with_server', 'clients and server')),
    ('squared', 'plain'),
  )
}
OTHERS = {
  'accuracy': 'test accuracy',
  'diversity/num_clients': 'n, clients measured',
  'diversity/gradient_paper_code': "gradient, authors' code:\nn times Eq. 1",
  'diversity/update_paper_code': "update, authors' code:\nn times Eq. 1",
}
TITLES = VARIANTS | OTHERS
PARTICIPANTS = {'gradient_diversity_of': 'participants'}


def write_run(folder, process, first, *, seed=0, without=(), **flags):
  """Writes a run; column i has the values first + i and first + i + 1."""
  table = {'round': range(1, 11), 'mask_rate': 0.5, 'accuracy': [0.5] * 10}
  for place, column in enumerate(TITLES):
    if column not in without:
      values = [np.nan] * 10
      values[4], values[9] = first + place, first + place + 1
      table[column] = values
  return run_folders.write_run(folder, process, table, seed, flags)


def draw(*folders):
  groups = run_groups.read_groups(folders)
  return pictures.of_diversity(run_groups.by_run(groups))


def lines_of(axes):
  """Returns {name: (rounds, values)} of a panel."""
  return {
    line.get_label(): tuple(map(list, line.get_data())) for line in axes.lines
  }


@pytest.fixture
def two(tmp_path):
  """One run of two seeds, on participants, and one on fixed clients."""
  return (
    write_run(tmp_path / 'a', 'grouping', 0.0, **PARTICIPANTS),
    write_run(tmp_path / 'b', 'grouping', 1.0, seed=1, **PARTICIPANTS),
    write_run(tmp_path / 'c', 'fedavg_ssfl', 3, gradient_diversity_clients=6),
  )


def test_twenty_panels_have_their_titles_and_data(two):
  picture = draw(*two)
  titles = [axes.get_title() for axes in picture.axes]
  # Each row of variants is a figure of the paper.
  rows = [titles[start : start + 4] for start in range(0, 20, 5)]
  assert sum(rows, []) == list(VARIANTS.values())
  assert titles[4::5] == list(OTHERS.values())
  panels = dict(zip(titles, picture.axes, strict=True))
  for place, title in enumerate(TITLES.values()):
    assert lines_of(panels[title]) == {
      # The mean of the seeds.
      'grouping, participants': (ROUNDS, [place + 0.5, place + 1.5]),
      'fedavg_ssfl, 6 fixed clients': (ROUNDS, [place + 3, place + 4]),
    }, title


@pytest.mark.runs
def test_rounds_and_clients_are_whole_numbers(two):
  picture = draw(*two)
  picture.draw_without_rendering()
  (clients,) = (a for a in picture.axes if a.get_title().startswith('n,'))
  assert clients.get_ylim()[0] == 0
  for ticks in (clients.get_yticks(), *(a.get_xticks() for a in picture.axes)):
    assert len(ticks) > 1
    np.testing.assert_array_equal(ticks, np.round(ticks))


def test_what_no_run_has_is_said(tmp_path):
  without = [name for name in VARIANTS if name.endswith('_with_server')]
  more = {'without': without, **PARTICIPANTS}
  alone = write_run(tmp_path / 'a', 'fedavg', 1, **more)
  notes = {
    axes.get_title(): [text.get_text() for text in axes.texts]
    for axes in draw(alone).axes
  }
  missing = {TITLES[name] for name in without}
  assert notes == {
    title: ['in none of the runs'] if title in missing else []
    for title in TITLES.values()
  }
  # Where another run has them, its line is alone there.
  other = write_run(tmp_path / 'b', 'grouping', 1, **PARTICIPANTS)
  for axes in draw(alone, other).axes:
    drawn = [name for name, (x, _) in lines_of(axes).items() if x]
    assert len(drawn) == (1 if axes.get_title() in missing else 2)
    assert not axes.texts


@pytest.mark.dear
def test_six_rows_differ_in_colour_and_style(tmp_path):
  runs = [
    write_run(tmp_path / str(s), 'grouping', s, num_groups=s, **PARTICIPANTS)
    for s in range(1, 8)
  ]
  lines = draw(*runs[:6]).axes[0].lines
  for looks in (
    {line.get_color() for line in lines},
    {str(line._unscaled_dash_pattern) for line in lines},
  ):
    assert len(looks) == 6
  with pytest.raises(UsageError, match='at most 6 rows.* have 7: name fewer'):
    draw(*runs)


def test_a_run_without_gradient_diversity_is_refused(two, tmp_path, refusal):
  without = [name for name in TITLES if name.startswith('diversity/')]
  bare = write_run(tmp_path / 'bare', 'grouping', 0, seed=2, without=without)
  found = f'{bare} has no gradient diversity'
  with refusal(found, '--gradient_diversity_of=participants', error=UsageError):
    draw(*two, bare)


@pytest.mark.runs
def test_command_line(two, tmp_path, capsys, error_of):
  runs = [str(folder) for folder in two]
  path = tmp_path / 'new' / 'x.png'
  assert report.main(['report', *runs, f'--diversity={path}']) == 0
  with Image.open(path) as picture:
    assert picture.format == 'PNG' and picture.width == 1280
  assert [file.name for file in path.parent.iterdir()] == ['x.png']
  capsys.readouterr()
  wrong = f'--diversity={tmp_path / "x.pdf"}'
  assert f'{wrong} must end with .png' in error_of(report.main, *runs, wrong)
