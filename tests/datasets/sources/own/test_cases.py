"""Files as people have them: what is read in them, asked about, or told."""

import datetime
import decimal
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from datasets.records import source_report
from datasets.sources import catalogue
from datasets.sources.own import tables

UNITS = (' years', ' mg/dl', ' m2', '\xb12', ' (2.5)', '0/80', 'x10^3')
DATES = (
  *('2020-01-31', '3.1.2020', '12:30', '10h22', '5 Jan 2020', '05JAN2020'),
  *('Jan 5, 2020', 'March 2020', '5. M\xe4rz 2020', '3/14', '2020-W05'),
)
NO_LABEL = (
  *('NA', '?', 'None', 'nan', '-1', '-1.0', '-1.', '\u22121', 'unknown'),
  *('Not labelled', 'n.a.', '???', '\u2014', 'unsup', 'no class', 'Infinity'),
)
PLAIN = 'x,label\n1,u\n2,v\n4,u\n3,v\n'
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 8), np.uint8)
CLASSES = np.arange(12) % 2
LETTERS = pa.array(list('uvuv'))


def write(folder, name, content):
  """Writes text, bytes, the columns of a Parquet file or arrays."""
  path = folder / name
  if isinstance(content, dict) and path.suffix == '.npz':
    np.savez(path, **content)
  elif isinstance(content, dict):
    parquet.write_table(pa.table(content), path)
  else:
    text = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(text)


def load(dataset, folder, train, test=None, server=None):
  """Loads files; without one of its own, the test file is the training file."""
  test = train if test is None else test
  ending = '.csv'
  if isinstance(train, dict):
    ending = '.npz' if dataset == 'npz' else '.parquet'
  for split, content in (('train', train), ('test', test), ('server', server)):
    if content is not None:
      write(folder, f'{split}{ending}', content)
  return catalogue.load(dataset, data_dir=str(folder), cache_dir='unused')


def table(cells, labels='uvuv', name='x'):
  """Returns a CSV file with a column of these cells."""
  rows = zip(cells, itertools.cycle(labels), strict=False)
  return '\n'.join([f'{name};label', *(f'{a};{b}' for a, b in rows)]) + '\n'


@pytest.mark.parametrize(
  'train, fragments',
  [
    # Rows and names of columns.
    ('x,label\n1,0,u\n2,0,v\n', ['row 2 has 3 cells under 2', "'1,0,u'"]),
    ('x,label\n1,u\n2\n', ['row 3 has 1 cells']),
    ('x,label\n1,u,\n2,v,\n', ['row 2 has 3 cells']),
    ('x,label,\n1,u,\n2,v,\n', ['a column without a name']),
    ('x,label,label\n1,u,u\n2,v,v\n', ["columns 'label' and 'label'"]),
    ('x,X ,label\n1,1,u\n2,2,v\n', ["columns 'x' and 'X '", 'but for case']),
    ('"x\ny",label\n1,u\n2,v\n', ['a line break within the name']),
    (PLAIN + PLAIN, ['row 6 repeats the names']),
    ('x,Label\n1,u\n2,v\n', ["no column 'label'", "'Label'"]),
    *(
      (PLAIN.replace('x,', f'{name},'), [name, 'call it client_id if'])
      for name in ('client_ids', 'Hospital', 'uid', 'site_code', 'worker_id')
    ),
    # Encodings.
    ('x,label\n1,\xe9\n2,v\n'.encode('cp1252'), ['no UTF-8 (byte 10)']),
    (PLAIN.encode('utf-16-le'), ['a NUL byte']),
    # Numbers.
    *(
      (table(cells), ["column 'x'", repr(cells[0]), 'looks like numbers'])
      for cells in (
        ['1,234,000', '2,345', '999', '1'],
        ["1'234", "2'345", '999', '1'],
        ['1 234', '2 345', '999', '1'],
        ['3%', '4%', '5%', '5%'],
        ['3 kg', '4 kg', '5kg', '6'],
        ['$3', '$4.50', '$5', '6'],
        ['n.a.', '4', '5', '6'],
        ['\u0663', '\u0664', '\u0665', '\u0666'],
        *([f'{i}{unit}' for i in range(4)] for unit in UNITS),
        *([f'{mark}{i}' for i in range(4)] for mark in ('>=', 'USD ', "'")),
        ['3 kg', '4 lb', '5 kg', '6 lb', '7 kg', '8 lb'],
        ['10+ years', '< 1 year', '2 years', '1 year', '4 years', '5 years'],
        ['007.67', '010.50', '5_017', '0x1f'],
        ['n.d.', 'not done', *'12345', *['n.d.'] * 9],
      )
    ),
    (table(['1,234', '2,345', '9', '']), ["'1,234'", 'part thousands']),
    (table(['925', '1.073', '2.886', '']), ["'1.073'", 'part thousands']),
    (table(['1.073', '2.886']), ["'1.073'", 'part cells by commas']),
    (
      'x;y;label\n1,5;1.234;u\n2,5;999;v\n3;12.500;u\n',
      ["'y'", "'1.234'", 'part thousands'],
    ),
    (
      table(['?!', '1', '2', '3', '4', '5', *['?!'] * 6], 'uv' * 6),
      ["7 of 12 cells such as '?!'"],
    ),
    *(
      (table([date, 'soon', date, date]), ['dates or times', 'days since'])
      for date in DATES
    ),
    # Labels and owners.
    *(
      (table('1234', ['u', 'v', mark, mark]), [f'{mark!r} in 2 of 4 (row 4)'])
      for mark in NO_LABEL
    ),
    *(
      (table('1234', [name, 'v', other, 'v']), [f'{name!r} and {other!r}'])
      for name, other in (
        ('ill', 'ill\u200b'),
        ('A', '\uff21'),
        ('a b', 'a  b'),
        ('a b', 'a_b'),
        ('1e3', '1000'),
      )
    ),
    (table('1234', ['u', 'v', 'U', 'v']), ["'u' and 'U'", 'in one way']),
    (table('1234', ['1.5', '2', '1.50', '2']), ["'1.5' and '1.50'"]),
    (table('1234', ['-0', '2', '0', '2']), ["'-0' and '0'"]),
    *(
      (
        table(['1', '2', mark, 'h'], name='client_id'),
        ['in 1 of 4', 'who owns'],
      )
      for mark in ('?', 'unknown', '-1', '-1.0', 'N.A.')
    ),
    # Quotation marks.
    *(
      (train, ['line 3: the quotation mark', 'closed'])
      for train in (
        'x,label\na,u\n"b,v\nc,u\n',
        'x,label\na,u\n"b,v\nc,u\n"d,v\n',
        'x,y,label\na,1,u\n"b,2,v\nc,3,u\nd",4,v\n',
        'x\ty\tlabel\na\t1\tu\n1\t"b\tv\nc\t3\t"\tv\n',
        'x,label\na,u\n"say \\"b\\", c",v\n',
      )
    ),
    ('\n\nx,label\na,u\n"b" c,v\n', ['line 5: the quotation mark']),
    # Parquet.
    *(
      ({'x': pa.array([cell] * 4), 'label': LETTERS}, ["'x'", kind])
      for cell, kind in (
        (datetime.date(2020, 1, 1), 'type date32[day]; give numbers'),
        (datetime.datetime(2020, 1, 1), 'such as the days since a date'),
        ([1, 2], 'type list'),
        (b'ab', 'type binary'),
      )
    ),
    ({'__index_level_0__': LETTERS, 'label': LETTERS}, ['its index']),
  ],
)
def test_tables_that_are_asked_about(tmp_path, refusal, train, fragments):
  with refusal('train.', *fragments):
    load('table', tmp_path, train)


@pytest.mark.parametrize(
  'cells, values',
  [
    (['20', 'NA', '?', '40'], [20, 30, 30, 40]),
    (['-1.5', '\u22121.5', ' 3', '+.5e1'], [-1.5, -1.5, 3, 5]),
    (['1,5', '2,25', '-', '4'], [1.5, 2.25, 7.75 / 3, 4]),
    (['1,5', '2', '.', '4'], [1.5, 2, 2.5, 4]),
    (['1.073', '1000', '2', '4'], [1.073, 1000, 2, 4]),
    (['1.073', '0.125', '2', '4'], [1.073, 0.125, 2, 4]),
    ([decimal.Decimal('1.10'), None, 2, 5], [1.1, 2.7, 2, 5]),
    (np.array([1, 2, 3, 5], np.float16), [1, 2, 3, 5]),
    (pa.array([1, None, 3, 5], pa.uint64()), [1, 3, 3, 5]),
    (pa.array([1, None, 3, 5]).dictionary_encode(), [1, 3, 3, 5]),
  ],
)
def test_numbers(tmp_path, cells, values):
  is_csv = isinstance(cells, list) and isinstance(cells[0], str)
  train = table(cells) if is_csv else {'x': cells, 'label': LETTERS}
  source = load('table', tmp_path, train)
  assert source.facts[0].startswith("column 'x': numbers from ")
  np.testing.assert_array_equal(
    source.train.examples[:, 0], np.float32(values), strict=True
  )


@pytest.mark.parametrize(
  'labels, names',
  [
    ([' u', 'v', 'u ', 'v'], ('u', 'v')),
    (['b\xe4', 'u', 'ba\u0308', 'u'], ('b\xe4', 'u')),
    (['1.0', '0', '1', '0.00'], ('0', '1')),
    (['1.0.0', 'v1.0', '1.0.0', 'v1'], ('1.0.0', 'v1', 'v1.0')),
    (['1e3', '2.50', '1e3', '1e99999999999999999999'], None),
    (pa.array([2**60, 2**60 + 1] * 2), (str(2**60), str(2**60 + 1))),
    (pa.array([True, False] * 2), ('false', 'true')),
    (pa.array([1.0, 2.5, -0.0, 0.0]), ('0', '1', '2.5')),
    (pa.array([0.1, 2.5] * 2, pa.float32()), ('0.1', '2.5')),
    (['TRUE', 'False', 'NAB', 'true'], ('NAB', 'false', 'true')),
    (['+', '***', '**', '+'], ('**', '***', '+')),
    ([decimal.Decimal('2.50'), decimal.Decimal('10.00')] * 2, ('10', '2.5')),
  ],
)
def test_labels(tmp_path, labels, names):
  is_csv = isinstance(labels[0], str)
  train = table('1235', labels) if is_csv else {'x': [1, 2, 3, 5]}
  source = load(
    'table', tmp_path, train if is_csv else train | {'label': labels}
  )
  assert source.class_names == (names or tuple(sorted(set(labels))))


@pytest.mark.parametrize(
  'cells',
  [
    ['1st', '2nd', '3rd', '4th', '5th', '6th'],
    ['3-door', '5-door'],
    ['1 - low', '2 - mid', '3 - high'],
    ['1920x1080', '1366x768', '640x480', '800x600', '1280x720'],
    [f'{row}{seat}' for row in range(1, 9) for seat in 'ABCD'],
    ['68fd1e64', '05db9164', '9b1c', '5a9e'],
    ['20-29', '30-39', '60+'],
    ['stage 2', 'ward 12', 'A1', 'marker 3'],
  ],
)
def test_words_that_begin_with_digits(tmp_path, cells):
  source = load('table', tmp_path, table(cells))
  assert source.preprocessing['words'] == {'x': sorted(cells)}


def test_truth_is_the_same_beside_other_words(tmp_path):
  source = load('table', tmp_path, table(['TRUE', 'False', 'NA', 'true']))
  assert source.preprocessing['words'] == {'x': ['NA', 'false', 'true']}


def test_texts_of_several_lines_are_read(tmp_path):
  cells = ['Dear Sir,\n yes, u\nv', 'a "b"\n\n,', 'one\ntwo', 'u,\nv,\n"']
  quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
  lines = [f'{cell},{name}' for cell, name in zip(quoted, 'uvuv', strict=True)]
  write(tmp_path, 'a.csv', 'text,label\n' + '\n'.join(lines) + '\n')
  table = tables.read(str(tmp_path / 'a.csv'))
  assert table.texts('text') == [cell.strip() for cell in cells]


def test_words_and_owners(tmp_path):
  source = load(
    'table',
    tmp_path,
    'w,client_id,label\nred,h1,u\n red ,h1 ,v\nba\u0308r,H1,u\nb\xe4r,7,v\n'
    '"a\r\nb",7,u\n"a\nb",7,v\n',
  )
  assert source.preprocessing['words'] == {'w': ['a\nb', 'b\xe4r', 'red']}
  assert source.train.client_ids.tolist() == ['h1', 'h1', 'H1', '7', '7', '7']
  assert 'H1 and h1 (1 in all)' in ' '.join(source.notes)
  owners = 'x,client_id,label\n1,1.0,u\n2,1,v\n4,02,u\n8,2,v\n'
  source = load('table', tmp_path, owners)
  assert source.train.client_ids.tolist() == ['1', '1', '02', '2']
  assert (
    'owners that differ' in source.notes[0] and '02 and 2' in source.notes[0]
  )


def test_owners_in_parquet(tmp_path):
  """An index may be the owners; whole numbers count to the last digit."""
  schema = {'index_columns': ['client_id'], 'columns': []}
  owners = [2**60, 2**60 + 1, 7, 2**60]
  columns = pa.table({'x': [1, 2, 3, 5], 'label': LETTERS, 'client_id': owners})
  columns = columns.replace_schema_metadata({'pandas': json.dumps(schema)})
  for split in ('train', 'test'):
    parquet.write_table(columns, tmp_path / f'{split}.parquet')
  source = catalogue.load('table', data_dir=str(tmp_path), cache_dir='unused')
  assert source.columns == (0,)
  assert source.train.client_ids.tolist() == list(map(str, owners))


def told(source):
  return '\n'.join(source_report.oddities(source))


ARRAYS = {'images': PIXELS, 'labels': CLASSES}


@pytest.mark.parametrize(
  'dataset, files, fragments',
  [
    ('table', [PLAIN, 'x,label\n1,u\n'], ['test has no example of v']),
    (
      'npz',
      [ARRAYS, {'images': PIXELS[:1], 'labels': CLASSES[:1]}],
      ['test has no example of 1'],
    ),
    (
      'table',
      [table([*'123456', -999, -999], 'uv' * 4)],
      ['2 cells have -999, far from all others'],
    ),
    ('table', [table('0123')], ['it numbers the rows']),
    ('table', [table('0379', name='Unnamed: 0')], ['leave row numbers out']),
    ('table', [table('0379', name='Group')], ["'Group': call it client_id"]),
    ('table', [table(['Yes', 'yes', 'No', 'no'])], ['No and no (2 in all)']),
    ('table', [table('1234', ['1', '01', '1', '01'])], ['01 and 1 (1 in all)']),
    ('table', [table(['a b c', 'a b d', 'a b e'])], ['texts in 3 rows']),
    (
      'table',
      [table('1234', ['-99', 'v', 'u', 'v']), table('56', 'uv')],
      ['classes of no other file: -99', 'leave the cell empty'],
    ),
    (
      'table',
      ['w,label\na,u\nb,v\n', 'w,label\nc,u\nb,v\n'],
      ['1 of 2 rows have values that train lacks, such as w=c is unknown'],
    ),
    (
      'npz',
      [
        {'images': PIXELS[:4], 'client_ids': CLASSES[:4]},
        {'images': PIXELS[4:], 'labels': CLASSES[4:]},
        {'images': PIXELS[4:], 'labels': CLASSES[4:]},
      ],
      ['8 of the 8 test examples are in server, too, a leak'],
    ),
    (
      'npz',
      [ARRAYS, ARRAYS | {'images': PIXELS // 16}],
      ['test has pixels', 'another scale than train', 'in one way'],
    ),
    (
      'npz',
      [
        {'images': PIXELS // 2},
        ARRAYS | {'images': PIXELS // 2},
        ARRAYS | {'images': 255 - PIXELS // 2},
      ],
      ['server has pixels', 'another scale than train'],
    ),
    (
      'npz',
      [ARRAYS | {'images': PIXELS // 16}],
      ['No pixel of train is above'],
    ),
  ],
)
def test_what_is_told(tmp_path, dataset, files, fragments):
  said = told(load(dataset, tmp_path, *files))
  for fragment in fragments:
    assert fragment in said, said


@pytest.mark.parametrize(
  'place, fragment',
  [
    *(
      (f'train/x/{name}/a.png', f'{name!r} in 1 of 3')
      for name in ('unlabeled', 'Unlabelled', 'no_label', 'NA', 'unsorted')
    ),
    ('train/x/U/a.png', "'U' and 'u'"),
    ('train/None/u/a.png', "folders of clients: found 'None' in 1 of 3"),
    *(
      (f'{name}/u/a.png', f'{name} is not read: call it train, test')
      for name in ('unlabelled', 'Test', 'valid', 'training', 'dev')
    ),
    ('train/unlabelled/u/a.png', "'unlabelled' in 1 of 3"),
    ('more/u/a.png', None),
  ],
)
def test_folders(tmp_path, refusal, place, fragment):
  root = tmp_path / 'pictures'
  places = [
    'train/x/u/0.png',
    'train/y/v/1.png',
    'test/u/0.png',
    'test/v/1.png',
  ]
  for name, image in zip([*places, place], PIXELS, strict=False):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(root / name)
  read = lambda: catalogue.load(
    'image_folder', data_dir=str(root), cache_dir=str(tmp_path), side=8
  )
  if fragment is None:
    assert read().notes == (f'{root}: not read are more.',)
    return
  with refusal(fragment):
    read()


@pytest.mark.parametrize(
  'dataset, content', [('table', PLAIN), ('text', 'text,label\na,u\nb,v\n')]
)
def test_files_beside(tmp_path, refusal, dataset, content):
  for name in ('values.csv', 'notes.txt', 'test.py', '.val.csv'):
    write(tmp_path, name, 'x')
  notes = load(dataset, tmp_path, content).notes
  assert [n for n in notes if 'not read' in n] == [
    f'{tmp_path}: not read are values.csv.'
  ]
  for name in ('unlabelled.csv', 'Server.csv', 'val.csv', 'train.npz'):
    write(tmp_path, name, 'x')
    with refusal(f'{name} is not read: call it train, test', 'move it away'):
      load(dataset, tmp_path, content)
    (tmp_path / name).unlink()


def texts(*cells):
  return table(cells, ('uv' * len(cells))[: len(cells)], 'text')


def test_letters_are_words_where_nothing_parts_words(tmp_path):
  source = load('text', tmp_path, texts('这个很好', '这个不好', 'ok 很'))
  assert set(source.preprocessing['words']) == {*'这个很好不', 'ok'}
  first, second, _ = source.train.examples
  assert (first[[0, 1, 3]] == second[[0, 1, 3]]).all() and first[2] != second[2]


def test_blanks_and_punctuation_of_all_kinds(tmp_path):
  cells = (
    'a\xa0b\u3000c\u200bd\x1ce\x85f',
    '\u201ca\u201d b\u2026 it\u2019s \u2014 d',
  )
  source = load('text', tmp_path, texts(*cells))
  assert set(source.preprocessing['words']) == {*'abcdef', 'its'}
  write(tmp_path, 'new.csv', texts(cells[0]))
  _, said = catalogue.decode(
    str(tmp_path / 'new.csv'), (), source.preprocessing
  )
  assert said == ['']


@pytest.mark.parametrize(
  'train, fragments',
  [
    (
      texts('아주나쁜물건입니다정말로', '아주좋은물건입니다정말로'),
      ['put blanks'],
    ),
    (texts('_'.join(['word'] * 9), 'b'), ["column 'text'", 'put blanks']),
    ('text,label\nyes, good,u\nno,v\n', ['row 2 has 3', "hold ',' in quotes"]),
    ('text,user\nyes,1\nno,2\n', ["no column 'label'"]),
    ('text,label,user\na,u,1\nb,v,2\n', ['user', 'call it client_id']),
    (texts('a', 'b').replace('v', 'TBD'), ["'TBD' in 1 of 2"]),
  ],
)
def test_texts_that_are_asked_about(tmp_path, refusal, train, fragments):
  with refusal('train.csv', *fragments):
    load('text', tmp_path, train)


def test_what_is_unusual_in_prediction(tmp_path):
  train = 'n,w,label\n1,a,u\n2,b,v\n4,a,u\n'
  kept = load('table', tmp_path, train).preprocessing
  kept = json.loads(json.dumps(kept))
  new = 'n,w\n3, a \n70,b\n2,c\n,\n'
  write(tmp_path, 'new.csv', new)
  _, said = catalogue.decode(str(tmp_path / 'new.csv'), (), kept)
  assert said == ['', 'n=70 is far from 1 to 4', 'w=c is unknown', '']
  kept = load('text', tmp_path, texts('good cat', 'bad dog')).preprocessing
  write(tmp_path, 'new.csv', 'text\nGood cow!\nall new cat\n')
  _, said = catalogue.decode(str(tmp_path / 'new.csv'), (), kept)
  assert said == ['', '2 of 3 words are unknown']
  images = np.stack([PIXELS[0] / 255, PIXELS[1] / 255 / 255, PIXELS[2] * 0.0])
  np.save(tmp_path / 'new.npy', images)
  _, said = catalogue.decode(str(tmp_path / 'new.npy'), (8, 8, 1), {})
  assert [bool(one) for one in said] == [False, True, False]
  assert 'no pixel is above' in said[1]


def test_pictures_are_turned_in_prediction(tmp_path):
  exif = Image.Exif()
  exif[0x0112] = 3  # Upside down.
  turned = Image.fromarray(np.rot90(PIXELS[0], 2))
  turned.save(tmp_path / 'a.png', exif=exif)
  found, said = catalogue.decode(
    str(tmp_path / 'a.png'), (8, 8, 1), {'kind': 'image_folder'}
  )
  np.testing.assert_array_equal(found[0, ..., 0], PIXELS[0])
  assert said == ['']


def test_a_folder_of_parquet_files(tmp_path):
  write(tmp_path, 'test.csv', PLAIN)
  (tmp_path / 'train.parquet').mkdir()
  with pytest.raises(ValueError, match='train.parquet.*a folder, write one'):
    catalogue.load('table', data_dir=str(tmp_path), cache_dir='unused')
