"""Federated EMNIST: small files in TFF's format, hostile ones, the real one."""

import collections
import lzma
import os
import pathlib
import shutil
import sqlite3
import time
import urllib.error

import numpy as np
import pandas as pd
import pytest

from datasets.files import downloads
from datasets.sources import catalogue, emnist_writers


def proto(label, pixels):
  import tensorflow as tf

  label = tf.train.Int64List(value=[label])
  pixels = tf.train.FloatList(value=np.ravel(pixels))
  features = {
    'label': tf.train.Feature(int64_list=label),
    'pixels': tf.train.Feature(float_list=pixels),
  }
  example = tf.train.Example(features=tf.train.Features(feature=features))
  return example.SerializeToString()


def write_database(path, ids, seed=0, contents=(emnist_writers.DIGITS,)):
  """Writes a file in TFF's schema; returns `{split: {id: (pixels, labels)}}`.

  Rows of different clients and splits alternate, as nothing orders them.
  """
  rng = np.random.default_rng(seed)
  classes = {s: part.num_classes for part in contents for s in part.splits}
  written, rows, counts = collections.defaultdict(dict), [], []
  for split, num_classes in classes.items():
    for client in ids:
      count = rng.integers(1, 4)
      pixels = rng.random([count, 28, 28], np.float32)
      labels = rng.integers(0, num_classes, count)
      written[split][client] = (pixels, labels)
      counts.append((client, split, count))
      rows += [
        (place, split, client, proto(label, image))
        for place, (label, image) in enumerate(zip(labels, pixels, strict=True))
      ]
  examples = [row[1:] for row in sorted(rows, key=lambda row: row[0])]
  text, number, blob = (f'{t} NOT NULL' for t in ('TEXT', 'INTEGER', 'BLOB'))
  client = {'client_id': text, 'split_name': text}
  example = {'split_name': text, 'client_id': text}
  connection = sqlite3.connect(path)
  for table, values, types in (
    ('client_metadata', counts, {**client, 'num_examples': number}),
    ('examples', examples, {**example, 'serialized_example_proto': blob}),
  ):
    frame = pd.DataFrame(values, columns=[*types])
    frame.to_sql(table, connection, index=False, dtype=types)
  connection.close()
  return written


class Place:
  """A data directory with an empty `tff/`, and a cache directory to come."""

  def __init__(self, root):
    self.data, self.cache = root / 'data', root / 'cache'
    self.database = self.data / 'tff' / 'emnist_all.sqlite'
    self.archive = self.data / 'tff' / 'emnist_all.sqlite.lzma'
    self.archive.parent.mkdir(parents=True)

  def write_database(self, ids, **options):
    return write_database(self.database, ids, **options)

  def write_archive(self, ids, **options):
    """Writes the archive alone, without the database."""
    written = self.write_database(ids, **options)
    self.pack()
    return written

  def pack(self):
    """Puts the archive in the place of the database."""
    data = self.database.read_bytes()
    self.archive.write_bytes(lzma.compress(data, format=lzma.FORMAT_ALONE))
    self.database.unlink()

  def load(self, **options):
    return load(self.data, self.cache, **options)


@pytest.fixture
def place(tmp_path):
  return Place(tmp_path)


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
      split.examples[..., 0], np.round(pixels * 255)
    )
    np.testing.assert_array_equal(split.labels, labels)
    assert split.client_ids.tolist() == owners
    assert split.examples.dtype == np.uint8 and split.examples.shape[3] == 1
    assert split.labels.dtype == np.int32


def files_under(folder):
  return sorted(path for path in folder.rglob('*') if path.is_file())


def test_reads_every_client_with_any_id(place, hostile_ids):
  written = place.write_database(hostile_ids)
  before = files_under(place.data)
  source = place.load()
  assert_holds(source, written)
  assert source.background == 255 and not source.mirrorable
  assert source.num_classes == 10
  assert f'{len(hostile_ids)} writers' in source.title
  assert 'not the public 3,383 writers' in source.title
  assert files_under(place.data) == before
  assert [path.name for path in files_under(place.cache)] == ['digits-1.npz']
  # Constants of MNIST's ink on white paper.
  assert source.mean == (pytest.approx(0.8693),)
  assert source.stddev == (0.3081,)


def test_second_load_reads_the_cache(place, monkeypatch, hostile_ids):
  written = place.write_database(hostile_ids)
  first = place.load()
  monkeypatch.setattr(sqlite3, 'connect', None)
  second = place.load()
  assert_holds(second, written)
  assert second.version == first.version


def test_changed_file_is_read_anew(place):
  place.write_database(['a', 'b'])
  first = place.load()
  place.database.unlink()
  written = place.write_database(['a', 'b'], seed=1)
  second = place.load()
  assert_holds(second, written)
  assert second.version != first.version


def test_version_does_not_depend_on_the_place(place, tmp_path):
  place.write_database(['a', 'b'])
  first = place.load()
  place.pack()
  assert load(place.data, tmp_path / 'other').version == first.version


def test_damaged_cache_is_decoded_anew(place):
  written = place.write_database(['a', 'b'])
  place.load()
  (cached,) = files_under(place.cache)
  os.truncate(cached, cached.stat().st_size // 2)
  for _ in range(2):
    assert_holds(place.load(), written)


def test_archive_is_unpacked_once(place):
  written = place.write_archive(['a', 'b'])
  assert_holds(place.load(), written)
  decoded, unpacked = files_under(place.cache)
  assert unpacked.name == 'emnist_all.sqlite'
  assert unpacked.read_bytes() == lzma.decompress(place.archive.read_bytes())
  made = unpacked.stat().st_mtime_ns
  decoded.unlink()
  os.utime(place.archive)
  assert_holds(place.load(), written)
  assert unpacked.stat().st_mtime_ns == made
  assert files_under(place.data) == [place.archive]


def test_other_archive_is_unpacked_beside(place):
  for seed in (0, 1):
    written = place.write_archive(['a', 'b'], seed=seed)
    assert_holds(place.load(), written)
  assert len(files_under(place.cache)) == 4


def test_plain_file_comes_before_the_archive(place):
  written = place.write_database(['a'])
  place.archive.write_bytes(b'never looked at')
  assert_holds(place.load(), written)


def test_absent_files_name_both_paths_and_create_nothing(place, refusal):
  with refusal(f'holds neither {place.database} nor {place.archive}'):
    place.load()
  assert not files_under(place.data) and not place.cache.exists()


def change_bytes(change):
  return lambda path: path.write_bytes(change(path.read_bytes()))


def change_rows(statement, *parameters):
  def change(path):
    with sqlite3.connect(path) as connection:
      connection.execute(statement, [value() for value in parameters])
    connection.close()

  return change


def change_example(blob, which='rowid=1'):
  update = 'UPDATE examples SET serialized_example_proto=? WHERE '
  return change_rows(update + which, blob)


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
def test_b4_unusable_database_is_one_sentence(place, change, refusal):
  place.write_database(['a', 'b'])
  change(place.database)
  before = place.database.read_bytes()
  with refusal(str(place.database), 'delete or replace it'):
    place.load()
  assert place.database.read_bytes() == before
  assert not place.cache.exists()
  assert files_under(place.data) == [place.database]


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
def test_damaged_archive_leaves_nothing(place, damage, refusal):
  place.write_archive(['a', 'b'])
  place.archive.write_bytes(damage(place.archive.read_bytes()))
  with refusal(str(place.archive), 'replace it'):
    place.load()
  assert not files_under(place.cache)


def test_b4_interrupted_unpacking_leaves_nothing(place, failing_calls):
  written = place.write_archive(['a', 'b'])
  with (
    pytest.raises(KeyboardInterrupt),
    failing_calls(['fsync'], KeyboardInterrupt, 1),
  ):
    place.load()
  assert not files_under(place.cache)
  assert_holds(place.load(), written)


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


def test_download_goes_to_tffs_cache_which_is_used(home, tmp_path, monkeypatch):
  written = {}
  patch_download(
    monkeypatch, lambda path: written.update(write_database(path, ['a', 'b']))
  )
  assert_holds(load(None, tmp_path / 'cache'), written)
  assert files_under(home) == [home / '.tff' / 'emnist_all.sqlite']
  patch_download(monkeypatch, None)
  assert_holds(load(None, tmp_path / 'other'), written)


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
  home, tmp_path, monkeypatch, download, found, refusal
):
  patch_download(monkeypatch, download)
  with refusal('could not download', found, 'data_dir'):
    load(None, tmp_path / 'cache')
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
      images = np.round(batch['pixels'] * 255)
      np.testing.assert_array_equal(split.examples[mine, ..., 0], images)


BOTH = (emnist_writers.DIGITS, emnist_writers.CHARACTERS)


def test_letters_are_a_set_of_their_own(place):
  written = place.write_database(['b', 'a', 'c'], contents=BOTH)
  letters = place.load(only_digits=False)
  assert_holds(letters, {name: written[name] for name in BOTH[1].splits})
  assert letters.num_classes == 62 and letters.train.labels.max() > 9
  assert 'digits and letters: 3 writers' in letters.title
  assert 'not the public 3,400 writers, 671,585 and 77,483' in letters.title
  digits = place.load(only_digits=True)
  assert digits.num_classes == 10
  assert digits.version == place.load().version
  assert letters.version != digits.version
  names = [path.name for path in files_under(place.cache)]
  assert names == ['all-1.npz', 'digits-1.npz']
  assert_equals_tff(letters, place.data / 'tff', only_digits=False)
  assert_equals_tff(digits, place.data / 'tff')


def test_file_without_letters_names_file_and_remedy(place, refusal):
  place.write_database(['a'])
  with refusal(f'{place.database} holds', '--emnist_only_digits=true'):
    place.load(only_digits=False)
  place.pack()
  with refusal(f'{place.archive} holds no letters'):
    place.load(only_digits=False)


def test_label_beyond_the_letters_is_refused(place, refusal):
  place.write_database(['a'], contents=BOTH)
  of_test = "split_name='all_test'"
  change_example(lambda: proto(62, pixels_with(0)), of_test)(place.database)
  with refusal('labels 62..62, not 0..61'):
    place.load(only_digits=False)


@pytest.fixture(scope='module')
def real(data_dir, tmp_path_factory):
  """The real source, its cache directory, CPU seconds of both loads."""
  cache_dir = tmp_path_factory.mktemp('cache')
  start = time.process_time()
  source = load(data_dir, cache_dir)
  decoded = time.process_time()
  load(data_dir, cache_dir)
  yield source, cache_dir, decoded - start, time.process_time() - decoded
  shutil.rmtree(cache_dir)


@pytest.mark.parts
def test_real_file_holds_all_writers(real):
  source, _, first_seconds, second_seconds = real
  assert len(source.train.labels) == 63_373
  assert len(source.test.labels) == 6_627
  for split in (source.train, source.test):
    assert len(set(split.client_ids.tolist())) == 836
    assert np.bincount(split.labels).min() > 0 and split.labels.max() == 9
    assert len(split.examples) == len(split.labels) == len(split.client_ids)
  pixels = source.train.examples / 255
  assert pixels.mean() == pytest.approx(source.mean[0], abs=1e-3)
  assert pixels.std() == pytest.approx(source.stddev[0], abs=1e-3)
  # Paper is white: the corners hold no ink.
  assert np.median(source.train.examples[:, 0, 0]) == source.background
  assert first_seconds < 20 and second_seconds < 2


def test_real_file_equals_tffs_client_data(real):
  source, cache_dir, _, _ = real
  (unpacked,) = cache_dir.rglob('emnist_all.sqlite')
  writers = sorted(set(source.train.client_ids.tolist()))
  assert_equals_tff(source, unpacked.parent, writers[::209])
