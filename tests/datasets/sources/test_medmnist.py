"""MedMNIST sets: what is read of a file of their layout, and what is refused.

The files are made here, with few examples; their arrays are what the readers
must give back.
"""

import dataclasses
import pathlib

import numpy as np
import pytest

from datasets.files import npz_files
from datasets.sources import catalogue, medmnist

RNG = np.random.default_rng(11)
SIZES = {'train': 20, 'val': 6, 'test': 9}


def arrays_of(num_classes, shape):
  arrays = {}
  for split, n in SIZES.items():
    arrays[f'{split}_images'] = RNG.integers(0, 256, [n, *shape], np.uint8)
    labels = RNG.integers(0, num_classes, [n, 1], np.uint8)
    arrays[f'{split}_labels'] = labels
  return arrays


ORGANS = arrays_of(11, (28, 28))
BLOOD = arrays_of(8, (28, 28, 3))


def write(data_dir, name, arrays, **changes):
  folder = pathlib.Path(data_dir, 'medmnist')
  folder.mkdir(exist_ok=True)
  kept = {k: v for k, v in {**arrays, **changes}.items() if v is not None}
  np.savez_compressed(folder / f'{name}.npz', **kept)
  return folder / f'{name}.npz'


def load(data_dir, name='organamnist'):
  return catalogue.load(name, data_dir=str(data_dir), cache_dir='unused')


@pytest.mark.parametrize(
  'name, arrays, num_classes, shape',
  [
    ('organamnist', ORGANS, 11, (28, 28, 1)),
    ('bloodmnist', BLOOD, 8, (28, 28, 3)),
  ],
)
def test_reads_what_the_layout_says(tmp_path, name, arrays, num_classes, shape):
  write(tmp_path, name, arrays)
  source = load(tmp_path, name)
  assert source.num_classes == num_classes
  for key, split in (
    ('train', source.train),
    ('val', source.validation),
    ('test', source.test),
  ):
    images = arrays[f'{key}_images'].reshape(-1, *shape)
    np.testing.assert_array_equal(split.examples, images)
    np.testing.assert_array_equal(split.labels, arrays[f'{key}_labels'].ravel())
    assert split.examples.shape[1:] == shape
    assert split.examples.dtype == np.uint8 and split.labels.dtype == np.int32
    assert split.client_ids is None
  scaled = source.train.examples / 255
  assert source.mean == pytest.approx(scaled.mean(axis=(0, 1, 2)))
  assert source.stddev == pytest.approx(scaled.std(axis=(0, 1, 2)))
  corners = source.train.examples[:, ::27, ::27]
  assert source.background == int(np.median(corners))
  # Kidneys, lungs and femurs are left or right.
  assert source.mirrorable == (name == 'bloodmnist')


def test_sizes_are_in_version_and_title(tmp_path):
  write(tmp_path, 'organamnist', ORGANS)
  first = load(tmp_path)
  assert first.version.startswith('medmnist-20+6+9-')
  assert '20 train, 6 validation and 9 test' in first.title
  assert 'not the public 34,561 train' in first.title
  assert 'or 34,581 train' in first.title
  images = 255 - ORGANS['train_images']
  write(tmp_path, 'organamnist', ORGANS, train_images=images)
  assert load(tmp_path).version != first.version


def test_public_sizes_need_no_remark(tmp_path, monkeypatch):
  entry = dataclasses.replace(
    medmnist.TABLE['organamnist'], public_examples=((1, 1, 1), (20, 6, 9))
  )
  monkeypatch.setitem(medmnist.TABLE, 'organamnist', entry)
  write(tmp_path, 'organamnist', ORGANS)
  title = load(tmp_path).title
  assert title == 'OrganAMNIST: 20 train, 6 validation and 9 test examples'


def test_public_sizes_are_those_of_the_paper():
  """As arXiv:2110.14795 counts all examples, those of its release."""
  organs = medmnist.TABLE['organamnist'].public_examples[-1]
  assert sum(organs) == 58_850
  assert sum(medmnist.TABLE['bloodmnist'].public_examples[-1]) == 17_092


@pytest.mark.parametrize(
  'key, array, found',
  [
    ('val_labels', None, 'and nothing else'),
    ('extra', np.zeros(3), 'found the keys'),
    ('train_images', np.zeros([20, 64, 64], np.uint8), 'uint8 [N, 28, 28]'),
    ('test_images', np.zeros([9, 28, 28, 3], np.uint8), '[9, 28, 28, 3]'),
    ('val_images', ORGANS['val_images'] / 255, 'float64'),
    ('val_images', np.uint8(3), 'uint8 []'),
    ('val_images', ORGANS['val_images'][:0], '[0, 28, 28]'),
    ('test_labels', ORGANS['test_labels'][:-1], 'integers [9, 1]'),
    ('test_labels', ORGANS['test_labels'].ravel(), '[9]'),
    ('test_labels', ORGANS['test_labels'] / 1, 'float64'),
    ('train_labels', np.full([20, 1], 11, np.uint8), 'has the classes 0..10'),
    ('val_labels', np.full([6, 1], -1), 'found -1..-1'),
    ('val_labels', np.array([[{}]] * 6), 'pickled objects'),
    ('train_images', np.full([20, 28, 28], 9, np.uint8), 'one single value'),
  ],
)
def test_wrong_arrays_are_refused(tmp_path, key, array, found, refusal):
  path = write(tmp_path, 'organamnist', ORGANS, **{key: array})
  with refusal(str(path), key, found):
    load(tmp_path)


def test_a_damaged_file_is_refused(tmp_path, refusal):
  path = write(tmp_path, 'organamnist', ORGANS)
  data = path.read_bytes()
  path.write_bytes(data.replace(data[200:220], b'x' * 20))
  with refusal(str(path), 'get it anew from the MedMNIST project'):
    load(tmp_path)


def test_file_that_declares_too_much_is_not_read(tmp_path, monkeypatch):
  monkeypatch.setattr(npz_files, 'MAX_BYTES', 10_000)
  write(tmp_path, 'organamnist', ORGANS)
  with pytest.raises(ValueError, match='GB uncompressed.*limit is 1e-05 GB'):
    load(tmp_path)


@pytest.mark.parametrize('name', ['organamnist', 'bloodmnist'])
def test_absent_file_says_where_it_is_published(tmp_path, name, refusal):
  published = f'the MedMNIST project publishes {name}.npz'
  with refusal(str(tmp_path / 'medmnist' / f'{name}.npz'), published):
    load(tmp_path, name)
  with refusal(f'holds medmnist/{name}.npz', published):
    catalogue.load(name, data_dir=None, cache_dir='unused')
