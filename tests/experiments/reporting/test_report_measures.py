"""Reports by the rows of a table, with measures of their own."""

import math

import pandas as pd
import pytest
import run_folders

from experiments import report
from experiments.config import flags
from experiments.reporting import run_groups, summary_tables
from experiments.tables import recipes

FLAGS = '--process=fedavg --dataset=digits --total_rounds=4'
HEADER = 'row,flags,published,measure,source,seeds,note'
OWN = f"""{HEADER}
a,{FLAGS},0.75,best_accuracy,Chart 2,"0,1,2",
b,{FLAGS} --learning_rate=0.5,,,,0,
"""
READINGS = f"""{HEADER}
half,same_as=own.csv:a,1,rounds_to@0.5,Chart 3,,
most,same_as=own.csv:a,2,rounds_to@0.75,Chart 3,,
all,same_as=own.csv:a,,rounds_to@1,Chart 3,,
first,same_as=own.csv:a,0.3,accuracy@0,Chart 4,,fewer writers
between,same_as=own.csv:a,0.3,accuracy@1,Chart 4,,fewer writers
other,same_as=own.csv:b,0.5,,Chart 4,,
"""
# By seed, after rounds 1, 3 and 4.
ACCURACIES = ((0.25, 0.5, 0.75), (0.25, 0.75, 0.5), (0.5, 0.6, 0.7))


def _write_run(tables, row, seed, accuracies, **more_flags):
  recipe = recipes.find(f'{tables / "own.csv"}:{row}')
  first, third, last = accuracies
  made = recipes.make({'recipe': recipe.name, 'seed': seed})
  return run_folders.write(
    tables / f'{row}_seed{seed}',
    {'round': [1, 2, 3, 4], 'accuracy': [first, None, third, last]},
    process='fedavg',
    dataset='digits',
    data='some digits',
    model='dense',
    seed=seed,
    clients=20,
    server_examples=0,
    rounds=4,
    accuracy=last,
    best_accuracy=max(accuracies),
    seconds_per_round=0.5,
    **recipes.facts(made),
    flags=made.used | more_flags,
  )


@pytest.fixture
def tables(tmp_path):
  (tmp_path / 'own.csv').write_text(OWN)
  (tmp_path / 'readings.csv').write_text(READINGS)
  return tmp_path


@pytest.fixture
def runs(tables):
  """Pairs of a row and a folder, seed by seed."""
  seeds = [_write_run(tables, 'a', *run) for run in enumerate(ACCURACIES)]
  other = _write_run(tables, 'b', 0, (0.1, 0.2, 0.4))
  rows = recipes.load(str(tables / 'readings.csv'))
  readings = [row for row in rows.values() if row.row != 'other']
  pairs = [(row, folder) for folder in seeds for row in readings]
  return [*pairs, (rows['other'], other)]


def test_rows_that_read_one_run(runs, tmp_path):
  groups = run_groups.of_recipes(runs)
  table = report.write(groups, tmp_path / 'out' / 'x').set_index('name')
  shown = ['mean', 'n', 'std', 'difference', 'reached']
  third, root = 1 / 3, math.sqrt
  expected = {
    # Rounds 2, 2 and 0, counted from 0.
    'half': (4 * third, 3, root(4 * third), third, '3 of 3'),
    # Rounds 3 and 2; the third seed has no value, and none is made up for it.
    'most': (2.5, 2, root(0.5), None, '2 of 3'),
    'all': (None, 0, None, None, '0 of 3'),
    'first': (third, 3, root(0.0625 * third), third - 0.3, None),
    # After the second round nothing was evaluated.
    'between': (None, 0, None, None, None),
    'other': (0.4, 1, None, 0.4 - 0.5, None),
  }
  assert list(table.index) == list(expected)
  for name, values in expected.items():
    found = [None if pd.isna(v) else v for v in table.loc[name, shown]]
    rounded = [round(v, 4) if type(v) is float else v for v in values]
    assert found == rounded, name
  assert table['measure']['half'] == 'rounds_to@0.5'
  assert table['published']['most'] == 2
  # Two seeds have a deviation, and no interval.
  assert math.isnan(table['low']['most'])
  assert (table['scale'] == 1).all()


def test_notes_name_their_rows(runs):
  groups = run_groups.of_recipes(runs)
  assert summary_tables.notes(groups) == ['first, between: fewer writers.']
  noted = [group for group in groups if group.name in ('first', 'between')]
  assert summary_tables.notes(noted) == ['All rows: fewer writers.']


def test_each_run_is_told_and_drawn_once(runs, tmp_path):
  groups = run_groups.of_recipes(runs)
  report.write(groups, tmp_path / 'out' / 'x')
  assert [group.name for group in run_groups.by_run(groups)] == ['a', 'b']
  text = (tmp_path / 'out' / 'x.md').read_text()
  table, _, rest = text.partition('Values by seed:')
  values, _, rest = rest.partition('Single runs:')
  assert 'first, between: fewer writers.' in values
  singles, _, commands = rest.partition('Commands:')
  lines = [line for line in values.splitlines() if line.startswith('|')]
  rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
  cells = {name: others for name, *others in rows}
  assert cells['name'] == ['measure', 'seed 0', 'seed 1', 'seed 2']
  assert cells['most'] == ['rounds_to@0.75', '3', '2', '']
  assert cells['all'] == ['rounds_to@1.0', '', '', '']
  assert cells['other'] == ['accuracy', '0.4', '', '']
  assert singles.count('| digits') == 4
  assert commands.count('--process=fedavg') == 2
  assert '2 of 3' in table and 'nan' not in text.lower()


def test_a_row_with_fewer_seeds_than_its_run(runs):
  only = [
    pair for pair in runs if (pair[0].row, pair[1].name) != ('half', 'a_seed1')
  ]
  half, most, *_ = groups = run_groups.of_recipes(only)
  assert half.by_seed() == {0: 2, 2: 0} and len(most.by_seed()) == 3
  (run, _) = run_groups.by_run(groups)
  assert [summary['seed'] for summary in run.summaries] == [0, 1, 2]


def test_folders_alone_are_read_as_the_row_they_were_run_as(runs):
  table = report.report(list(dict.fromkeys(folder for _, folder in runs)))
  a, b = table.to_dict('records')
  assert (a['name'], a['measure']) == ('a', 'best_accuracy')
  assert a['mean'] == round((0.75 + 0.75 + 0.7) / 3, 4)
  assert a['difference'] == round(2.2 / 3 - 0.75, 4)
  assert (b['name'], b['measure'], b['mean']) == ('b', 'accuracy', 0.4)
  assert 'reached' not in summary_tables.as_text(table)


def test_final_accuracies_alone_need_no_column_for_measures(runs):
  table = summary_tables.of_groups(run_groups.of_recipes(runs[-1:]))
  assert not {'measure', 'reached'} & set(table.columns)


def test_rounds_count_from_the_end_of_pretraining(tables):
  folder = _write_run(tables, 'a', 0, (0.9, 0.4, 0.6), pretraining_rounds=2)
  rows = recipes.load(str(tables / 'readings.csv'))
  names = ('half', 'first')
  groups = run_groups.of_recipes([(rows[name], folder) for name in names])
  assert [group.by_seed() for group in groups] == [{0: 1}, {0: 0.4}]
  (group,) = run_groups.read_groups([folder])
  assert group.by_seed() == {0: 0.6}


def test_the_same_run_twice_in_a_row(runs):
  with pytest.raises(flags.UsageError, match='hold the same run'):
    run_groups.of_recipes([runs[0], runs[0]])
