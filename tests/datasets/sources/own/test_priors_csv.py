"""Tables of class priors: what is read, and what is refused in a sentence."""

import numpy as np
import pytest

from datasets.sources.own import sets

HEADER = 'client_id,set_id,ill,well'


def read(tmp_path, *lines, header=HEADER):
  path = tmp_path / 'priors.csv'
  path.write_text('\n'.join([header, *lines]) + '\n', encoding='utf-8')
  return sets.read_priors(str(path), 'client_id', 'set_id')


def test_rows_by_name(tmp_path):
  table = read(tmp_path, 'b, x ,.25,.75', '', 'a,x,1,0', 'b,"y,z",0.5,0.5')
  assert table.class_names == ('ill', 'well')
  assert list(table.rows) == [('b', 'x'), ('a', 'x'), ('b', 'y,z')]
  np.testing.assert_array_equal(table.rows['b', 'x'], [0.25, 0.75])
  found = table.sets_of([('a', 'x'), ('b', 'y,z'), ('b', 'x'), ('a', 'x')])
  assert found.client_names == ('b', 'a')
  assert found.client_index.tolist() == [1, 0, 0, 1]
  assert found.set_index.tolist() == [0, 1, 0, 0]
  np.testing.assert_array_equal(
    found.class_priors, [[[0.25, 0.75], [0.5, 0.5]], [[1, 0], [0, 0]]]
  )


def test_a_mark_of_a_spreadsheet_is_no_part_of_the_name(tmp_path):
  table = read(tmp_path, 'b,x,.25,.75', header='\ufeff' + HEADER)
  assert list(table.rows) == [('b', 'x')]


@pytest.mark.parametrize(
  'lines, message',
  [
    (['a,x,.5,.502'], 'line 2: the class priors sum to 1.002 instead of 1'),
    (['a,x,.5,.5', '', 'a,y,.4,.6', 'a,z,1,1'], 'line 5: the class priors sum'),
    (['a,x,50,50'], 'line 2.*shares, not percentages'),
    (['a,x,1.5,-.5'], 'line 2.*at least 0'),
    (['a,x,nan,1'], 'line 2.*at least 0'),
    (['a,x,.5,half'], 'line 2.*not all numbers'),
    (['a,x,.5'], 'line 2 has 3 fields under 4 columns'),
    (['a,x,.5,.5', 'a,x,.4,.6'], "line 3: the set 'x' of 'a' has a second row"),
    ([',x,.5,.5'], 'line 2: client_id or set_id is empty'),
    ([], 'found 0 rows'),
  ],
)
def test_bad_rows(tmp_path, lines, message, refusal):
  with refusal('priors.csv', match=message):
    read(tmp_path, *lines)


@pytest.mark.parametrize(
  'header',
  [
    *('', 'client_id,set_id', 'client_id,set_id,ill', 'set_id,client_id,a,b'),
    *('client_id,set_id,a,a', 'client_id,set_id,a,'),
  ],
)
def test_bad_headers(tmp_path, header):
  with pytest.raises(ValueError, match='columns are .*must be client_id'):
    read(tmp_path, 'a,x,.5,.5', header=header)


def test_no_file_and_no_text(tmp_path):
  with pytest.raises(ValueError, match='nowhere.csv: no readable CSV'):
    sets.read_priors(str(tmp_path / 'nowhere.csv'), 'a', 'b')
  (tmp_path / 'p.csv').write_bytes(b'\xff\xfe\x00')
  with pytest.raises(ValueError, match='p.csv: no readable CSV'):
    sets.read_priors(str(tmp_path / 'p.csv'), 'a', 'b')


@pytest.mark.parametrize(
  'owners, message',
  [
    ([('a', 'x'), ('a', 'z')], "no row for the set 'z' of 'a'"),
    ([('a', 'x')], "row for the set 'y' of 'a', which has no example"),
  ],
)
def test_rows_and_sets_must_match(tmp_path, owners, message):
  table = read(tmp_path, 'a,x,.5,.5', 'a,y,.4,.6')
  with pytest.raises(ValueError, match=message):
    table.sets_of(owners)


def test_names_are_equal_however_they_are_written(tmp_path):
  table = read(tmp_path, 'm\u00fcnchen,x,.5,.5', 'm\u00fcnchen,y,.4,.6')
  decomposed = 'mu\u0308nchen'
  found = table.sets_of([(decomposed, 'x'), ('m\u00fcnchen ', ' y')])
  assert found.client_index.tolist() == [0, 0]
  assert found.set_index.tolist() == [0, 1]


@pytest.mark.parametrize(
  'row', ['.3333,.6672', '.5,.499', '.5,.501', '.101,.9', '.0999,.9']
)
def test_a_thousandth_is_allowed_and_normalised(tmp_path, row):
  table = read(tmp_path, f'a,x,{row}')
  assert table.rows['a', 'x'].sum() == pytest.approx(1, abs=1e-15)
