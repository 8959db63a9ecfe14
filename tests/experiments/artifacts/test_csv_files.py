"""CSV files: inert cells, each round once, exact numbers, no silent loss."""

import contextlib
import csv
import io
import math
import os

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import pythons

from experiments.artifacts import csv_files, durable_files


def read(path):
  with open(path, newline='') as lines:
    return list(csv.reader(lines))


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'm.csv'


def append(path, *rows, first_round=1):
  """Writes one row after another, from `first_round` on."""
  with csv_files.MetricLog(path, first_round) as log:
    for number, row in enumerate(rows, start=first_round):
      log.append(number, row)


def test_rows(path):
  append(
    path,
    {'train/loss': 0.5, 'train/count': 3, 'on': True},
    {'train/loss': 0.25, 'train/count': 4, 'on': False},
  )
  assert read(path) == [
    ['round', 'train/loss', 'train/count', 'on'],
    ['1', '0.5', '3', 'True'],
    ['2', '0.25', '4', 'False'],
  ]


@pytest.mark.parametrize(
  'value',
  [
    *(0.1, 0.1 + 0.2, -1e-320, math.inf, math.nan, np.float32(0.1)),
    *(np.array(1 / 3), np.float16(0.1), ml_dtypes.bfloat16(0.1), 2**63 - 1, -7),
  ],
)
def test_numbers_round_trip(path, value):
  append(path, {'x': value}, first_round=0)
  [_, [_, text]] = read(path)
  number = int if isinstance(value, int) else float
  np.testing.assert_equal(number(text), number(value))


@pytest.mark.parametrize('text', ['=cmd|x', '+A1', '-A1', '@sum', '=1,"a"'])
def test_formulas_are_inert(path, text):
  append(path, {text: text, 'loss': -1.5})
  header, row = read(path)
  assert header == ['round', f"'{text}", 'loss']
  assert row == ['1', f"'{text}", '-1.5']


def test_new_metric_gets_a_column(path):
  append(path, {'a': 1}, {'b': 2, 'a': 3}, {'b': 4})
  assert read(path) == [
    ['round', 'a', 'b'],
    ['1', '1', ''],
    ['2', '3', '2'],
    ['3', '', '4'],
  ]


@pytest.mark.parametrize('torn', ['', '4,0.', '4,0.1', '4,"x'])
def test_resume_drops_repeated_and_torn_rows(path, torn):
  append(path, {'x': 0.125}, {'x': 0.25}, {'x': 0.375})
  uninterrupted = path.read_bytes()
  path.write_bytes(uninterrupted + torn.encode())
  append(path, first_round=2)
  assert len(read(path)) == 2
  append(path, {'x': 0.25}, {'x': 0.375}, first_round=2)
  assert path.read_bytes() == uninterrupted


def test_an_edited_row_is_told(path):
  with csv_files.MetricLog(path, 1) as log:
    log.append(1, {'x': 0.125})
    log.append(2, {'x': 0.25})
    stored = log.digests(2)
    # Of a round that is repeated, with a column that stays.
    log.append(3, {'x': 0.375, 'y': 1})
  with csv_files.MetricLog(path, 3, stored) as log:
    assert log.digests(2) == stored
  whole = path.read_text()
  for damage in (('0.125', '0.5'), ('1,0.125,\n', '1,,0.125\n'), ('x', 'z')):
    damaged = whole.replace(*damage)
    assert damaged != whole
    path.write_text(damaged)
    with pytest.raises(csv_files.MetricLogError, match='a row was changed'):
      csv_files.MetricLog(path, 3, stored)
    assert path.read_text() == damaged


def test_a_metric_that_is_called_like_the_first_column_is_refused(path):
  with csv_files.MetricLog(path, 1) as log:
    with pytest.raises(ValueError, match="'round'"):
      log.append(1, {'round': 1})
    log.append(1, {'y': 1})


def test_a_text_of_two_lines_is_one_cell(path):
  append(path, {'x\ny': 'a\nb'})
  assert read(path) == [['round', 'x\\ny'], ['1', 'a\\nb']]


@pytest.mark.parametrize(
  'content', [b'a,b\n1,2\n', b'round,x\n1\n', b'round,x\nz,1\n', b'\xff\n']
)
def test_foreign_or_damaged_file_is_refused(path, content):
  path.write_bytes(content)
  with pytest.raises(csv_files.MetricLogError, match='m.csv'):
    csv_files.MetricLog(path, 5)
  assert path.read_bytes() == content


LIMITED = """
import resource, sys
from experiments.artifacts import csv_files
log = csv_files.MetricLog(sys.argv[1], 1)
log.append(1, {'x': 1.25})
resource.setrlimit(resource.RLIMIT_FSIZE, (18, resource.RLIM_INFINITY))
try:
  log.append(2, {'x': 0.123456789})
except csv_files.MetricLogError as error:
  print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
log.append(2, {'x': 0.5})
"""


def test_half_written_row_is_taken_back(path):
  """The kernel itself stops the file at 18 bytes, within the second row."""
  done = pythons.run('-c', LIMITED, path)
  assert 'm.csv cannot be written: File too large' in done.stdout, done
  assert path.read_text() == 'round,x\n1,1.25\n2,0.5\n'


def test_r3_failure_at_every_system_call(tmp_path, failing_calls):
  expected = [['round', 'x', 'y'], ['1', '1', ''], ['2', '2', '3']]
  calls = ('open', 'write', 'fsync', 'replace')
  error = OSError(28, 'No space left on device')
  fatal_call, finished = 0, False
  while not finished:
    fatal_call += 1
    path = tmp_path / f'{fatal_call}.csv'
    log = csv_files.MetricLog(path, 1)
    log.append(1, {'x': 1})
    with failing_calls(calls, error, fatal_call, last=fatal_call):
      try:
        log.append(2, {'x': 2, 'y': 3})
        finished = True
      except csv_files.MetricLogError as caught:
        assert 'No space left' in str(caught)
    append(path, {'x': 2, 'y': 3}, first_round=2)
    assert read(path) == expected
  assert fatal_call > 5


def test_temporary_of_an_interrupted_write_is_not_in_the_way(path):
  (path.parent / f'{durable_files.TEMPORARY_PREFIX}m.csv').write_text('half')
  append(path, {'x': 1})
  assert read(path) == [['round', 'x'], ['1', '1']]
  durable_files.sweep(path.parent)
  assert os.listdir(path.parent) == ['m.csv']


HEADER = 'round,client,name,examples,accuracy,loss\n'


def rows_of_clients(number):
  return [(0, 'a', 3, number / 8, 0.5), (2, 'c', 1, 1.0, number / 4)]


@contextlib.contextmanager
def clients(path, first_round=1, stored=None):
  """Opens clients.csv as a run does: beside metrics.csv."""
  with (
    csv_files.MetricLog(path.with_name('m.csv'), first_round, stored) as log,
    log.beside(path.name, is_wanted=True) as table,
  ):
    yield table


def write_clients(path, numbers, first_round=1, stored=None):
  """Returns what a checkpoint after the last round keeps of the table."""
  with clients(path, first_round, stored) as table:
    for number in numbers:
      table.append(number, rows_of_clients(number))
    return {path.name: table.digest(100)}


def test_rows_of_clients(tmp_path):
  path = tmp_path / 'clients.csv'
  write_clients(path, [2, 4])
  assert path.read_text() == (
    f'{HEADER}2,0,a,3,0.25,0.5\n2,2,c,1,1.0,0.5\n'
    '4,0,a,3,0.5,0.5\n4,2,c,1,1.0,1.0\n'
  )


@pytest.mark.parametrize(
  'name, shown',
  [
    ('=cmd|x', "'=cmd|x"),
    ('-A1', "'-A1"),
    ('-1', '-1'),
    ('line\nbreak\r', 'line\\nbreak\\r'),
    ('nul\0', 'nul\\x00'),
    ('a,"b"', 'a,"b"'),
    ('\u00e9\U0001f58a \u202e', '\u00e9\U0001f58a \\u202e'),
    ('', ''),
  ],
)
def test_a_name_is_one_inert_cell(tmp_path, name, shown):
  path = tmp_path / 'clients.csv'
  for first_round in (1, 2):
    with clients(path, first_round) as log:
      if first_round == 1:
        log.append(1, [(0, name, 1, 1.0, 0.0)])
    with path.open(newline='') as lines:
      _, *rows_read = csv.reader(lines)
    assert rows_read == [['1', '0', shown, '1', '1.0', '0.0']]


@pytest.mark.parametrize('torn', ['', '6', '6,0,a,3,0.75,0.5\n6,2,c'])
def test_resume_drops_repeated_and_torn_rows_of_clients(tmp_path, torn):
  path = tmp_path / 'clients.csv'
  stored = write_clients(path, [2])
  write_clients(path, [4], first_round=3, stored=stored)
  whole = path.read_bytes()
  path.write_bytes(whole + torn.encode())
  write_clients(path, [4], first_round=3, stored=stored)
  assert path.read_bytes() == whole


@pytest.mark.parametrize(
  'damage',
  [
    lambda text: '',
    lambda text: HEADER,
    lambda text: text.replace('2,2,c,1,1.0,0.5\n', ''),
    lambda text: text.replace('loss', 'los'),
    lambda text: text.replace('2,0,a,3', '2,0,a'),
    lambda text: text.replace('2,', '1,'),
  ],
)
def test_rows_that_are_missing_are_not_passed_over(tmp_path, damage):
  path = tmp_path / 'clients.csv'
  stored = write_clients(path, [2, 4])
  damaged = damage(path.read_text())
  path.write_text(damaged)
  with pytest.raises(csv_files.MetricLogError, match=r'clients\.csv'):
    write_clients(path, [], first_round=6, stored=stored)
  assert path.read_text() == damaged


def test_an_edited_row_of_a_client_is_told(tmp_path):
  path = tmp_path / 'clients.csv'
  with clients(path) as log:
    for number in (2, 4, 6):
      log.append(number, rows_of_clients(number))
    stored = {path.name: log.digest(5)}
  write_clients(path, [], first_round=5, stored=stored)
  path.write_text(path.read_text().replace('2,0,a,3,0.25', '2,0,a,3,0.75'))
  with pytest.raises(csv_files.MetricLogError, match='a row was changed'):
    write_clients(path, [], first_round=5, stored=stored)


def test_lost_or_foreign_file_is_an_error(tmp_path):
  path = tmp_path / 'clients.csv'
  stored = write_clients(path, [2])
  with pytest.raises(csv_files.MetricLogError, match='or is missing'):
    write_clients(path, [], first_round=3, stored={})
  path.unlink()
  with pytest.raises(csv_files.MetricLogError, match='or is missing'):
    write_clients(path, [], first_round=3, stored=stored)
  write_clients(path, [], first_round=3, stored={})


def test_r3_full_device_is_an_error(tmp_path, failing_calls):
  error = OSError(28, 'No space left on device')
  with (
    clients(tmp_path / 'clients.csv') as log,
    failing_calls(['write'], error, 1),
    pytest.raises(csv_files.MetricLogError, match='No space left'),
  ):
    log.append(1, rows_of_clients(1))


def test_a_checkpoint_knows_the_rows_of_all_tables(tmp_path):
  metrics, path = tmp_path / 'metrics.csv', tmp_path / 'clients.csv'
  with (
    csv_files.MetricLog(metrics, 1) as log,
    log.beside(path.name, is_wanted=True) as table,
  ):
    for number in (1, 2, 3):
      table.append(number, rows_of_clients(number) if number == 2 else [])
      log.append(number, {'x': number})
    stored = log.digests(3)
  assert set(stored) == {'metrics.csv', 'clients.csv'}
  whole = metrics.read_text(), path.read_text()
  for damaged in (metrics, path):
    metrics.write_text(whole[0])
    path.write_text(whole[1])
    lines = damaged.read_text().splitlines(keepends=True)
    damaged.write_text(''.join(lines[:-1]))
    with (
      pytest.raises(csv_files.MetricLogError, match=f'{damaged.name} does not'),
      csv_files.MetricLog(metrics, 4, stored) as log,
      log.beside(path.name, is_wanted=True),
    ):
      pass


@pytest.mark.parametrize('name', ['=1+1', '+A1', '-A1', '@SUM(A1)', '-', '=-1'])
def test_b7_what_a_spreadsheet_would_run_is_text(name):
  assert csv_files.inert(name) == f"'{name}"


@pytest.mark.parametrize('name', ['a=1', '-1', '+.5', '-2e3', 'cat', '', ' =1'])
def test_numbers_and_other_names_stay(name):
  assert csv_files.inert(name) == name


def test_names_of_columns_and_rows_are_no_formulas_either():
  table = pd.DataFrame(
    {'=a': ['@b', 'c', None], 'd': [-1.5, 2, np.nan]},
    index=['+e', 'f', 'g, h'],
  )
  text = csv_files.text_of_table(table, index_label='i', float_format='%.1f')
  assert text == ("i,'=a,d\n'+e,'@b,-1.5\nf,c,2.0\n\"g, h\",,\n")
  assert list(table.columns) == ['=a', 'd']  # It is a copy that changes.
  plain = table.rename(columns={'=a': 'a'}, index={'+e': 'e'})
  plain.loc['e', 'a'] = 'b'
  read = pd.read_csv(io.StringIO(csv_files.text_of_table(plain)), index_col=0)
  pd.testing.assert_frame_equal(read, plain)
