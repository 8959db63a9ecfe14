"""Federated EMNIST: small files in TFF's format, hostile ones, the real one."""

import lzma
import os
import pathlib
import shutil
import sqlite3
import time
import urllib.error

import numpy as np
import pytest

from datasets.files import downloads
from datasets.sources import catalogue, emnist_writers

HOSTILE_IDS = [
  "o'brien",
  '"; DROP TABLE examples; --',
  '../../up',
  'a|b',
  'line\nbreak',
  'nul\0inside',
  '\u00e9',
  'e\u0301',
  '\U0001f58a',
  '',
  'x' * 10_000,
]


def proto(label, pixels):
  import tensorflow as tf

  features = {
    'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    'pixels': tf.train.Feature(
      float_list=tf.train.FloatList(value=np.ravel(pixels))
    ),
  }
  example = tf.train.Example(features=tf.train.Features(feature=features))
  return example.SerializeToString()


def write_database(path, ids, seed=0, contents=(emnist_writers.DIGITS,)):
  """Writes a file in TFF's schema; returns `{split: {id: (pixels, labels)}}`.

  Rows of different clients and splits alternate, as nothing orders them.
  """
  rng = np.random.default_rng(seed)
  classes = {s: part.num_classes for part in contents for s in part.splits}
  written = {split: {} for split in classes}
  rows = []
  for split in written:
    for client in ids:
      count = rng.integers(1, 4)
      pixels = rng.random([count, 28, 28], np.float32)
      labels = rng.integers(0, classes[split], count)
      written[split][client] = (pixels, labels)
      rows += [
        (place, split, client, proto(label, image))
        for place, (label, image) in enumerate(zip(labels, pixels, strict=True))
      ]
  rows = sorted(rows, key=lambda row: row[0])
  with sqlite3.connect(path) as connection:
    connection.execute(
      'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT '
      'NULL, serialized_example_proto BLOB NOT NULL)'
    )
    connection.execute(
      'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT '
      'NOT NULL, num_examples INTEGER NOT NULL)'
    )
    connection.executemany(
      'INSERT INTO examples VALUES (?, ?, ?)', [row[1:] for row in rows]
    )
    connection.executemany(
      'INSERT INTO client_metadata VALUES (?, ?, ?)',
      [
        (client, split, len(labels))
        for split, clients in written.items()
        for client, (_, labels) in clients.items()
      ],
    )
  connection.close()
  return written


@pytest.fixture
def folders(tmp_path):
  """A data directory with an empty `tff/`, and a cache directory to come."""
  (tmp_path / 'data' / 'tff').mkdir(parents=True)
  return tmp_path / 'data', tmp_path / 'cache'


def database_in(data_dir):
  return data_dir / 'tff' / 'emnist_all.sqlite'


def archive_in(data_dir):
  return data_dir / 'tff' / 'emnist_all.sqlite.lzma'


def pack(database, archive):
  data = lzma.compress(database.read_bytes(), format=lzma.FORMAT_ALONE)
  archive.write_bytes(data)


def load(data_dir, cache_dir, **options):
  data_dir = None if data_dir is None else str(data_dir)
  return catalogue.load(
    'emnist', data_dir=data_dir, cache_dir=str(cache_dir), **options
  )


def assert_holds(source, written):
  splits = (source.train, source.test)
  for split, clients in zip(splits, written.values(), strict=True):
    expected = sorted(clients.items())
    pixels = np.concatenate([images for _, (images, _) in expected])
    labels = np.concatenate([labels for _, (_, labels) in expected])
    owners = [client for client, (_, own) in expected for _ in own]
    np.testing.assert_array_equal(
      split.images[..., 0], np.round(pixels * 255).astype(np.uint8)
    )
    np.testing.assert_array_equal(split.labels, labels)
    assert split.client_ids.tolist() == owners
    assert split.images.dtype == np.uint8 and split.images.shape[3] == 1
    assert split.labels.dtype == np.int32


def files_under(folder):
  return sorted(path for path in folder.rglob('*') if path.is_file())


def test_reads_every_client_with_any_id(folders):
  data_dir, cache_dir = folders
  written = write_database(database_in(data_dir), HOSTILE_IDS)
  before = files_under(data_dir)
  source = load(data_dir, cache_dir)
  assert_holds(source, written)
  assert source.background == 255 and not source.mirrorable
  assert source.num_classes == 10
  assert f'{len(HOSTILE_IDS)} writers' in source.title
  assert 'not the public 3,383 writers' in source.title
  assert files_under(data_dir) == before
  assert [path.name for path in files_under(cache_dir)] == ['digits-1.npz']
  # Constants of MNIST's ink on white paper.
  assert source.mean == (pytest.approx(0.8693),)
  assert source.stddev == (0.3081,)


def test_second_load_reads_the_cache(folders, monkeypatch):
  data_dir, cache_dir = folders
  written = write_database(database_in(data_dir), HOSTILE_IDS)
  first = load(data_dir, cache_dir)
  monkeypatch.setattr(sqlite3, 'connect', None)
  second = load(data_dir, cache_dir)
  assert_holds(second, written)
  assert second.version == first.version


def test_changed_file_is_read_anew(folders):
  data_dir, cache_dir = folders
  database = database_in(data_dir)
  write_database(database, ['a', 'b'])
  first = load(data_dir, cache_dir)
  database.unlink()
  written = write_database(database, ['a', 'b'], seed=1)
  second = load(data_dir, cache_dir)
  assert_holds(second, written)
  assert second.version != first.version


def test_version_does_not_depend_on_the_place(folders, tmp_path):
  data_dir, cache_dir = folders
  write_database(database_in(data_dir), ['a', 'b'])
  first = load(data_dir, cache_dir)
  pack(database_in(data_dir), archive_in(data_dir))
  database_in(data_dir).unlink()
  assert load(data_dir, tmp_path / 'other').version == first.version


@pytest.mark.parametrize(
  'damage',
  [
    lambda data: b'',
    lambda data: data[: len(data) // 2],
    lambda data: data[:2_000] + b'\xff' + data[2_001:],
    lambda data: b'garbage',
  ],
)
def test_damaged_cache_is_decoded_anew(folders, damage):
  data_dir, cache_dir = folders
  written = write_database(database_in(data_dir), ['a', 'b'])
  load(data_dir, cache_dir)
  (cached,) = files_under(cache_dir)
  sound = cached.read_bytes()
  cached.write_bytes(damage(sound))
  assert cached.read_bytes() != sound
  assert_holds(load(data_dir, cache_dir), written)
  assert_holds(load(data_dir, cache_dir), written)


def test_archive_is_unpacked_once(folders, tmp_path):
  data_dir, cache_dir = folders
  written = write_database(tmp_path / 'plain', ['a', 'b'])
  pack(tmp_path / 'plain', archive_in(data_dir))
  assert_holds(load(data_dir, cache_dir), written)
  decoded, unpacked = files_under(cache_dir)
  assert unpacked.name == 'emnist_all.sqlite'
  assert unpacked.read_bytes() == (tmp_path / 'plain').read_bytes()
  made = unpacked.stat().st_mtime_ns
  decoded.unlink()
  os.utime(archive_in(data_dir))
  assert_holds(load(data_dir, cache_dir), written)
  assert unpacked.stat().st_mtime_ns == made
  assert [path.name for path in files_under(data_dir)] == [
    'emnist_all.sqlite.lzma'
  ]


def test_other_archive_is_unpacked_beside(folders, tmp_path):
  data_dir, cache_dir = folders
  for seed in (0, 1):
    plain = tmp_path / f'plain{seed}'
    written = write_database(plain, ['a', 'b'], seed=seed)
    pack(plain, archive_in(data_dir))
    assert_holds(load(data_dir, cache_dir), written)
  assert len(files_under(cache_dir)) == 4


def test_plain_file_comes_before_the_archive(folders):
  data_dir, cache_dir = folders
  written = write_database(database_in(data_dir), ['a'])
  archive_in(data_dir).write_bytes(b'never looked at')
  assert_holds(load(data_dir, cache_dir), written)


def test_absent_files_name_both_paths_and_create_nothing(folders):
  data_dir, cache_dir = folders
  with pytest.raises(ValueError, match='holds neither') as caught:
    load(data_dir, cache_dir)
  assert f'{database_in(data_dir)} nor {archive_in(data_dir)}' in str(
    caught.value
  )
  assert not files_under(data_dir) and not cache_dir.exists()


def run_sql(path, *statements):
  with sqlite3.connect(path) as connection:
    for statement in statements:
      connection.execute(*statement)
  connection.close()


def change_bytes(change):
  return lambda path: path.write_bytes(change(path.read_bytes()))


def change_rows(*statement):
  return lambda path: run_sql(path, statement)


def change_example(blob):
  return lambda path: run_sql(
    path,
    (
      'UPDATE examples SET serialized_example_proto=? WHERE rowid=1',
      (blob(),),
    ),
  )


def pixels_with(value, shape=(28, 28)):
  pixels = np.ones(shape, np.float32)
  pixels[3, 3] = value
  return pixels


UNUSABLE = [
  change_bytes(lambda data: b''),
  change_bytes(lambda data: b'SQLite format 3\0'),
  change_bytes(lambda data: b'garbage' * 1_000),
  change_bytes(lambda data: data[:100]),
  change_bytes(lambda data: data[: len(data) // 2]),
  change_bytes(lambda data: data[:-1]),
  change_bytes(lambda data: data[:-4_096]),
  change_bytes(lambda data: data[:4_096] + bytes(len(data) - 4_096)),
  change_bytes(lambda data: data[:100] + b'\xff' * (len(data) - 100)),
  change_rows('DROP TABLE examples'),
  change_rows('DROP TABLE client_metadata'),
  change_rows('ALTER TABLE examples RENAME COLUMN client_id TO owner'),
  change_rows('ALTER TABLE client_metadata RENAME COLUMN num_examples TO n'),
  change_rows('DELETE FROM examples'),
  change_rows('DELETE FROM client_metadata'),
  change_rows("DELETE FROM examples WHERE split_name='digits_only_test'"),
  change_rows("UPDATE examples SET split_name='all_train'"),
  change_rows("DELETE FROM client_metadata WHERE client_id='a'"),
  change_rows('DELETE FROM examples WHERE rowid=2'),
  change_rows("UPDATE client_metadata SET num_examples='many'"),
  change_rows('UPDATE client_metadata SET num_examples=0'),
  change_rows("UPDATE client_metadata SET client_id=X'6162'"),
  change_rows("UPDATE examples SET client_id=X'6162' WHERE rowid=1"),
  change_rows("UPDATE examples SET client_id=CAST(X'ff' AS TEXT)"),
  change_rows('UPDATE examples SET serialized_example_proto=5 WHERE rowid=1'),
  change_example(lambda: b''),
  change_example(lambda: b'garbage'),
  change_example(lambda: proto(10, pixels_with(0))),
  change_example(lambda: proto(-1, pixels_with(0))),
  change_example(lambda: proto(1, pixels_with(np.nan))),
  change_example(lambda: proto(1, pixels_with(1.5))),
  change_example(lambda: proto(1, pixels_with(-0.1))),
  change_example(lambda: proto(1, pixels_with(0, (28, 27)))),
]


@pytest.mark.parametrize('change', UNUSABLE)
def test_unusable_database_is_one_sentence(folders, change):
  data_dir, cache_dir = folders
  path = database_in(data_dir)
  write_database(path, ['a', 'b'])
  change(path)
  before = path.read_bytes()
  with pytest.raises(ValueError, match='delete or replace it') as caught:
    load(data_dir, cache_dir)
  assert str(path) in str(caught.value)
  assert '\n' not in str(caught.value)
  assert path.read_bytes() == before
  assert not cache_dir.exists() and files_under(data_dir) == [path]


@pytest.mark.parametrize(
  'damage',
  [
    lambda data: b'',
    lambda data: b'garbage' * 100,
    lambda data: data[:-10],
    lambda data: data[: len(data) // 2],
    lambda data: data[:1_000] + bytes(1_000) + data[2_000:],
  ],
)
def test_damaged_archive_leaves_nothing(folders, tmp_path, damage):
  data_dir, cache_dir = folders
  write_database(tmp_path / 'plain', ['a', 'b'])
  pack(tmp_path / 'plain', archive_in(data_dir))
  archive = archive_in(data_dir)
  archive.write_bytes(damage(archive.read_bytes()))
  with pytest.raises(ValueError, match='replace it') as caught:
    load(data_dir, cache_dir)
  assert str(archive) in str(caught.value)
  assert not files_under(cache_dir)


def test_interrupted_unpacking_leaves_nothing(folders, tmp_path, monkeypatch):
  data_dir, cache_dir = folders
  written = write_database(tmp_path / 'plain', ['a', 'b'])
  pack(tmp_path / 'plain', archive_in(data_dir))

  def interrupt(descriptor):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', interrupt)
    with pytest.raises(KeyboardInterrupt):
      load(data_dir, cache_dir)
  assert not files_under(cache_dir)
  assert_holds(load(data_dir, cache_dir), written)


@pytest.fixture
def home(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path / 'home'))
  return tmp_path / 'home'


def patch_download(monkeypatch, download):
  """Replaces TFF's loader, which needs a network, by `download(path)`."""
  import tensorflow_federated as tff

  def load_data(only_digits, cache_dir):
    assert only_digits
    download(pathlib.Path(cache_dir, 'emnist_all.sqlite'))

  monkeypatch.setattr(tff.simulation.datasets.emnist, 'load_data', load_data)
  monkeypatch.setattr(downloads, 'check_reachable', lambda *unused: None)


def test_tffs_own_cache_is_used(home, tmp_path):
  (home / '.tff').mkdir(parents=True)
  written = write_database(home / '.tff' / 'emnist_all.sqlite', ['a', 'b'])
  assert_holds(load(None, tmp_path / 'cache'), written)


def test_download_goes_to_tffs_cache(home, tmp_path, monkeypatch):
  patch_download(monkeypatch, lambda path: write_database(path, ['a', 'b']))
  first = load(None, tmp_path / 'cache')
  assert files_under(home) == [home / '.tff' / 'emnist_all.sqlite']
  patch_download(monkeypatch, None)
  assert load(None, tmp_path / 'other').version == first.version


def cut_download(path):
  write_database(path, ['a', 'b'])
  os.truncate(path, path.stat().st_size // 2)


def no_network(path):
  path.write_bytes(b'the first bytes')
  raise urllib.error.URLError('no route to host')


@pytest.mark.parametrize(
  'download, found',
  [(cut_download, 'cut short'), (no_network, 'no route to host')],
)
def test_failed_download_leaves_nothing(
  home, tmp_path, monkeypatch, download, found
):
  patch_download(monkeypatch, download)
  with pytest.raises(ValueError, match='could not download') as caught:
    load(None, tmp_path / 'cache')
  assert found in str(caught.value) and 'data_dir' in str(caught.value)
  assert not files_under(home)


def assert_equals_tff(source, cache_dir, clients=None, only_digits=True):
  """Compares with the clients that TFF's own loader gives."""
  import tensorflow_federated as tff

  by_tff = tff.simulation.datasets.emnist.load_data(
    only_digits=only_digits, cache_dir=str(cache_dir)
  )
  splits = (source.train, source.test)
  for split, client_data in zip(splits, by_tff, strict=True):
    owners = split.client_ids.tolist()
    assert sorted(set(owners)) == list(client_data.client_ids)
    # Examples of a client stand together, clients in TFF's order.
    assert owners == sorted(owners)
    for client in clients or client_data.client_ids:
      dataset = client_data.create_tf_dataset_for_client(client)
      (batch,) = dataset.batch(10_000).as_numpy_iterator()
      mine = split.client_ids == client
      np.testing.assert_array_equal(split.labels[mine], batch['label'])
      np.testing.assert_array_equal(
        split.images[mine, ..., 0], np.round(batch['pixels'] * 255)
      )


def test_equals_tffs_client_data(folders):
  data_dir, cache_dir = folders
  write_database(database_in(data_dir), ['f0002_01', 'f0000_14', 'f0001_41'])
  assert_equals_tff(load(data_dir, cache_dir), data_dir / 'tff')


BOTH = (emnist_writers.DIGITS, emnist_writers.CHARACTERS)


def test_letters_are_a_set_of_their_own(folders):
  data_dir, cache_dir = folders
  written = write_database(database_in(data_dir), ['b', 'a'], contents=BOTH)
  letters = load(data_dir, cache_dir, only_digits=False)
  assert_holds(
    letters, {split: written[split] for split in ('all_train', 'all_test')}
  )
  assert letters.num_classes == 62 and letters.train.labels.max() > 9
  assert 'digits and letters: 2 writers' in letters.title
  assert 'not the public 3,400 writers, 671,585 and 77,483' in letters.title
  digits = load(data_dir, cache_dir, only_digits=True)
  assert digits.num_classes == 10
  assert digits.version == load(data_dir, cache_dir).version
  assert letters.version != digits.version
  assert [path.name for path in files_under(cache_dir)] == [
    'all-1.npz',
    'digits-1.npz',
  ]
  assert_equals_tff(letters, data_dir / 'tff', only_digits=False)


@pytest.mark.parametrize('packed', [False, True])
def test_file_without_letters_names_file_and_remedy(folders, tmp_path, packed):
  data_dir, cache_dir = folders
  write_database(tmp_path / 'plain', ['a'])
  if packed:
    pack(tmp_path / 'plain', archive_in(data_dir))
  else:
    shutil.copy(tmp_path / 'plain', database_in(data_dir))
  with pytest.raises(ValueError, match='holds no letters') as caught:
    load(data_dir, cache_dir, only_digits=False)
  found = archive_in(data_dir) if packed else database_in(data_dir)
  assert f'{found} holds' in str(caught.value)
  assert '--emnist_only_digits=true' in str(caught.value)
  assert '\n' not in str(caught.value)


def test_label_beyond_the_letters_is_refused(folders):
  data_dir, cache_dir = folders
  database = database_in(data_dir)
  write_database(database, ['a'], contents=BOTH)
  run_sql(
    database,
    (
      'UPDATE examples SET serialized_example_proto=? '
      "WHERE split_name='all_test'",
      (proto(62, pixels_with(0)),),
    ),
  )
  with pytest.raises(ValueError, match=r'labels 62\.\.62, not 0\.\.61'):
    load(data_dir, cache_dir, only_digits=False)


@pytest.fixture(scope='module')
def real(tmp_path_factory):
  """The real source, its cache directory, CPU seconds of both loads."""
  data_dir = os.environ.get('TFF_SSL_DATA_DIR')
  if not data_dir:
    pytest.skip('TFF_SSL_DATA_DIR is not set')
  cache_dir = tmp_path_factory.mktemp('cache')
  start = time.process_time()
  source = load(data_dir, cache_dir)
  decoded = time.process_time()
  load(data_dir, cache_dir)
  yield source, cache_dir, decoded - start, time.process_time() - decoded
  shutil.rmtree(cache_dir)


def test_real_file_holds_all_writers(real):
  source, _, first_seconds, second_seconds = real
  assert len(source.train.labels) == 63_373
  assert len(source.test.labels) == 6_627
  for split in (source.train, source.test):
    assert len(set(split.client_ids.tolist())) == 836
    assert np.bincount(split.labels).min() > 0 and split.labels.max() == 9
    assert len(split.images) == len(split.labels) == len(split.client_ids)
  pixels = source.train.images / 255
  assert pixels.mean() == pytest.approx(source.mean[0], abs=1e-3)
  assert pixels.std() == pytest.approx(source.stddev[0], abs=1e-3)
  # Paper is white: the corners hold no ink.
  assert np.median(source.train.images[:, 0, 0]) == source.background
  assert first_seconds < 20 and second_seconds < 2


def test_real_file_equals_tffs_client_data(real):
  source, cache_dir, _, _ = real
  (unpacked,) = cache_dir.rglob('emnist_all.sqlite')
  writers = sorted(set(source.train.client_ids.tolist()))
  assert_equals_tff(source, unpacked.parent, writers[::209])
