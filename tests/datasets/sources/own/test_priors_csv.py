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
    (['a,x,.5,.502'], 'row 2: the class priors sum to 1.002 instead of 1'),
    (['a,x,.5,.5', '', 'a,y,.4,.6', 'a,z,1,1'], 'row 4: the class priors sum'),
    (['a,x,50,50'], 'row 2.*shares, not percentages'),
    (['a,x,1.5,-.5'], 'row 2.*at least 0'),
    (['a,x,nan,1'], 'row 2.*at least 0'),
    (['a,x,.5,half'], "column 'well': found words"),
    (['a,x,.5'], 'row 2 has 3 cells under 4 columns'),
    (['a,x,.5,.5', 'a,x,.4,.6'], "row 3: the set 'x' of 'a' has a second row"),
    ([',x,.5,.5'], 'row 2: client_id or set_id is empty'),
    (['a,x,,1'], 'row 2.*nan.*at least 0'),
    (['a,x,50%,50%'], "column 'ill': found .*'50%' in what looks like"),
    ([], 'has no row'),
  ],
)
def test_bad_rows(tmp_path, lines, message, refusal):
  with refusal('priors.csv', match=message):
    read(tmp_path, *lines)


@pytest.mark.parametrize(
  'header, row, message',
  [
    ('client_id,set_id', 'a,x', 'columns are .*must be client_id'),
    ('client_id,set_id,ill', 'a,x,1', 'columns are .*must be client_id'),
    ('set_id,client_id,a,b', 'a,x,.5,.5', 'columns are .*must be client_id'),
    ('client_id,set_id,1,1.0', 'a,x,.5,.5', 'a name of its own'),
    ('client_id,set_id,a,a', 'a,x,.5,.5', 'two columns of one name'),
    ('client_id,set_id,ill,ILL', 'a,x,.5,.5', 'two columns of one name'),
    ('client_id,set_id,a,', 'a,x,.5,.5', 'a column without a name'),
  ],
)
def test_bad_headers(tmp_path, header, row, message):
  with pytest.raises(ValueError, match=message):
    read(tmp_path, row, header=header)


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-16'])
def test_what_a_spreadsheet_writes(tmp_path, encoding):
  text = 'client_id;set_id;ill;well\nb;x;0,25;0,75\n'
  (tmp_path / 'priors.csv').write_text(text, encoding)
  table = sets.read_priors(str(tmp_path / 'priors.csv'), 'client_id', 'set_id')
  np.testing.assert_array_equal(table.rows['b', 'x'], [0.25, 0.75])


def test_no_file_and_no_text(tmp_path):
  with pytest.raises(
    ValueError, match='nowhere.csv cannot be read.*no such file'
  ):
    sets.read_priors(str(tmp_path / 'nowhere.csv'), 'a', 'b')
  (tmp_path / 'p.csv').write_bytes(b'\xff\xfe\x00')
  with pytest.raises(ValueError, match='p.csv is no|p.csv cannot be read'):
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


@pytest.mark.parametrize('names', [('True', 'False'), ('True', 'x')])
def test_sets_named_by_truth_values(tmp_path, names):
  table = read(tmp_path, *(f'a,{name},.5,.5' for name in names))
  found = table.sets_of([('a', name) for name in names])
  assert found.set_index.tolist() == [0, 1]


@pytest.mark.parametrize(
  'row', ['.3333,.6672', '.5,.499', '.5,.501', '.101,.9', '.0999,.9']
)
def test_a_thousandth_is_allowed_and_normalised(tmp_path, row):
  table = read(tmp_path, f'a,x,{row}')
  assert table.rows['a', 'x'].sum() == pytest.approx(1, abs=1e-15)
