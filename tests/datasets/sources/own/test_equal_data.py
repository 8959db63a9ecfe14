"""Equal data written in several ways are read alike, and damage is told.

What no reader can tell from the data is not asked for: a number in the place of
another, a word of a column in that of another, an owner's or a class's name in
that of another, an empty cell in that of a value, and a whole row that is gone.
"""

import csv
import decimal
import io
import os
import pathlib
import tempfile
import unicodedata

import costs
import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from datasets.records import source_report
from datasets.sources import catalogue

# Few examples, and what each tier adds.
DEPTHS = costs.rest_in('parts', [4, 200])
WORDS = st.sampled_from(['red', 'b, c', 'a "b"', 'Käse', 'x;y|z', '007', '赤'])
NUMBERS = st.one_of(
  st.integers(-99, 99).map(float),
  st.floats(-99, 99).map(lambda x: round(x, 2) + 0.0),
)
MISSING = ['', 'NA', 'nan', 'null', 'None', '?', '-', 'N/A', ' ', '#N/A']
# Of the text of a file: the mark at its beginning is part of the encoding.
ENCODINGS = ['utf-8', 'utf-8-sig', 'utf-16']


def given(depth, **strategies):
  """Runs a test at once, with as many drawn examples, always the same."""

  def run(test):
    hypothesis.settings(
      max_examples=depth,
      deadline=None,
      derandomize=True,
      database=None,
      suppress_health_check=list(hypothesis.HealthCheck),
    )(hypothesis.given(**strategies)(test))()

  return run


def load(dataset, folder, **options):
  return catalogue.load(
    dataset,
    data_dir=str(folder),
    cache_dir=os.path.join(folder, 'cache'),
    **options,
  )


def assert_equal(found, wanted, order=slice(None)):
  """Asserts that two sources hold the same; `order` is that of their rows."""
  for split in ('train', 'test'):
    ours, theirs = getattr(found, split), getattr(wanted, split)
    by = order if split == 'train' else slice(None)
    np.testing.assert_array_equal(
      ours.examples, theirs.examples[by], strict=True
    )
    np.testing.assert_array_equal(ours.labels, theirs.labels[by])
    assert (ours.client_ids is None) == (theirs.client_ids is None)
    if ours.client_ids is not None:
      assert ours.client_ids.tolist() == theirs.client_ids[by].tolist()
  for name in ('class_names', 'mean', 'stddev', 'columns', 'preprocessing'):
    assert getattr(found, name) == getattr(wanted, name), name
  assert found.background == wanted.background


# Tables.

TEST = {'a': [1.5, None], 'b': [2.0, 3.0], 'w': ['red', None], 'yes': [0, 1]}
TEST = {**TEST, 'label': ['ill', 'well']}


@st.composite
def tables(draw):
  """Draws the columns of a training table; None is an empty cell."""
  n = draw(st.integers(4, 9))
  column = lambda cells: draw(st.lists(cells, min_size=n, max_size=n))
  names = draw(st.sampled_from([('ill', 'well'), ('Ärger', 'Zank')]))
  classes = draw(st.permutations([*names, *([None, *names] * 3)[: n - 2]]))
  table = {
    'a': [0.25, *column(st.none() | NUMBERS)[1:]],
    'b': [float(x) for x in column(st.integers(-9, 2**20))],
    'w': ['red', *column(st.none() | WORDS)[1:]],
    'yes': column(st.sampled_from([0, 1])),
    'label': classes,
  }
  if draw(st.booleans()):
    table['client_id'] = column(st.sampled_from(['7', 'site ü', 'x']))
  return table, {**TEST, 'label': list(names)}


def number(value, draw):
  """Writes a number in one of the ways that mean it."""
  if value is None:
    return draw(st.sampled_from(MISSING))
  text = repr(value).removesuffix('.0')
  if draw(st.booleans()):
    text = text.replace('-', draw(st.sampled_from('-\u2212\u2013')))
  return draw(st.sampled_from([text, f' {text}', f'{text} ']))


def written(word, form, draw):
  """Writes a word in one of the ways that mean it."""
  blank = draw(st.sampled_from(['', ' ']))
  return blank + unicodedata.normalize(form, word or '') + blank


def write_csv(path, table, draw):
  separator = draw(st.sampled_from(',;\t|'))
  has_commas = separator != ',' and draw(st.booleans())
  columns = {}
  for name, cells in table.items():
    if name in 'ab':
      cells = [number(cell, draw) for cell in cells]
      if has_commas:
        cells = [c.replace('.', ',') for c in cells]
    elif name == 'yes':
      style = draw(st.sampled_from(['true false', 'True False', 'TRUE FALSE']))
      cells = [style.split()[1 - cell] for cell in cells]
    else:
      form = draw(st.sampled_from(['NFC', 'NFD']))
      cells = [written(cell, form, draw) for cell in cells]
    columns[name] = cells
  stream, end = io.StringIO(), draw(st.sampled_from(['\n', '\r\n']))
  quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
  writer = csv.writer(
    stream, delimiter=separator, lineterminator=end, quoting=quoting
  )
  writer.writerow(columns)
  for row in zip(*columns.values(), strict=True):
    writer.writerow(row)
    stream.write(end * draw(st.integers(0, 1)))
  path.with_suffix('.csv').write_bytes(
    stream.getvalue().encode(draw(st.sampled_from(ENCODINGS)))
  )


def write_parquet(path, table, draw):
  columns = {}
  for name, cells in table.items():
    if name == 'yes':
      columns[name] = pa.array([bool(cell) for cell in cells])
    elif name == 'a':
      exact = [None if c is None else decimal.Decimal(repr(c)) for c in cells]
      columns[name] = draw(
        st.sampled_from(
          [pa.array(cells, pa.float64()), pa.array(exact, pa.decimal128(9, 3))]
        )
      )
    elif name == 'b':
      whole = pa.array([int(cell) for cell in cells])
      kinds = [pa.int32(), pa.int64(), pa.float32(), pa.float64()]
      columns[name] = whole.cast(draw(st.sampled_from(kinds)))
    else:
      kind = draw(st.sampled_from([pa.string(), pa.large_string(), None]))
      columns[name] = (
        pa.array(cells, pa.string()).dictionary_encode()
        if kind is None
        else pa.array(cells, kind)
      )
  if draw(st.booleans()):  # What pandas leaves of rows in another order.
    index = range(len(cells))[::-1]
    columns['__index_level_0__'] = pa.array(index)
  parquet.write_table(pa.table(columns), path.with_suffix('.parquet'))


@pytest.mark.parametrize('depth', DEPTHS)
def test_tables(depth):
  @given(depth, drawn=tables(), data=st.data())
  def _(drawn, data):
    train, test = drawn
    order = data.draw(st.permutations(range(len(train['a']))))
    with tempfile.TemporaryDirectory() as folder:
      plain, other = (
        pathlib.Path(folder, 'plain'),
        pathlib.Path(folder, 'other'),
      )
      for place in (plain, other):
        place.mkdir()
      for split, table in (('train', train), ('test', test)):
        columns = {
          name: pa.array([bool(c) for c in cells] if name == 'yes' else cells)
          for name, cells in table.items()
        }
        parquet.write_table(pa.table(columns), plain / f'{split}.parquet')
        write = data.draw(st.sampled_from([write_csv, write_parquet]))
        names = data.draw(st.permutations(list(table)))
        by = order if split == 'train' else range(2)
        moved = {name: [table[name][i] for i in by] for name in names}
        write(other / split, moved, data.draw)
      assert_equal(load('table', other), load('table', plain), order)

  del _


# npz files.

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
LABELS = [0, 1, -1, 2, 1, 0]


@pytest.mark.parametrize('depth', DEPTHS)
def test_npz_files(depth, tmp_path):
  """Any memory order, type, key order and compression is the same."""

  def write(folder, arrays, save=np.savez):
    folder.mkdir(exist_ok=True)
    for split in ('train', 'test'):
      by = slice(None) if split == 'train' else [0, 1, 3]
      save(folder / split, **{key: own[by] for key, own in arrays.items()})

  arrays = {
    'images': IMAGES,
    'labels': np.array(LABELS),
    'client_ids': np.array(list('121212')),
  }
  write(tmp_path / 'plain', arrays)
  wanted = load('npz', tmp_path / 'plain')
  divided = [(IMAGES / 255).astype(kind) for kind in ('<f4', '>f4', '<f8')]
  kinds = {
    'images': [IMAGES, IMAGES[..., np.newaxis], *divided],
    'labels': [
      *(np.array(LABELS, kind) for kind in ('i1', '>i2', '<i4', '>i8')),
      np.array(['' if n < 0 else str(n) for n in LABELS]),
      np.array(['' if n < 0 else f' {n}.0' for n in LABELS], '>U9'),
    ],
    'client_ids': [
      np.array([1, 2] * 3, kind) for kind in ('u1', '>u8', 'i2', 'U2', '>U5')
    ],
  }
  orders = [np.ascontiguousarray, np.asfortranarray, lambda a: a[::-1][::-1]]

  @given(depth, data=st.data())
  def _(data):
    draw = lambda values: data.draw(st.sampled_from(values))
    keys = data.draw(st.permutations(list(kinds)))
    others = {key: draw(orders)(draw(kinds[key])) for key in keys}
    write(tmp_path / 'other', others, draw([np.savez, np.savez_compressed]))
    assert_equal(load('npz', tmp_path / 'other'), wanted)

  del _


@pytest.mark.parametrize('kind', ['u1', '>u2', 'u4', 'u8', 'i1', 'i8', 'U1'])
def test_npz_labels_of_any_type(kind, tmp_path):
  labels = np.array([0, 1, 2] * 2).astype(kind)
  for split in ('train', 'test'):
    np.savez(tmp_path / split, images=IMAGES, labels=labels)
  source = load('npz', tmp_path)
  assert source.class_names == ('0', '1', '2')
  assert source.train.labels.tolist() == [0, 1, 2] * 2


# Folders.

PLACES = ['train/x/u/0', 'train/x/v/1', 'train/y/_unlabelled/2', 'train/y/v/0']
PLACES += ['test/u/a', 'test/v/b']


@pytest.mark.parametrize('depth', DEPTHS)
def test_folders(depth, tmp_path):
  """Any order of files, packing and ending is the same."""
  grey = {
    place: np.repeat(image, 2, axis=0)[:, :4]
    for place, image in zip(PLACES, IMAGES, strict=True)
  }

  def write(folder, place, ending='.png', mode='L', **options):
    path = folder / f'{place}{ending}'
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(grey[place]).convert(mode)
    picture.save(path, 'PNG', **options)

  for place in PLACES:
    write(tmp_path / 'plain', place)
  wanted = load('image_folder', tmp_path / 'plain', side=4)

  @given(depth, data=st.data())
  def _(data):
    draw = lambda *values: data.draw(st.sampled_from(values))
    with tempfile.TemporaryDirectory(dir=tmp_path) as other:
      folder = pathlib.Path(other)
      for place in data.draw(st.permutations(PLACES)):
        write(
          folder,
          place,
          ending=draw('.png', '.PNG', '.Png', '.jpg'),
          mode=draw('L', 'LA'),
          optimize=draw(True, False),
          compress_level=draw(0, 1, 9),
        )
      for place in draw([], ['.', 'train', 'train/x', 'test/u']):
        (folder / place / draw('.DS_Store', 'Thumbs.db', '.git')).touch()
      assert_equal(load('image_folder', folder, side=4), wanted)

  del _


# Damage of tables.

HEADER = ['age', 'ward', 'label', 'client_id']
ROWS = [[f'{20 + i}.5', 'ab'[i % 2], 'uv'[i // 2 % 2], 'xyz'[i % 3]] for i in
        range(12)]  # fmt: skip
GARBAGE = st.text(
  st.characters(exclude_categories=['Cs'], exclude_characters='\0'), max_size=6
)


def read(folder, rows, header=HEADER):
  """Returns the source and all that is said of it, or the refusal."""
  lines = io.StringIO()
  csv.writer(lines).writerows([header, *rows])
  pathlib.Path(folder, 'train.csv').write_text(lines.getvalue(), newline='')
  try:
    source = load('table', folder)
  except ValueError as error:
    assert '\n' not in str(error) and 'csv' in str(error), error
    return None, [str(error)]
  return source, [*source.notes, *source_report.oddities(source)]


@pytest.fixture
def sound(tmp_path):
  lines = io.StringIO()
  csv.writer(lines).writerows([HEADER[:3], *(row[:3] for row in ROWS[:4])])
  (tmp_path / 'test.csv').write_text(lines.getvalue(), newline='')
  return tmp_path, *read(tmp_path, ROWS)


@pytest.mark.parametrize('depth', DEPTHS)
def test_damaged_tables(depth, sound):
  folder, source, said = sound

  @given(depth, data=st.data())
  def _(data):
    rows = [list(row) for row in ROWS]
    row, column = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 3))
    kind = data.draw(st.sampled_from(['cell', 'short', 'name', 'marks']))
    header = HEADER
    if kind == 'cell':
      rows[row][column] = data.draw(GARBAGE)
    elif kind == 'short':
      del rows[row][column]
    elif kind == 'name':
      header = [*HEADER[:column], data.draw(GARBAGE), *HEADER[column + 1 :]]
    else:
      mark = data.draw(st.sampled_from(['NA', '?', 'None', '-1', 'unlabeled']))
      for other in rows[row:]:
        other[2] = mark
    found, told = read(folder, rows, header)
    if found is None or set(told) - set(said):
      return
    try:
      assert_equal(found, source)
    except AssertionError:
      # What is left is a value that the column may have, or none.
      written = rows[row][column].strip()
      known = {
        0: not written or written.lower() in MISSING or is_number(written),
        1: True,
        2: written in ('', 'u', 'v'),
        3: bool(written),
      }
      assert kind == 'cell' and known[column], (kind, rows[row], header)

  del _


def is_number(text):
  try:
    return bool(np.isfinite(float(text)))
  except ValueError:
    return False
