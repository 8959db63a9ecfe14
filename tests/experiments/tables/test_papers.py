"""The recipes hold the figures and settings that the papers print.

The CSV files here are a second entry of the papers' tables. In `papers`, a line
holds the figures of several rows: the head of a column makes the rows' names,
as {}_s2 makes c10_s2 of c10. Several figures in a cell count as their mean.
"""

import pathlib
import re
import statistics

import pandas as pd
import pytest

from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES

HERE = pathlib.Path(__file__).parent
TABLES = {name: recipes.load(name) for name in recipes.tables()}
ROWS = {row.name: row for rows in TABLES.values() for row in rows.values()}
FEDLABEL = [name for name in TABLES if name.startswith('fedlabel_')]
# Not in percent.
IN_UNITS = ('fedlabel_table3', 'fedul_d8', 'label_hungry_chart3')
# Tables with rows that the paper does not print.
WITH_OTHER_ROWS = ('ssfl_table2', 'ssfl_figure5', 'fedlabel_table3')
# Rows that train with another loss, or as the authors' code does.
VARIANT = re.compile('(.+)_(as_coded|published_code|cross_entropy)')


def read(path):
  return pd.read_csv(HERE / path, dtype=str, comment='#', keep_default_na=False)


def rows_of(table, column, row):
  """Returns the names of the rows that a cell is the figure of."""
  name = column.format(row)
  if not table.startswith('label_hungry') or '_m00' in name:
    return [name]
  # The paper does not say how masks are drawn: there are rows of both ways.
  ways = (r'\g<0>_fixed', r'\g<0>_redrawn')
  return [re.sub(r'_m\d+', way, name) for way in ways]


def read_papers():
  """Returns table, row, figure and settings of Table A.2, a line per row."""
  lines = []
  for path in HERE.glob('papers/*.csv'):
    wide = read(path)
    names = [column for column in wide if '{}' not in column]
    lines.append(wide.melt(names, var_name='column', value_name='printed'))
  lines = pd.concat(lines).fillna('').query('printed != ""')
  keys = zip(lines['table'], lines.pop('column'), lines['row'], strict=True)
  return lines.assign(row=[rows_of(*key) for key in keys]).explode('row')


PAPERS = read_papers()
PRINTED = {
  table: dict(zip(lines['row'], lines['printed'], strict=True))
  for table, lines in PAPERS.groupby('table')
}
TABLE_A2 = PAPERS[PAPERS['noniid_r'] != '']
SETTINGS = read('settings.csv').to_dict('records')
DIFFERENCES = read('differences.csv').to_dict('records')
# Tables of which each row is compared with another row.
COMPARED = {line['rows'].partition(':')[0] for line in DIFFERENCES}
COMPARED = COMPARED & TABLES.keys() - {'fedlabel_emnist47', 'fedul_table1'}


def figure(table, printed):
  """Returns a figure in print as a recipe gives it."""
  if printed == 'N/A':
    return None
  value = statistics.fmean(map(float, printed.split()))
  if table in IN_UNITS:
    return value
  # Lu et al. print errors.
  percent = 100 - value if table.startswith('fedul') else value
  return round(percent / 100, 4)


def flags_of(text):
  """Returns flags by name; what ends in = is not given."""
  parts = (part.removeprefix('--').split('=') for part in text.split())
  return {name: value or None for name, value in parts}


def changed(recipe, other):
  """Returns the flags in which a row is not another one."""
  here, there = flags_of(recipe.flags_text), flags_of(other.flags_text)
  return {
    name: here.get(name)
    for name in here.keys() | there.keys()
    if here.get(name) != there.get(name)
  }


@pytest.mark.parametrize('table', TABLES)
def test_published_figures_are_those_in_print(table):
  rows = TABLES[table]
  wanted = {
    row: figure(table, text) for row, text in PRINTED.get(table, {}).items()
  }
  plain = {row: r.published for row, r in rows.items()}
  for row, recipe in rows.items():
    assert recipe.seeds and (recipe.published is None or recipe.source)
    if variant := VARIANT.fullmatch(row):
      assert plain.pop(row) == plain[variant[1]]
  if table not in PRINTED or table in WITH_OTHER_ROWS:
    wanted = {**dict.fromkeys(plain), **wanted}
  assert plain == wanted


@pytest.mark.parametrize('table', TABLE_A2['table'].unique())
def test_rows_have_the_settings_of_table_a2(table):
  for line in TABLE_A2[TABLE_A2['table'] == table].to_dict('records'):
    flags = flags_of(TABLES[table][line['row']].flags_text)
    flags.setdefault('server_examples', flags.get('labelled_examples'))
    for name in line.keys() - {'table', 'row', 'printed'}:
      printed = float(line[name]) if line[name] else None
      assert printed == (flags.get(name) and float(flags[name])), (line, name)


@pytest.mark.parametrize('table', TABLES)
def test_rows_have_the_settings_of_their_paper(table):
  for recipe in TABLES[table].values():
    seeds = ','.join(map(str, recipe.seeds))
    have = {'seeds': seeds, 'measure': str(recipe.measure)}
    if recipe.same_as is None:  # Else, its flags are another row's.
      flags = flags_of(recipe.flags_text)
      steps = int(flags['total_rounds']) * int(flags.get('local_steps', 0))
      have |= {**flags, 'steps': str(steps)}
    wanted = {}
    for line in SETTINGS:
      text = f'{recipe.name} {recipe.flags_text}'
      if match := re.search(line['rows'], text):
        wanted |= flags_of(match.expand(line['flags']))
    if recipe.same_as is not None:
      wanted = {name: wanted[name] for name in wanted.keys() & have.keys()}
    assert {name: have.get(name) for name in wanted} == wanted, recipe.name


def test_each_line_of_settings_is_of_some_row():
  known = [f'{name} {row.flags_text}' for name, row in ROWS.items()]
  for line in SETTINGS:
    assert any(re.search(line['rows'], text) for text in known), line
  assert len(TABLES['native_writers']) == 24


@pytest.mark.parametrize('line', DIFFERENCES, ids=lambda line: line['rows'])
def test_rows_differ_from_others_in_what_they_are_for(line):
  found = [re.fullmatch(line['rows'], name) for name in ROWS]
  found = [match for match in found if match]
  assert len(found) == int(line['number'])
  for match in found:
    recipe, other = ROWS[match[0]], ROWS[match.expand(line['other'])]
    if line['changes']:
      assert changed(recipe, other) == flags_of(match.expand(line['changes']))
    else:
      assert recipe.run_name == other.name


@pytest.mark.parametrize('table', sorted(COMPARED))
def test_all_rows_of_these_tables_are_compared_with_others(table):
  compared = re.compile('|'.join(line['rows'] for line in DIFFERENCES))
  for recipe in TABLES[table].values():
    assert compared.fullmatch(recipe.name), recipe.name


@pytest.mark.parametrize('table', [t for t in TABLES if t.startswith('ssfl')])
def test_the_server_takes_as_many_steps_as_a_client(table):
  for recipe in TABLES[table].values():
    flags = flags_of(recipe.flags_text)
    if flags['process'] != 'server_only':  # It has no clients.
      assert flags.get('server_steps') in (None, flags['local_steps'])


@pytest.mark.parametrize('table', FEDLABEL)
def test_all_systems_of_cho_et_al_take_as_many_gradient_steps(table):
  for recipe in TABLES[table].values():
    texts = flags_of(recipe.flags_text)
    flags = {name: int(v) for name, v in texts.items() if v.isdigit()}
    own = recipe.run_name.partition(':')[0]
    if own == 'fedlabel_figure12':
      assert flags['unlabelled_steps'] == 16
    elif own != 'fedlabel_figure8':
      # FedTriNet and FedMatch train twice in a round, with as many steps each.
      is_double = texts['process'] in ('fedtrinet', 'fedmatch')
      steps = (2 if is_double else 1) * flags.get('local_steps', 0)
      steps += flags.get('labelled_steps', 0) + flags.get('unlabelled_steps', 0)
      wanted = {'fedavg_16steps': 16, 'fedlabel_32steps': 64}
      assert (steps, flags['batch_size']) == (wanted.get(recipe.row, 32), 64)
      assert flags.get('labelled_batch_size', 64) == 64


@pytest.fixture
def of_process():
  """A function from a process to its rows of Cho et al."""
  own = [r for t in FEDLABEL for r in TABLES[t].values() if not r.same_as]
  return lambda name: [r for r in own if f'process={name} ' in r.flags_text]


def test_a_shortened_fedtrinet_lowers_its_threshold_in_fewer_rounds(of_process):
  rows = of_process('fedtrinet')
  assert len(rows) == 5 + 2 + 2 + 1
  for recipe in rows:
    assert recipe.flags(scale=0.2)['threshold_rounds'] == 35 * 0.2


def test_fedmatch_steps_as_far_on_labels_as_the_other_systems(of_process):
  rows = of_process('fedmatch')
  assert len(rows) == 5 + 2 + 2 + 1
  weight = PROCESSES['fedmatch'].default_of('supervised_weight')
  for recipe in rows:
    other = TABLES[recipe.table][recipe.row.replace('fedmatch', 'fedavg')]
    rates = [
      float(flags_of(r.flags_text)['learning_rate']) for r in (recipe, other)
    ]
    assert rates[0] * weight == pytest.approx(rates[1])


def test_notes_say_what_a_table_of_hospitals_needs():
  for recipe in TABLES['fedul_table2'].values():
    assert '--data_dir' in recipe.note


def test_rounds_of_chart_4_are_evaluated():
  for recipe in TABLES['label_hungry_chart4'].values():
    assert str(recipe.measure) == f'accuracy@{recipe.row.rpartition("_r")[2]}'
    texts = flags_of(recipe.flags_text)
    flags = {name: int(v) for name, v in texts.items() if v.isdecimal()}
    first = flags.get('pretraining_rounds', 0) + 1
    last, number = flags['total_rounds'], recipe.measure.argument
    done = min(first + number, last)
    assert done == last or (
      (done - flags['evaluation_offset']) % flags['rounds_per_evaluation'] == 0
    )


def test_where_the_charts_disagree_the_note_says_so():
  best, reached, curves = (PRINTED[f'label_hungry_chart{n}'] for n in (2, 3, 4))
  for row, printed in reached.items():
    notes = [TABLES[f'label_hungry_chart{n}'][row].note for n in (2, 3)]
    assert ('N/A' in notes[1]) == (printed == 'N/A')
    curve = {n: curves.get(f'{row}_r{n}') for n in range(0, 101, 10)}
    if None in curve.values():
      continue
    curve = {n: float(text) for n, text in curve.items()}
    highest, last = max(curve.values()), curve[100]
    first = next((n for n, x in curve.items() if x >= 50), None)
    disagree = [highest != float(best[row]), str(first or 'N/A') != printed]
    assert ['Chart 4' in note for note in notes] == disagree
    if disagree[0]:
      wrong = last if last != float(best[row]) else highest
      assert f'{wrong:.2f}%' in notes[0]
    if disagree[1]:
      assert f'by Chart 4 it is {first}' in notes[1]
