"""The table source: what it reads, and the files that it refuses."""

import numpy as np
import pandas as pd
import pytest
from sklearn import compose, impute, preprocessing

from datasets.sources import catalogue
from datasets.sources.own import tables

TRAIN = pd.DataFrame(
  {
    'age': [30, 40, None, 60, 50, 45],
    'ward': ['a', 'b', 'a', None, 'c', 'b'],
    'weight': [70.5, 80.0, 65.25, 90.0, 72.0, 81.0],
    'label': ['ill', 'well', None, 'ill', 'well', 'well'],
  }
)
TEST = pd.DataFrame(
  {
    'ward': ['c', 'd'],
    'weight': [70, None],
    'age': [20, 33],
    'label': ['well', 'ill'],
  }
)


@pytest.fixture
def folder(tmp_path):
  write(tmp_path, 'train', TRAIN)
  write(tmp_path, 'test', TEST)
  return tmp_path


def write(folder, split, frame):
  frame.to_csv(folder / f'{split}.csv', index=False)


def load(folder):
  return catalogue.load('table', data_dir=str(folder), cache_dir='unused')


def refused(folder, *fragments):
  """Asserts one ValueError of one line that holds all fragments."""
  with pytest.raises(ValueError) as caught:
    load(folder)
  message = str(caught.value)
  for fragment in fragments:
    assert fragment in message, message
  assert '\n' not in message


def test_features_are_those_of_scikit_learn(folder):
  source = load(folder)
  encoder = compose.make_column_transformer(
    (impute.SimpleImputer(), ['age', 'weight']),
    (preprocessing.OneHotEncoder(handle_unknown='ignore'), ['ward']),
    sparse_threshold=0,
  )
  # An empty cell is no word of its own here.
  train = encoder.fit_transform(TRAIN.drop(columns='label'))[:, :5]
  test = encoder.transform(TEST.drop(columns='label'))[:, :5]
  scaler = preprocessing.StandardScaler().fit(train[:, :2])
  for found, expected in (
    (source.train.examples, train),
    (source.test.examples, test),
    (source.mean, [*scaler.mean_, 0, 0, 0]),
    (source.stddev, [*scaler.scale_, 1, 1, 1]),
  ):
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_labels_classes_and_form(folder):
  source = load(folder)
  assert source.class_names == ('ill', 'well') and source.num_classes == 2
  assert source.train.labels.tolist() == [0, 1, -1, 0, 1, 1]
  assert source.test.labels.tolist() == [1, 0]
  assert source.form == 'vectors' and source.columns == (0, 1, 2, 2, 2)
  assert source.train.client_ids is None and source.validation is None
  assert '6 train and 2 test examples; 1 of the training' in source.title


def test_parquet_and_validation(folder):
  csv = load(folder)
  (folder / 'train.csv').unlink()
  TRAIN.to_parquet(folder / 'train.parquet')
  write(folder, 'validation', TEST[:1])
  source = load(folder)
  np.testing.assert_array_equal(source.train.examples, csv.train.examples)
  assert source.validation.labels.tolist() == [1]
  assert source.version != csv.version


@pytest.mark.parametrize(
  'labels, classes, numbers',
  [
    ([3, 10, 2, 3, 10, 2], ('2', '3', '10'), [1, 2, 0, 1, 2, 0]),
    ([1.0, 0.0, None, 1.0, 0.0, 0.0], ('0', '1'), [1, 0, -1, 1, 0, 0]),
    (['007', '7', '7', '7', '7', '7'], ('007', '7'), [0, 1, 1, 1, 1, 1]),
    (['ill', 'well', ' '] * 2, ('ill', 'well'), [0, 1, -1] * 2),
    (['--5', '-5', '007'] * 2, ('--5', '-5', '007'), [0, 1, 2] * 2),
  ],
)
def test_classes_in_order(folder, labels, classes, numbers):
  write(folder, 'train', TRAIN.assign(label=labels))
  write(folder, 'test', TEST.assign(label=labels[:2]))
  source = load(folder)
  assert source.class_names == classes
  assert source.train.labels.tolist() == numbers


def test_owners(folder):
  assert tables.count_owners(str(folder)) == 0
  ids = ['007', '7', 'x', 'x', '7', '007']
  write(folder, 'train', TRAIN.assign(client_id=ids))
  assert tables.count_owners(str(folder)) == 3
  assert load(folder).train.client_ids.tolist() == ids
  assert tables.count_owners('nowhere') == 0


def test_a_constant_column_is_zero(folder):
  write(folder, 'train', TRAIN.assign(age=4))
  source = load(folder)
  assert source.mean[0] == 4 and source.stddev[0] == 1


@pytest.mark.parametrize(
  'split, change, fragments',
  [
    ('train', {'label': None}, ["no column 'label'", 'age']),
    ('test', {'label': ['well', None]}, ['label', '1 of 2 without']),
    ('test', {'label': ['well', 'dead']}, ["'dead'", 'unseen']),
    ('train', {'label': [None] * 6}, ['no label at all']),
    ('train', {'label': ['ill'] * 6}, ["one single class, 'ill'"]),
    ('train', {'age': [None] * 6}, ["'age'", 'no value at all']),
    ('train', {'age': [1, 2, 3, 4, 5, np.inf]}, ["'age'", "'inf'"]),
    ('test', {'age': [20, np.inf]}, ["'age'", "'inf'", 'has numbers there']),
    # Numbers that float32 does not hold.
    ('train', {'age': [1e39, 1, 2, 3, 4, 5]}, ["'age'", 'infinite']),
    ('train', {'age': 1.7e12 + 500 * np.arange(6)}, ["'age'", 'float32 does']),
    ('test', {'age': None}, ["'age'", 'missing']),
    ('test', {'height': [1, 2]}, ["'height'", 'unknown to the training']),
    ('test', {'age': [20, 'old']}, ["'age'", 'has numbers there']),
    ('test', {'client_id': [1, 2]}, ['client_id', 'none in train']),
    ('train', {'client_id': [1, 2, None, 1, 1, 1]}, ['1 of 6', 'who owns']),
  ],
)
def test_tables_that_do_not_fit_are_refused(folder, split, change, fragments):
  frame = {'train': TRAIN, 'test': TEST}[split]
  absent = [name for name, values in change.items() if values is None]
  write(folder, split, frame.assign(**change).drop(columns=absent))
  refused(folder, str(folder / f'{split}.csv'), *fragments)


def test_too_many_words_are_names(folder):
  rows = [TRAIN.assign(ward=f'x{i}') for i in range(101)]
  write(folder, 'train', pd.concat(rows))
  refused(folder, "'ward'", '101 different words', 'leave the column out')


def test_files_that_are_no_tables_are_refused(folder):
  for content, fault in (
    (b'', 'cannot be read'),
    (b'\xff\xfe\xfd', 'is no UTF-8'),
    (b'label,age\nill,\xe9\n', 'is no UTF-8'),
    (b'label,age\n', 'has no row'),
    (b',label\n1,2\n', 'without a name'),
  ):
    (folder / 'test.csv').write_bytes(content)
    refused(folder, 'test.csv', fault)
  (folder / 'test.csv').unlink()
  refused(folder, 'test.csv: no such file')
  (folder / 'test.parquet').write_bytes(b'PAR1')
  refused(folder, 'test.parquet', 'cannot be read')
  (folder / 'test.csv').write_text('label\n1\n')
  refused(folder, 'remove one')


def test_words_that_look_like_numbers_stay_words(folder):
  write(folder, 'train', TRAIN.assign(ward=['1', 'a', 'b', '1', 'a', '2']))
  write(folder, 'test', TEST.assign(ward=['1', None]))
  test = load(folder).test.examples
  np.testing.assert_array_equal(test[:, 2:], [[1, 0, 0, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize('column', [True, False])
def test_the_servers_own_rows(folder, column):
  server = TRAIN.iloc[[1, 3]].assign(label=['well', 'ill'])
  unlabelled = TRAIN.assign(label=None, client_id=list('aabbcc'))
  absent = [] if column else ['label']
  write(folder, 'train', unlabelled.drop(columns=absent))
  refused(folder, "column 'label'", 'no label at all' if column else 'has no')
  write(folder, 'server', server)
  source = load(folder)
  assert len(source.server.labels) == 2 and source.class_names == (
    'ill',
    'well',
  )
  assert '6 train, 2 server and 2 test examples' in source.title
  clients, own = source.train, source.server
  assert (clients.labels == -1).all() and set(clients.client_ids) == set('abc')
  assert own.labels.tolist() == [1, 0]
  np.testing.assert_array_equal(own.examples, clients.examples[[1, 3]])
  # The clients' rows alone standardise.
  assert source.mean[1] == pytest.approx(TRAIN['weight'].mean())
  given = {'data_dir': str(folder)}
  assert catalogue.SOURCES['table'].derive({}, given)['server_examples'] == 2
  more = TRAIN.iloc[[1, 3, 5]].assign(label=['well', 'ill', None])
  write(folder, 'server', more)
  refused(folder, 'server.csv', '1 of 3 without')


def test_truth_values_are_the_same_words_in_all_files(folder):
  """pandas reads true and false as Python's, unless a cell is empty."""
  for split, values in (('train', ['true', 'false', None] * 2), ('test', None)):
    frame = TRAIN if split == 'train' else TEST
    write(folder, split, frame.assign(smokes=values or ['true', 'false']))
  source = load(folder)
  assert source.preprocessing['words']['smokes'] == ['false', 'true']
  np.testing.assert_array_equal(source.test.examples[:, 2:4], [[0, 1], [1, 0]])


def test_a_mark_among_words_is_said(folder):
  frame = TRAIN.assign(ward=['NA', 'a', 'b', 'a', '?', None])
  write(folder, 'train', frame)
  write(folder, 'test', TEST.assign(ward='a'))
  (fact,) = [f for f in load(folder).facts if "'ward'" in f]
  assert 'words (?, NA, a and 1 more), where ?, NA counts as a word' in fact


def test_a_column_keeps_its_type_over_a_long_file(folder):
  codes = [f'{i % 5:02d}' for i in range(150_000)] + ['X']
  frame = pd.DataFrame({'code': codes, 'label': ['a', 'b'] * 75_000 + ['a']})
  for split in ('train', 'test'):
    write(folder, split, frame)
  words = load(folder).preprocessing['words']['code']
  assert words == ['00', '01', '02', '03', '04', 'X']
