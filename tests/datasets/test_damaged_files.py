"""A user's damaged files are refused in a sentence, or read as if sound."""

import dataclasses
import io
import pathlib

import costs
import damage
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from datasets.partition import partitions
from datasets.records import split_manifest
from datasets.sources import catalogue
from datasets.sources.own import (
  image_folder,
  npz,
  sets,
  table,
  tables,
  text,
)

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 6, 5), np.uint8)
LABELS = np.arange(12) % 3
OWNERS = np.array(list('uuvvwwxxyyzz'))
ROWS = pd.DataFrame(
  {
    'ward': ['the first one', 'the second', 'another ward of the house'] * 8,
    'age': np.arange(24) % 7 + 0.5,
    'label': ['ill', 'well'] * 12,
    'client_id': list('uvwx') * 6,
  }
).head(23)
# No reader can tell them from sound files: a bit of a cell, and words.
CELLS = ('flip', 'a long line', 'control characters', 'a quote')
# Neither a checksum nor the form of what follows shows them.
PIXELS = ('flip', 'zeros inside', 'CRLF')


def plain(value):
  """Returns what can be compared; versions follow the bytes of files."""
  if isinstance(value, np.ndarray):
    return value.dtype, value.shape, value.tolist()
  if dataclasses.is_dataclass(value):
    fields = (field.name for field in dataclasses.fields(value))
    return [plain(getattr(value, f)) for f in fields if f != 'version']
  if isinstance(value, dict):
    return {key: plain(one) for key, one in value.items()}
  if isinstance(value, tuple | list):
    return [plain(one) for one in value]
  return value


def load(source, folder, cache_dir='unused'):
  """Loads a data set as a run does, whose defaults follow the files."""
  if source.derive is not None:
    source.derive({}, {'data_dir': str(folder)})
  return plain(
    catalogue.load(source.name, data_dir=str(folder), cache_dir=cache_dir)
  )


@pytest.mark.parametrize(
  'split', costs.rest_in('parts', ['train', 'test', 'server', 'validation'])
)
def test_b2_npz(split, tmp_path):
  for name in ('train', 'test', 'server', 'validation'):
    np.savez(tmp_path / f'{name}.npz', images=IMAGES, labels=LABELS)
  canary = tmp_path / 'canary'
  damage.try_all(
    tmp_path / f'{split}.npz',
    lambda: load(npz.SPEC, tmp_path),
    {**damage.NPZ, **damage.pickles(canary)},
    # All that is held in memory together.
    names=[f'{split}.npz'],
    # Is named as an array that is not read.
    may_differ=['a folder in it'],
  )
  assert not canary.exists()


@pytest.mark.parametrize(
  'name', costs.rest_in('parts', ['priors.csv', 'train.npz', 'test.npz'])
)
def test_npz_sets(name, tmp_path):
  numbers = np.array(list('01' * 6))
  np.savez(
    tmp_path / 'train.npz', images=IMAGES, client_id=OWNERS, set_id=numbers
  )
  np.savez_compressed(tmp_path / 'test.npz', images=IMAGES, labels=LABELS)
  rows = [f'{owner},{s},.5,.25,.25' for owner in 'uvwxyz' for s in '01']
  lines = ['client_id,set_id,a,b,c', *rows, '']
  (tmp_path / 'priors.csv').write_text('\n'.join(lines))
  canary = tmp_path / 'canary'
  damage.try_all(
    tmp_path / name,
    lambda: load(sets.NPZ, tmp_path),
    damage.CSV
    if name == 'priors.csv'
    else {**damage.NPZ, **damage.pickles(canary)},
    may_differ=['flip'] if name == 'priors.csv' else (),
    names=[name],
  )
  assert not canary.exists()


@pytest.mark.parametrize(
  'split', costs.rest_in('parts', ['train', 'test', 'server'])
)
def test_tables(split, tmp_path):
  for name in ('train', 'test', 'server'):
    frame = ROWS if name == 'train' else ROWS.drop(columns='client_id')
    frame.to_csv(tmp_path / f'{name}.csv', index=False)
  damage.try_all(
    tmp_path / f'{split}.csv',
    lambda: load(table.SPEC, tmp_path),
    damage.CSV,
    may_differ=CELLS,
    # The training file says which columns the others have.
    names=[str(tmp_path)],
  )


def test_texts(tmp_path):
  path = tmp_path / 'train.csv'
  frame = ROWS.rename(columns={'ward': 'text'})
  frame.to_csv(path, index=False)

  def read():
    table = tables.read(str(path))
    return text.texts_of(table), {n: table.texts(n) for n in table.columns}

  damage.try_all(path, read, damage.CSV, may_differ=CELLS)


def _written(arrays, names=None, metadata=None):
  stream = io.BytesIO()
  made = pa.table(arrays, names)
  if metadata is not None:
    made = made.replace_schema_metadata({b'pandas': metadata})
  parquet.write_table(made, stream)
  return stream.getvalue()


def _of_parquet():
  """Returns mutators: cells of other types, and what pandas believes."""
  sound = {name: pa.array(ROWS[name]) for name in ROWS}
  kinds = {
    'lists': pa.array([[1]] * len(ROWS)),
    'tables': pa.array([{'a': 1}] * len(ROWS)),
    'maps': pa.array(
      [[('a', 1)]] * len(ROWS), pa.map_(pa.string(), pa.int32())
    ),
    'nothing': pa.nulls(len(ROWS)),
    'bytes': pa.array([b'\xff\0'] * len(ROWS)),
    'times': pa.array([2**62] * len(ROWS), pa.timestamp('s')),
    'large numbers': pa.array([1e300] * len(ROWS)),
  }
  return {
    **{
      f'{kind} in {name}': lambda _, name=name, cells=cells: _written(
        {**sound, name: cells}
      )
      for name in sound
      for kind, cells in kinds.items()
    },
    **{
      f'frame {said[:20]}': lambda _, said=said: _written(sound, metadata=said)
      for said in (
        *(b'', b'{', b'[]', b'3', b'{}', b'\xff', b'[' * 10**5),
        *(b'{"columns": 3}', b'{"columns": [], "index_columns": [3]}'),
      )
    },
    'columns twice': lambda _: _written(
      [sound['age'], sound['age'], sound['label']], ['age', 'age', 'label']
    ),
    'no name': lambda _: _written(
      [sound['age'], sound['label']], ['', 'label']
    ),
    'no column': lambda _: _written({}),
    'no row': lambda _: _written({n: a[:0] for n, a in sound.items()}),
  }


def test_parquet(tmp_path):
  for name in ('train', 'test'):
    ROWS.to_parquet(tmp_path / f'{name}.parquet')
  damage.try_all(
    tmp_path / 'train.parquet',
    lambda: load(table.SPEC, tmp_path),
    {**damage.BYTES, **_of_parquet()},
    # Cells of other types are words, or owners.
    may_differ=['flip', *(kind for kind in _of_parquet() if ' in ' in kind)],
    names=[str(tmp_path)],
  )


def test_blank_lines_are_no_damage(tmp_path):
  path = tmp_path / 'new.csv'
  path.write_text('\n \na,b\n1,"x,\ny"\n\n  \n2,\n\n')
  found = tables.read(str(path))
  assert found.texts('a') == ['1', '2'] and found.texts('b')[0] == 'x,\ny'


def test_long_rows_do_not_reach_arrow(tmp_path, monkeypatch, refusal):
  """Its release 16 writes beyond its memory, where other tables may lie."""
  path = tmp_path / 'new.csv'
  path.write_text('a,b\n\n"1,\n""",2\n3,"4",5\n')
  monkeypatch.setattr('pyarrow.csv.read_csv', None)
  with refusal(str(path), 'row 3 has 3 cells under 2 columns (\'3,"4",5\')'):
    tables.read(str(path))


def test_rows_beyond_all_memory(tmp_path, monkeypatch, refusal):
  """A page of equal cells takes a few bytes, however many rows it has."""
  path = tmp_path / 'new.parquet'
  parquet.write_table(pa.table({'age': np.zeros(10**6)}), path)
  assert path.stat().st_size < 10**5
  memory = tables.psutil.virtual_memory()._replace(available=10**6)
  monkeypatch.setattr(tables.psutil, 'virtual_memory', lambda: memory)
  with refusal(str(path), '1,000,000 rows'):
    tables.read(str(path))


@pytest.mark.parametrize('kind', ['table', 'text'])
def test_rows_to_classify(kind, tmp_path):
  path = tmp_path / 'new.csv'
  ROWS[['ward', 'age']].rename(
    columns={'ward': 'text'} if kind == 'text' else {}
  ).to_csv(path, index=False)
  words = {'ward': ['the first one', 'the second']}
  preprocessing = {'kind': kind, 'numbers': {'age': 1.0}, 'words': words}
  preprocessing['ranges'] = {'age': [0.0, 9.0]}
  damage.try_all(
    path,
    lambda: plain(catalogue.decode(str(path), (3,), preprocessing)),
    damage.CSV,
    may_differ=CELLS,
  )


@pytest.mark.parametrize(
  'ending, mutators', [('.png', damage.PNG), ('.jpg', damage.JPEG)]
)
def test_pictures(ending, mutators, tmp_path):
  path = tmp_path / f'a{ending}'
  Image.fromarray(IMAGES[0]).save(path)

  def read():
    shape, kind = (5, 5, 1), {'kind': 'image_folder'}
    return plain(catalogue.decode(str(path), shape, kind))

  damage.try_all(path, read, mutators, may_differ=PIXELS)


@pytest.mark.parametrize(
  'source, name, mutators',
  costs.rest_in(
    'parts',
    [
      (image_folder.SPEC, 'train/a/1/0.png', damage.PNG),
      (image_folder.SPEC, 'test/1/0.jpg', damage.JPEG),
      (sets.IMAGES, 'train/a/1/0.png', damage.PNG),
      (sets.IMAGES, 'prevalence.csv', damage.CSV),
    ],
  ),
)
def test_folders_of_pictures(source, name, mutators, tmp_path):
  root = tmp_path / 'pictures'
  ending = pathlib.Path(name).suffix.replace('.csv', '.png')
  for place in ('train/a/1', 'train/a/2', 'test/1', 'test/2'):
    (root / place).mkdir(parents=True)
    for number in range(2):
      picture = Image.fromarray(IMAGES[number])
      picture.save(root / place / f'{number}{ending}')
  if source is sets.IMAGES:
    (root / 'prevalence.csv').write_text(
      'system,hospital,1,2\na,1,.25,.75\na,2,.5,.5\n'
    )
  damage.try_all(
    root / name,
    lambda: load(source, root, cache_dir=str(tmp_path / 'cache')),
    mutators,
    may_differ=PIXELS,
  )


def test_npz_to_classify(tmp_path):
  path, canary = tmp_path / 'a.npz', tmp_path / 'canary'
  np.savez(path, images=IMAGES, labels=LABELS)
  damage.try_all(
    path,
    lambda: plain(catalogue.decode(str(path), (6, 5, 1), {})),
    {**damage.NPZ, **damage.pickles(canary)},
  )
  assert not canary.exists()


@pytest.mark.parametrize(
  'ending, mutators',
  [('.npy', damage.NPY), ('.png', damage.PNG), ('.jpg', damage.JPEG)],
)
def test_images_to_classify(ending, mutators, tmp_path):
  path = tmp_path / f'a{ending}'
  if ending == '.npy':
    np.save(path, IMAGES)
  else:
    Image.fromarray(IMAGES[0]).save(path)
  damage.try_all(
    path,
    lambda: plain(catalogue.decode(str(path), (6, 5, 1), {})),
    mutators,
    may_differ=PIXELS if ending == '.jpg' else ['flip', 'zeros inside'],
  )


@pytest.mark.parametrize(
  'name', costs.rest_in('parts', ['split.npz', 'split.json'])
)
def test_splits(name, paths, digits_of):
  partition = partitions.build(
    'r', digits_of(), num_clients=5, noniid_r=0.4, server_examples=100, seed=3
  )
  split_manifest.write(partition, *paths, labels_at='server')
  path, canary = paths[0].with_name(name), paths[0].with_name('canary')

  def read():
    found, description = split_manifest.load(*paths)
    return found.digest(), description

  mutators = {**damage.NPZ, **damage.pickles(canary)}
  if name == 'split.json':
    sound = path.read_bytes()
    mutators = {**damage.TEXT, **damage.json_types(sound)}
  # Links to nowhere are absent files, an error of its own.
  damage.try_all(path, read, mutators, places=['a folder', 'a pipe'])
  assert not canary.exists()
