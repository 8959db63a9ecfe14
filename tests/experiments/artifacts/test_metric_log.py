"""The CSV of metrics: each round once, exact numbers, no silent loss."""

import asyncio
import csv
import math
import os

import ml_dtypes
import numpy as np
import pytest
import pythons

from experiments.artifacts import metric_log, run_folder


def read(path):
  with open(path, newline='') as lines:
    return list(csv.reader(lines))


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'm.csv'


def append(path, *rows, first_round=1):
  """Writes one row after another, from `first_round` on."""
  with metric_log.MetricLog(path, first_round) as log:
    for number, row in enumerate(rows, start=first_round):
      log.append(number, row)


def test_rows_and_nested_names(path):
  append(
    path,
    {'train': {'loss': 0.5, 'count': 3}, 'on': True},
    {'train': {'loss': 0.25, 'count': 4}, 'on': False},
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
  with metric_log.MetricLog(path, 1) as log:
    log.append(1, {'x': 0.125})
    log.append(2, {'x': 0.25})
    stored = log.digests(2)
    # Of a round that is repeated, with a column that stays.
    log.append(3, {'x': 0.375, 'y': 1})
  with metric_log.MetricLog(path, 3, stored) as log:
    assert log.digests(2) == stored
  whole = path.read_text()
  for damage in (('0.125', '0.5'), ('1,0.125,\n', '1,,0.125\n'), ('x', 'z')):
    damaged = whole.replace(*damage)
    assert damaged != whole
    path.write_text(damaged)
    with pytest.raises(metric_log.MetricLogError, match='a row was changed'):
      metric_log.MetricLog(path, 3, stored)
    assert path.read_text() == damaged


def test_a_round_has_one_row(path):
  with metric_log.MetricLog(path, 1) as log:
    log.append(2, {'x': 1})
    for number in (1, 2):
      with pytest.raises(ValueError, match=f'round={number} is not after'):
        log.append(number, {'x': 1})


@pytest.mark.parametrize(
  'metrics, message',
  [
    ({'x': np.zeros(2)}, r'The metric x is ndarray of shape \(2,\)'),
    ({'x': None}, 'The metric x is NoneType'),
    ({'x': 'a\nb'}, 'line break'),
    ({'round': 1}, "'round'"),
  ],
)
def test_what_is_no_cell_is_refused(path, metrics, message):
  with metric_log.MetricLog(path, 1) as log:
    with pytest.raises(ValueError, match=message):
      log.append(1, metrics)
    log.append(1, {'y': 1})


@pytest.mark.parametrize(
  'content', [b'a,b\n1,2\n', b'round,x\n1\n', b'round,x\nz,1\n', b'\xff\n']
)
def test_foreign_or_damaged_file_is_refused(path, content):
  path.write_bytes(content)
  with pytest.raises(metric_log.MetricLogError, match='m.csv'):
    metric_log.MetricLog(path, 5)
  assert path.read_bytes() == content


LIMITED = """
import resource, sys
from experiments.artifacts import metric_log
log = metric_log.MetricLog(sys.argv[1], 1)
log.append(1, {'x': 1.25})
resource.setrlimit(resource.RLIMIT_FSIZE, (18, resource.RLIM_INFINITY))
try:
  log.append(2, {'x': 0.123456789})
except metric_log.MetricLogError as error:
  print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
log.append(2, {'x': 0.5})
"""


def test_half_written_row_is_taken_back(path):
  """The kernel itself stops the file at 18 bytes, within the second row."""
  done = pythons.run('-c', LIMITED, path)
  assert 'm.csv cannot be written: File too large' in done.stdout, done
  assert path.read_text() == 'round,x\n1,1.25\n2,0.5\n'


def test_failure_at_every_system_call(tmp_path, failing_calls):
  expected = [['round', 'x', 'y'], ['1', '1', ''], ['2', '2', '3']]
  calls = ('open', 'write', 'fsync', 'replace')
  error = OSError(28, 'No space left on device')
  fatal_call, finished = 0, False
  while not finished:
    fatal_call += 1
    path = tmp_path / f'{fatal_call}.csv'
    log = metric_log.MetricLog(path, 1)
    log.append(1, {'x': 1})
    with failing_calls(calls, error, fatal_call, last=fatal_call):
      try:
        log.append(2, {'x': 2, 'y': 3})
        finished = True
      except metric_log.MetricLogError as caught:
        assert 'No space left' in str(caught)
    append(path, {'x': 2, 'y': 3}, first_round=2)
    assert read(path) == expected
  assert fatal_call > 5


def test_temporary_of_an_interrupted_write_is_not_in_the_way(path):
  (path.parent / f'{run_folder.TEMPORARY_PREFIX}m.csv').write_text('half')
  append(path, {'x': 1})
  assert os.listdir(path.parent) == ['m.csv']


@pytest.mark.parametrize('in_notebook', [False, True])
def test_tensorboard_holds_the_numbers(tmp_path, in_notebook):
  """A cell of a notebook is run in an event loop."""
  tf = pytest.importorskip('tensorflow')

  def write():
    log = metric_log.TensorBoardLog(tmp_path)
    log.write(7, {'train': {'loss': 0.5}})

  async def cell():
    write()

  if in_notebook:
    asyncio.run(cell())
  else:
    write()
  found = {
    value.tag: (event.step, tf.make_ndarray(value.tensor).item())
    for path in tmp_path.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  }
  assert found == {'train/loss': (7, 0.5)}
