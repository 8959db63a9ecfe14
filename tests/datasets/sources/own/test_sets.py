"""A user's own sets: npz files and image folders with a table of priors."""

import numpy as np
import pytest
from PIL import Image

from datasets.partition import partitions
from datasets.records import source_report
from datasets.sources import catalogue
from datasets.sources.source import UNKNOWN

CSV = 'client_id,set_id,ill,well\nb,1,.2,.8\nb,2,.6,.4\na,1,.5,.5\na,7,.1,.9\n'
OWNERS = [('a', 1), ('b', 2), ('a', 7), ('b', 1), ('a', 1)]


def write_npz(folder, csv=CSV, test=None, **changes):
  rng = np.random.default_rng(0)
  clients, sets = zip(*OWNERS, strict=True)
  train = {
    'images': rng.integers(0, 256, (5, 4, 4), dtype=np.uint8),
    'client_id': np.array(clients),
    'set_id': np.array(sets),
    **changes,
  }
  held = {
    'images': rng.integers(0, 256, (3, 4, 4), dtype=np.uint8),
    'labels': np.array([0, 1, 1]),
    **(test or {}),
  }
  for name, arrays in (('train', train), ('test', held)):
    kept = {key: array for key, array in arrays.items() if array is not None}
    np.savez(folder / f'{name}.npz', **kept)
  (folder / 'priors.csv').write_text(csv)
  return train, held


def load_npz(folder):
  return catalogue.load('npz_sets', data_dir=str(folder), cache_dir='/nowhere')


def test_npz_files(tmp_path):
  train, held = write_npz(tmp_path)
  source = load_npz(tmp_path)
  np.testing.assert_array_equal(source.train.examples[..., 0], train['images'])
  assert source.train.labels.tolist() == [UNKNOWN] * 5
  assert source.test.labels.tolist() == [0, 1, 1]
  assert source.num_classes == 2
  assert source.title.endswith(
    ': 5 train examples in 4 sets and 3 test examples'
  )
  assert source.class_names == ('ill', 'well')
  assert source.sets.client_names == ('b', 'a')
  assert source.sets.client_index.tolist() == [1, 0, 1, 0, 1]
  # Sets are numbered in the order of the table.
  assert source.sets.set_index.tolist() == [0, 1, 1, 0, 0]
  assert source.mean[0] == pytest.approx(train['images'].mean() / 255)
  partition = partitions.build('own_sets', source, seed=0)
  assert partition.set_sizes.tolist() == [[1, 1], [2, 1]]
  assert sorted(partition.client_indices(1)) == [0, 2, 4]


def test_labels_and_table_are_part_of_the_version(tmp_path):
  write_npz(tmp_path)
  versions = {load_npz(tmp_path).version}
  write_npz(tmp_path, labels=np.array([1, 0, 0, 1, 0]))
  source = load_npz(tmp_path)
  assert source.train.labels.tolist() == [1, 0, 0, 1, 0]
  versions.add(source.version)
  write_npz(tmp_path, csv=CSV.replace('.1,.9', '.9,.1'))
  versions.add(load_npz(tmp_path).version)
  assert len(versions) == 3


@pytest.mark.parametrize(
  'labels',
  [
    np.array([1, 0, -1, 1, 0]),
    np.array(['well', 'ill', '', 'well', ' ill']),
  ],
)
def test_labels_are_numbers_or_names(tmp_path, labels):
  write_npz(
    tmp_path, labels=labels, test={'labels': np.array(['ill', 'well', 'well'])}
  )
  source = load_npz(tmp_path)
  assert source.train.labels.tolist() == [1, 0, UNKNOWN, 1, 0]
  assert source.test.labels.tolist() == [0, 1, 1]


def test_what_is_told_of_sets(tmp_path):
  """A class that test lacks, and labels against the priors."""
  rng = np.random.default_rng(1)
  sets = np.arange(60) % 2
  labels = np.where(rng.random(60) < np.array([0.8, 0.4])[sets], 1, 0)
  more = {
    'images': rng.integers(0, 256, (60, 4, 4), dtype=np.uint8),
    'client_id': np.full(60, 'a'),
    'set_id': sets,
    'test': {'labels': np.array([0, 1, 1])},
    'csv': 'client_id,set_id,ill,well\na,0,.2,.8\na,1,.6,.4\n',
  }

  def told(**changes):
    write_npz(tmp_path, **(more | changes))
    return ' '.join(source_report.oddities(load_npz(tmp_path)))

  assert told(labels=labels) == told(labels=None) == ''
  assert (
    'Labels well of train are as frequent in sets as the priors say of '
    in (told(labels=1 - labels))
  )
  few = {'labels': np.array([0, 0, 0])}
  assert told(test=few).startswith('test has no example of well')


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'labels': np.array(['ill', 'well', 'x', '', ''])}, 'no name of a class'),
    ({'labels': np.array([0, 255, 1, 1, 1], 'u1')}, 'what -1 becomes in uint8'),
    ({'test': {'labels': np.array([0, -1, 1])}}, '1 of 3 without a label'),
    ({'set_id': None}, 'there must be images, client_id and set_id'),
    ({'set_id': np.arange(4)}, 'there are 5 images'),
    ({'set_id': np.arange(5) / 2}, 'set_id: found float64'),
    ({'labels': np.array([0, 1, 2, 0, 0])}, 'labels: found 0..2'),
    ({'images': np.zeros((5, 4, 4)) - 1}, 'images: found floats from -1 to'),
    ({'client_id': np.array(list('abcab'))}, 'no row for the set'),
    ({'csv': CSV + 'c,1,.5,.5\n'}, "set '1' of 'c', which has no example"),
    ({'csv': CSV.replace('.8', '.9')}, 'sum to 1.1 instead of 1'),
    ({'test': {'labels': None}}, 'there must be images and labels'),
    ({'test': {'labels': np.array([0, 1, 5])}}, 'labels: found 0..5'),
    ({'test': {'images': np.zeros((3, 5, 5), 'u1')}}, 'all images one shape'),
  ],
)
def test_bad_npz_files(tmp_path, changes, message, refusal):
  write_npz(tmp_path, **changes)
  with refusal(message):
    load_npz(tmp_path)


def test_missing_npz_files(tmp_path, refusal):
  write_npz(tmp_path)
  (tmp_path / 'priors.csv').unlink()
  with refusal('priors.csv: no such file'):
    load_npz(tmp_path)


PREVALENCE = (
  'system,hospital,healthy,subdural\n'
  'north,st_mary,.2,.8\nnorth,harbour,.6,.4\n'
  'south,hill,.5,.5\nsouth,lake,.1,.9\n'
)


def write_png(path, value, mode='L', size=(6, 5)):
  """Writes an image whose first pixel is bright, the others of this value."""
  path.parent.mkdir(parents=True, exist_ok=True)
  image = Image.new(mode, size, value if mode == 'L' else (value,) * len(mode))
  image.putpixel((0, 0), 255 if mode == 'L' else (255,) * len(mode))
  image.save(path)


def cut_short(path):
  path.write_bytes(path.read_bytes()[:40])


HILL_1, HILL_9 = 'train/south/hill/1.png', 'train/south/hill/9.png'


def write_16_bits(folder):
  """As from scanners: with values up to 4,095, the upper byte is 15."""
  values = np.arange(30, dtype=np.uint16).reshape(5, 6) * 130
  Image.fromarray(values).save(folder / HILL_1)


@pytest.fixture
def folder(tmp_path):
  value = 0
  for system, hospital, number in (
    *(('north', 'st_mary', 3), ('north', 'harbour', 1)),
    *(('south', 'hill', 2), ('south', 'lake', 2)),
  ):
    for index in range(number):
      value += 1
      write_png(tmp_path / f'train/{system}/{hospital}/{index}.png', value)
  write_png(tmp_path / 'test/healthy/a.png', 101)
  write_png(tmp_path / 'test/subdural/b.PNG', 102)
  (tmp_path / 'train' / '.DS_Store').write_text('')
  (tmp_path / 'prevalence.csv').write_text(PREVALENCE)
  return tmp_path


def load_images(folder):
  return catalogue.load('image_sets', data_dir=str(folder), cache_dir='unused')


def test_image_folders(folder):
  source = load_images(folder)
  assert source.train.examples.shape == (8, 5, 6, 1)
  assert source.train.labels.tolist() == [UNKNOWN] * 8
  assert source.test.examples[:, 1, 1, 0].tolist() == [101, 102]
  assert source.test.labels.tolist() == [0, 1]
  assert source.sets.client_names == ('north', 'south')
  # By name of the folders; values count in the order of the fixture.
  values = source.train.examples[:, 1, 1, 0].tolist()
  assert values == [4, 1, 2, 3, 5, 6, 7, 8]
  assert source.sets.client_index.tolist() == [0] * 4 + [1] * 4
  assert source.sets.set_index.tolist() == [1, 0, 0, 0, 0, 0, 1, 1]
  assert source.class_names == ('healthy', 'subdural')
  partition = partitions.build('own_sets', source, seed=0)
  assert partition.set_sizes.tolist() == [[3, 1], [2, 2]]
  np.testing.assert_allclose(partition.class_priors[1], [[0.5] * 2, [0.1, 0.9]])


def test_a_changed_image_is_another_version(folder):
  before = load_images(folder)
  assert load_images(folder).version == before.version
  write_png(folder / 'train/north/harbour/0.png', 77)
  assert load_images(folder).version != before.version


def test_names_of_classes_are_equal_however_they_are_composed(folder):
  table = folder / 'prevalence.csv'
  table.write_text(PREVALENCE.replace('healthy', 'ges\u00fcnd'), 'utf-8')
  (folder / 'test/healthy').rename(folder / 'test/gesu\u0308nd')
  assert load_images(folder).test.labels.tolist() == [0, 1]


def test_fewer_bits_are_scaled(folder):
  Image.new('1', (6, 5), 1).save(folder / HILL_1)
  assert load_images(folder).train.examples[5].min() == 255


def test_rgb(folder):
  for path in folder.rglob('*.[pP][nN][gG]'):
    write_png(path, 9, 'RGB')
  source = load_images(folder)
  assert source.train.examples.shape == (8, 5, 6, 3)
  assert len(source.mean) == 3


@pytest.mark.parametrize(
  'spoil, message',
  [
    (lambda f: write_png(f / HILL_9, 1, 'RGB'), 'one form'),
    (
      lambda f: write_png(f / HILL_9, 1, size=(7, 5)),
      r'9.png is \[5, 7, 1\] .* \[5, 6, 1\]',
    ),
    (lambda f: (f / 'train/south/hill/9.jpg').write_text(''), 'no PNG file'),
    (lambda f: (f / HILL_9).write_text('x'), 'neither a PNG nor'),
    (lambda f: cut_short(f / HILL_1), 'neither a PNG'),
    (write_16_bits, 'hill/1.png has 16 bits per channel'),
    (
      lambda f: Image.new('L', (6, 5)).save(f / HILL_1, format='GIF'),
      'hill/1.png holds neither',
    ),
    (lambda f: (f / 'train/notes.txt').write_text(''), 'only folders'),
    (lambda f: (f / 'train/south/empty').mkdir(), 'empty is empty'),
    (lambda f: write_png(f / 'train/west/x/0.png', 1), "set 'x' of 'west'"),
    (lambda f: write_png(f / 'test/sick/0.png', 1), 'sick does not have the'),
    (lambda f: (f / 'prevalence.csv').unlink(), 'csv: no such file'),
    (lambda f: (f / 'test').rename(f / 'tests'), 'test: no such folder'),
  ],
)
def test_bad_image_folders(folder, spoil, message, refusal):
  spoil(folder)
  with refusal(match=message):
    load_images(folder)


def test_arrays_of_other_splits(tmp_path, refusal):
  write_npz(tmp_path)
  np.savez(tmp_path / 'server.npz', images=np.zeros(1))
  with refusal('server.npz is not read', 'move it away'):
    load_npz(tmp_path)


def test_folders_of_other_splits(folder, refusal):
  (folder / 'unlabelled').mkdir()
  with refusal('unlabelled is not read', 'move it away'):
    load_images(folder)
