"""The CSV of clients: whole rounds, any names, nothing twice."""

import csv

import pytest

from experiments.artifacts import metric_log, rows_of_rounds
from experiments.artifacts.round_table import MetricLogError

HEADER = 'round,client,name,examples,accuracy,loss\n'


def rows(number):
  return [(0, 'a', 3, number / 8, 0.5), (2, 'c', 1, 1.0, number / 4)]


def write(path, numbers, first_round=1, rounds=()):
  with rows_of_rounds.ClientLog(path, first_round, rounds) as log:
    for number in numbers:
      log.append(number, rows(number))


def test_rows(tmp_path):
  path = tmp_path / 'clients.csv'
  write(path, [2, 4])
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
  for first_round, rounds in ((1, []), (2, [1])):
    with rows_of_rounds.ClientLog(path, first_round, rounds) as log:
      if first_round == 1:
        log.append(1, [(0, name, 1, 1.0, 0.0)])
    with path.open(newline='') as lines:
      _, *rows_read = csv.reader(lines)
    assert rows_read == [['1', '0', shown, '1', '1.0', '0.0']]


@pytest.mark.parametrize('torn', ['', '6', '6,0,a,3,0.75,0.5\n6,2,c'])
def test_resume_drops_repeated_and_torn_rows(tmp_path, torn):
  path = tmp_path / 'clients.csv'
  write(path, [2, 4])
  whole = path.read_bytes()
  path.write_bytes(whole + torn.encode())
  write(path, [4], first_round=3, rounds=[2])
  assert path.read_bytes() == whole


@pytest.mark.parametrize(
  'damage',
  [
    lambda text: HEADER,
    lambda text: text.replace('2,2,c,1,1.0,0.5\n', ''),
    lambda text: text.replace('loss', 'los'),
    lambda text: text.replace('2,0,a,3', '2,0,a'),
    lambda text: text.replace('2,', '1,'),
  ],
)
def test_rows_that_are_missing_are_not_passed_over(tmp_path, damage):
  path = tmp_path / 'clients.csv'
  write(path, [2, 4])
  damaged = damage(path.read_text())
  path.write_text(damaged)
  with pytest.raises(MetricLogError, match=r'clients\.csv'):
    rows_of_rounds.ClientLog(path, 6, [2, 4])
  assert path.read_text() == damaged


def test_an_edited_row_is_told(tmp_path):
  path = tmp_path / 'clients.csv'
  with rows_of_rounds.ClientLog(path, 1, []) as log:
    for number in (2, 4, 6):
      log.append(number, rows(number))
    digest = log.digest(5)
  with rows_of_rounds.ClientLog(path, 5, [2, 4], digest):
    pass
  path.write_text(path.read_text().replace('2,0,a,3,0.25', '2,0,a,3,0.75'))
  with pytest.raises(MetricLogError, match='a row was changed'):
    rows_of_rounds.ClientLog(path, 5, [2, 4], digest)


def test_lost_file_is_an_error(tmp_path):
  with pytest.raises(MetricLogError, match=r'the rounds \[2\] in which'):
    rows_of_rounds.ClientLog(tmp_path / 'clients.csv', 3, [2])


def test_full_device_is_an_error(tmp_path, failing_calls):
  error = OSError(28, 'No space left on device')
  with (
    rows_of_rounds.ClientLog(tmp_path / 'clients.csv', 1, []) as log,
    failing_calls(['write'], error, 1),
    pytest.raises(MetricLogError, match='No space left'),
  ):
    log.append(1, rows(1))


def test_rounds_come_from_the_metrics(tmp_path):
  path = tmp_path / 'm.csv'
  with metric_log.MetricLog(path, 1) as log:
    log.append(1, {'x': 1})
    log.append(2, {'x': 1, 'y': 0.5})
    log.append(3, {'x': 1})
  with metric_log.MetricLog(path, 4) as log:
    assert log.rounds_with('y') == [2]
    assert log.rounds_with('x') == [1, 2, 3]
    assert log.rounds_with('z') == []
