"""The report reads its figures from the runs, and from nowhere else."""

import json
import re

import pandas as pd
import pytest
import pythons
import run_folders
from PIL import Image

from experiments import report
from experiments.config import flags
from experiments.reporting import (
  pictures as pictures_lib,
)
from experiments.reporting import (
  run_groups,
  summary_tables,
)

HAS_PICTURES = True
RECIPE = {
  'recipe': 'ssfl_table2:c47_s5',
  'published': 0.8295,
  'recipe_rounds': 30,
  'recipe_changes': [],
}


def _write_run(
  folder, process, accuracies, *, seed=3, columns=(), flags=None, **facts
):
  rounds = len(accuracies)
  flags = flags or {
    'run_dir': '/somewhere',
    'num_groups': 2,
    'total_rounds': rounds,
    'rounds_per_evaluation': seed + 1,
  }
  known = {
    'dataset': 'digits',
    'model': 'dense',
    'clients': 20,
    'server_examples': 100,
    'best_accuracy': max(accuracies),
    'seconds_per_round': 0.256,
  }
  metrics = {'round': range(1, rounds + 1), 'accuracy': accuracies}
  return run_folders.write_run(
    *(folder, process, {**metrics, **dict(columns)}, seed, flags),
    **{'accuracy': accuracies[-1], **known, **facts},
  )


def test_seeds_are_one_row_beside_the_published_figure(tmp_path):
  runs = [
    _write_run(
      tmp_path / str(seed),
      'grouping',
      [0.5, last],
      seed=seed,
      bytes_up_per_client=1000 + seed,
      **more,
    )
    for seed, last, more in (
      (2, 0.80, RECIPE),
      (0, 0.81, RECIPE),
      (1, 0.79, RECIPE),
    )
  ]
  other = _write_run(tmp_path / 'b', 'server_only', [0.25, 0.5, 0.6])
  table = report.report([other, *runs], tmp_path / 'out' / 'x_scale0.1')
  assert list(table['name']) == ['server_only', 'c47_s5']
  alone, row = table.to_dict('records')
  assert (row['published'], row['mean'], row['n']) == (0.8295, 0.8, 3)
  assert row['std'] == pytest.approx(0.01)
  # Student's t for three values: 4.303 in every table.
  assert row['high'] - 0.8 == pytest.approx(4.303 * 0.01 / 3**0.5, abs=1e-4)
  assert 0.8 - row['low'] == pytest.approx(row['high'] - 0.8)
  assert row['difference'] == pytest.approx(0.8 - 0.8295)
  assert (row['rounds'], row['scale']) == (2, round(2 / 30, 4))
  assert (alone['mean'], alone['n'], alone['rounds']) == (0.6, 1, 3)
  empty = ('published', 'std', 'low', 'high', 'difference', 'scale', 'changed')
  assert all(pd.isna(alone[name]) for name in empty)

  out = tmp_path / 'out'
  names = {path.name for path in out.iterdir()}
  endings = ('.csv', '.md', '.png', '_curves.csv')
  assert names == {f'x_scale0.1{ending}' for ending in endings}
  pd.testing.assert_frame_equal(
    pd.read_csv(out / 'x_scale0.1.csv'), table.astype({'changed': float})
  )
  text = (out / 'x_scale0.1.md').read_text()
  assert '--process=grouping --num_groups=2' in text and '--seeds=0,1,2' in text
  assert '--seed=3' in text and '/somewhere' not in text
  assert 'Data: some digits.' in text and 'nan' not in text
  singles = text.partition('Single runs:')[2].partition('Commands:')[0]
  cells = [
    [cell.strip() for cell in line.split('|')]
    for line in singles.splitlines()
    if '| digits ' in line
  ]
  assert [(row[5], row[9]) for row in cells] == [
    ('3', '0.6'),
    ('0', '0.81'),
    ('1', '0.79'),
    ('2', '0.8'),
  ]
  # What no run tells has no column; what some do not, is left empty.
  assert 'forward passes' not in singles
  assert [row[-2] for row in cells] == ['', '1000', '1001', '1002']


def test_figures_of_classes_are_shown_where_runs_have_them(tmp_path):
  older = _write_run(tmp_path / 'a', 'grouping', [0.5])
  report.report([older], tmp_path / 'older')
  assert 'macro F1' not in (tmp_path / 'older.md').read_text()
  figures = {'macro_f1': 0.43219, 'balanced_accuracy': 0.45678}
  newer = _write_run(tmp_path / 'b', 'grouping', [0.6], seed=4, **figures)
  groups = run_groups.read_groups([older, newer])
  table = summary_tables.of_runs(groups)
  first, second = table[['macro F1', 'balanced accuracy']].to_numpy()
  assert pd.isna(first).all() and second.tolist() == [0.4322, 0.4568]
  report.report([older, newer], tmp_path / 'both')
  text = (tmp_path / 'both.md').read_text()
  assert '| macro F1 |' in ' '.join(text.split()) and 'nan' not in text


def test_no_difference_where_a_run_is_not_its_recipe(tmp_path):
  changed = {**RECIPE, 'recipe_changes': ['learning_rate']}
  run = _write_run(tmp_path / 'a', 'grouping', [0.8], **changed)
  (row,) = report.report([run]).to_dict('records')
  assert row['published'] == 0.8295 and pd.isna(row['difference'])
  assert row['changed'] == 'learning_rate'
  assert 'difference' not in summary_tables.as_text(report.report([run]))


def test_groups_of_one_name_are_told_apart(tmp_path):
  base = {'process': 'grouping', 'num_groups': 2, 'threshold': 0.9}
  runs = [
    _write_run(tmp_path / 'a', 'grouping', [0.5], flags=base),
    _write_run(
      tmp_path / 'b', 'grouping', [0.5], flags=base | {'num_groups': 5}
    ),
    _write_run(tmp_path / 'c', 'fedavg', [0.5], data='other digits'),
  ]
  table = report.report(runs)
  assert list(table['name']) == [
    'grouping num_groups=2',
    'grouping num_groups=5',
    'fedavg',
  ]
  text = summary_tables.as_text(table)
  assert 'Data (fedavg): other digits.' in text
  assert 'Data (grouping num_groups=2, grouping num_groups=5): some' in text


def test_runs_of_other_lengths_or_data_are_not_averaged(tmp_path):
  runs = [
    _write_run(tmp_path / 'a', 'fedavg', [0.5, 0.6], seed=0),
    _write_run(tmp_path / 'b', 'fedavg', [0.5], seed=1),
    _write_run(tmp_path / 'c', 'fedavg', [0.5], seed=2, data='other digits'),
  ]
  assert list(report.report(runs)['n']) == [1, 1, 1]


def _write_split(folder, version):
  folder.mkdir(parents=True)
  split = {'source': {'version': version}, 'partition': 'r', 'arguments': {}}
  (folder / 'split.json').write_text(json.dumps(split))
  return folder


def test_runs_on_other_data_of_one_title_are_not_averaged(tmp_path):
  """As those of files that were changed between two seeds."""
  for version, name, first in (('npz-a', 'a', 0), ('npz-b', 'b', 2)):
    for seed in (first, first + 1):
      # A split that each seed draws anew.
      folder = _write_split(tmp_path / f'{name}{seed}', f'{version}-seed{seed}')
      _write_run(folder, 'fedavg', [0.5], seed=seed, flags={'threshold': 1})
  # Of the first program versions, which say nothing of it.
  _write_run(tmp_path / 'c', 'fedavg', [0.5], flags={'threshold': 1})
  table = report.report(sorted(tmp_path.iterdir()))
  assert list(table['n']) == [2, 2, 1]
  assert list(table['name']) == [
    *('fedavg data_version=npz-a', 'fedavg data_version=npz-b'),
    'fedavg data_version=None',
  ]


@pytest.mark.parametrize(
  'version, flags, compared',
  [
    ('text-a', {}, True),
    ('text-b', {}, False),
    ('text-a-32', {'text_length': 32}, True),
  ],
)
def test_other_data_are_not_compared(version, flags, compared, tmp_path):
  runs = []
  for name, own, more in (
    ('fedprox', 'text-a', {}),
    ('fedavg', version, flags),
  ):
    folder = _write_split(tmp_path / name, own)
    facts = {'dataset': 'text', 'flags': {'process': name, **more}}
    runs.append(_write_run(folder, name, [0.5], **facts))
  groups = run_groups.read_groups(runs)
  table = summary_tables.differences(groups, 'fedprox')
  assert list(table['name']) == ['fedavg'] * compared


def test_the_same_run_twice(tmp_path):
  for name in 'ab':
    _write_run(tmp_path / name, 'fedavg', [0.5])
  with pytest.raises(flags.UsageError, match='hold the same run'):
    report.report([tmp_path / 'a', tmp_path / 'b'])


def test_unfinished_run(tmp_path):
  with pytest.raises(flags.UsageError, match='no finished run'):
    report.report([tmp_path])


def lines_drawn(pictures, groups, path, curves=None):
  """Returns {axis name: [(name, x, y, band)]} of the picture."""
  read = pictures_lib.read(groups, curves)
  pictures_lib.of_curves(read).savefig(path)
  drawn = {}
  for axes in pictures.pop().axes:
    bands = [band.get_paths()[0].vertices for band in axes.collections]
    # Without where the axis begins.
    drawn[axes.get_ylabel().partition(', axis')[0]] = [
      (line.get_label(), *map(list, line.get_data()), band)
      for line, band in zip(axes.lines, bands, strict=False)
    ]
  return drawn


def test_curves_are_means_in_the_band_of_the_seeds(tmp_path, pictures):
  columns = {'mask_rate': [None, 0.5], 'diversity/x': [1.0, 3.0]}
  runs = [
    _write_run(tmp_path / 'a', 'fedavg', [0.2, 0.6], seed=0, columns=columns),
    _write_run(
      *(tmp_path / 'b', 'fedavg', [0.4, 0.9]),
      seed=1,
      columns={'accuracy': [0.4, None]},
    ),
  ]
  (group,) = run_groups.read_groups(runs)
  drawn = lines_drawn(pictures, [group], tmp_path / 'x.png')
  assert list(drawn) == ['test accuracy', 'mask rate', 'diversity/x']
  ((name, x, y, band),) = drawn['test accuracy']
  # Round 2 was evaluated with one seed only: it is not drawn.
  assert (name, x, y) == ('fedavg', [1], [pytest.approx(0.3)])
  assert (band[:, 1].min(), band[:, 1].max()) == (0.2, 0.4)
  ((_, x, y, _),) = drawn['mask rate']
  assert (x, y) == ([2], [0.5])
  with Image.open(tmp_path / 'x.png') as picture:
    picture.verify()
  table = pictures_lib.read([group]).astype({'seed': int, 'round': int})
  assert table.fillna(-1).to_numpy().tolist() == [
    ['fedavg', 0, 1, 0.2, -1, 1],
    ['fedavg', 0, 2, 0.6, 0.5, 3],
    ['fedavg', 1, 1, 0.4, -1, -1],
  ]
  only = lines_drawn(pictures, [group], tmp_path / 'y.png', ['diversity/x'])
  assert list(only) == ['diversity/x']


def test_the_loss_of_the_proxy_task_is_drawn_where_runs_have_it(
  tmp_path, pictures
):
  columns = {'test_proxy_loss': [0.5, 0.25]}
  run = _write_run(tmp_path / 'a', 'ssjo', [0.2, 0.6], columns=columns)
  groups = run_groups.read_groups([run])
  drawn = lines_drawn(pictures, groups, tmp_path / 'x.png')
  assert list(drawn) == ['test accuracy', 'test loss of the proxy task']
  ((_, x, y, _),) = drawn['test loss of the proxy task']
  assert (x, y) == ([1, 2], [0.5, 0.25])


def test_no_panel_is_left_empty(tmp_path, pictures):
  names = [f'diversity/{letter}' for letter in 'abcde']
  columns = {name: [1.0, 2.0] for name in names}
  run = _write_run(tmp_path / 'a', 'fedavg', [0.2, 0.6], columns=columns)
  groups = run_groups.read_groups([run])
  path = tmp_path / 'x.png'
  assert list(lines_drawn(pictures, groups, path, names)) == names


def test_command_line(tmp_path, capsys):
  run = str(_write_run(tmp_path / 'a', 'grouping', [0.5]))
  output = f'--output={tmp_path / "o"}'
  assert report.main(['report', run, output, '--curves=accuracy']) == 0
  assert 'grouping' in capsys.readouterr().out
  assert (tmp_path / 'o.png').read_bytes().startswith(b'\x89PNG')
  curves = pd.read_csv(tmp_path / 'o_curves.csv').to_dict('records')
  assert curves == [{'run': 'grouping', 'seed': 3, 'round': 1, 'accuracy': 0.5}]
  assert report.main(['report', run]) == 0


@pytest.mark.parametrize(
  'arguments, message',
  [
    ([], 'RUN_DIR is missing: name a run folder.'),
    (['{run}', '{run}_no'], 'error: '),
    (['{run}', '--output={run}_o', '--curves=no'], '--curves=no is in no metr'),
    (['{run}', '--curves=accuracy'], '--curves=accuracy needs --output'),
    (['{run}', '--html=page'], '--html=page must end with .html'),
    (['{run}', '--latex=a.md'], '--latex=a.md must end with .tex'),
    (['{run}', '--outptu=x'], '--outptu is no flag: did you mean --output?'),
  ],
)
def test_refusals(arguments, message, tmp_path, error_of):
  run = _write_run(tmp_path / 'a', 'grouping', [0.5])
  given = [argument.format(run=run) for argument in arguments]
  assert message in error_of(report.main, *given)


def test_tables_as_latex(tmp_path, capsys):
  """They stand as they are in a document that uses booktabs."""
  flags = {'rounds_per_evaluation': 4}
  runs = [
    _write_run(
      tmp_path / 'a', 'grouping', [0.5], data='90% of #1', flags=flags
    ),
    _write_run(
      tmp_path / 'b', 'fed_avg', [0.25], data='90% of #1', flags=flags
    ),
  ]
  path = tmp_path / 'new' / 'table.tex'
  arguments = [*map(str, runs), f'--latex={path}', '--against=fed_avg']
  assert report.main(['report', *arguments]) == 0
  assert capsys.readouterr().out.endswith(f'\nWritten to {path}.\n')
  tables = path.read_text().split('\n\n')
  captions = [table.partition('\n')[0] for table in tables]
  assert captions == [
    '% Data: 90% of #1.',
    '% Minus fed_avg, paired by seed.',
  ]
  for table in tables:
    _, begin, top, *_, end = table.strip().splitlines()
    assert begin.startswith(r'\begin{tabular}{') and top == r'\toprule'
    assert end == r'\end{tabular}'
  assert re.search(r'^ fed\\_avg +& +0.25 +& .*\\\\$', tables[0], re.M)
  assert re.search(r'^ grouping +& +0.25 +& .*\\\\$', tables[1], re.M)


@pytest.mark.dear
def test_the_page_is_written_on_request_alone(tmp_path, capsys):
  run = str(_write_run(tmp_path / 'a', 'grouping', [0.5]))
  program = (
    'import sys\n'
    'from experiments import report\n'
    'assert report.main(sys.argv) == 0\n'
    "assert not {'bokeh', 'jinja2'} & sys.modules.keys()\n"
  )
  output = f'--output={tmp_path / "o"}'
  pythons.run('-c', program, run, output, check=True)
  page = tmp_path / 'new' / 'page.html'
  assert report.main(['report', run, f'--html={page}']) == 0
  assert f'Written to {page}.' in capsys.readouterr().out
  assert page.read_bytes().startswith(b'<!DOCTYPE html>')
