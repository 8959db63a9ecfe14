"""TFDS sources, on small sets written in TFDS' format and on real ones."""

import os
import pathlib
import types

import numpy as np
import pytest

from datasets.files import downloads
from datasets.sources import catalogue, tfds_images

COUNTS = {'train': 12, 'test': 5}


def write_set(
  data_dir,
  tfds_name,
  version='3.1.0',
  shape=(28, 28, 1),
  max_label=9,
  seed=0,
  counts=COUNTS,
):
  """Writes random images and labels; returns the folder, and them by split."""
  import tensorflow as tf
  import tensorflow_datasets as tfds

  rng = np.random.default_rng(seed)
  written = {}
  for split, count in counts.items():
    images = rng.integers(0, 256, [count, *shape], np.uint8)
    labels = rng.permutation(np.arange(count) % (max_label + 1))
    labels[0] = max_label
    written[split] = images, np.where(split == 'unlabelled', -1, labels)
  image = tfds.features.Image(shape=shape)
  label = tfds.features.ClassLabel(num_classes=100)
  name, _, config = tfds_name.partition('/')
  tfds.dataset_builders.store_as_tfds_dataset(
    name,
    version,
    tfds.features.FeaturesDict({'image': image, 'label': label}),
    {
      split: tf.data.Dataset.from_tensor_slices({'image': x, 'label': y})
      for split, (x, y) in written.items()
    },
    config=config or None,
    data_dir=data_dir / 'tfds',
    disable_shuffling=True,
  )
  return data_dir / 'tfds' / tfds_name / version, written


def load(name, data_dir):
  return catalogue.load(name, data_dir=str(data_dir), cache_dir='unused')


def test_reads_the_set_as_written(tmp_path):
  _, written = write_set(tmp_path, 'mnist', '3.0.1')
  source = load('mnist', tmp_path)
  for split in COUNTS:
    images, labels = written[split]
    read = getattr(source, split)
    np.testing.assert_array_equal(read.examples, images)
    np.testing.assert_array_equal(read.labels, labels)
    assert read.examples.dtype == np.uint8 and read.labels.dtype == np.int32
    assert read.client_ids is None
  assert source.version == 'tfds-3.0.1-12+5'
  assert 'subset of the public 60,000 and 10,000' in source.title
  assert source.mean == (0.1307,) and source.stddev == (0.3081,)
  assert source.background == 0 and not source.mirrorable


def test_emnist_is_turned_upright(tmp_path):
  _, written = write_set(tmp_path, 'emnist/balanced', max_label=46)
  source = load('emnist_balanced', tmp_path)
  stored = written['train'][0]
  for image, original in zip(source.train.examples, stored, strict=True):
    np.testing.assert_array_equal(image[..., 0], original[..., 0].T)
  assert source.num_classes == 47


@pytest.mark.parametrize(
  'name, tfds_name, classes, mirrorable, public',
  [
    ('cifar10', 'cifar10', 10, True, '50,000 and 10,000'),
    ('cifar100', 'cifar100', 100, True, '50,000 and 10,000'),
    ('svhn', 'svhn_cropped', 10, False, '73,257 and 26,032'),
  ],
)
def test_colour_images(tmp_path, name, tfds_name, classes, mirrorable, public):
  of_set = {'shape': (32, 32, 3), 'max_label': classes - 1}
  _, written = write_set(tmp_path, tfds_name, **of_set)
  source = load(name, tmp_path)
  for split, (images, labels) in written.items():
    np.testing.assert_array_equal(getattr(source, split).examples, images)
    np.testing.assert_array_equal(getattr(source, split).labels, labels)
  assert source.num_classes == classes and source.mirrorable == mirrorable
  assert public in source.title
  # Zhang et al. normalises CIFAR and SVHN alike.
  assert source.mean == (0.4914, 0.4822, 0.4465)
  assert source.stddev == (0.2471, 0.2435, 0.2616)


STL = {'shape': (96, 96, 3), 'version': '1.0.0'}


def test_stl10_has_images_without_labels(tmp_path):
  counts = {**COUNTS, 'unlabelled': 30}
  _, written = write_set(tmp_path, 'stl10', counts=counts, **STL)
  source = load('stl10', tmp_path)
  np.testing.assert_array_equal(source.test.examples, written['test'][0])
  images = np.concatenate([written[s][0] for s in ('train', 'unlabelled')])
  labels = np.concatenate([written['train'][1], [-1] * 30])
  pairs = zip(source.train.examples, source.train.labels, strict=True)
  assert {(image.tobytes(), label) for image, label in pairs} == {
    (image.tobytes(), label)
    for image, label in zip(images, labels, strict=True)
  }
  assert source.version == 'tfds-1.0.0-42+5'
  assert '30 of the training images have no label' in source.title
  again = load('stl10', tmp_path)
  np.testing.assert_array_equal(again.train.examples, source.train.examples)
  (stl10,) = (entry for entry in tfds_images.TABLE if entry.name == 'stl10')
  assert stl10.public_examples == (105_000, 8_000)


def test_stl10_without_its_third_split_is_refused(tmp_path, refusal):
  folder, _ = write_set(tmp_path, 'stl10', **STL)
  with refusal("dataset='stl10'", str(folder), 'replace'):
    load('stl10', tmp_path)


def test_newest_version_wins(tmp_path):
  write_set(tmp_path, 'mnist', '3.0.9')
  _, written = write_set(tmp_path, 'mnist', '3.0.10', seed=1)
  pathlib.Path(tmp_path, 'tfds', 'mnist', '4.0.0').mkdir()
  source = load('mnist', tmp_path)
  assert source.version == 'tfds-3.0.10-12+5'
  np.testing.assert_array_equal(source.test.examples, written['test'][0])


def test_absent_set_names_the_folder(tmp_path, refusal):
  folder = str(tmp_path / 'tfds' / 'emnist/balanced')
  with refusal('no prepared TFDS set', folder):
    load('emnist_balanced', tmp_path)
  assert not os.listdir(tmp_path)


def truncate(path):
  os.truncate(path, path.stat().st_size * 2 // 3)


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 255
  path.write_bytes(data)


def lose_a_record(path):
  path.write_text(path.read_text().replace('"12"', '"13"'))


@pytest.mark.parametrize(
  'damage, pattern',
  [
    (truncate, '*-train.tfrecord*'),
    (flip, '*-train.tfrecord*'),
    (pathlib.Path.unlink, '*-test.tfrecord*'),
    (truncate, 'dataset_info.json'),
    (truncate, 'features.json'),
    (pathlib.Path.unlink, 'features.json'),
    (lose_a_record, 'dataset_info.json'),
  ],
)
def test_damage_is_one_sentence(tmp_path, damage, pattern, refusal):
  folder, _ = write_set(tmp_path, 'mnist')
  (path,) = folder.glob(pattern)
  damage(path)
  with refusal("dataset='mnist'", str(folder), 'replace the folder'):
    load('mnist', tmp_path)


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'shape': (32, 32, 1)}, '[32, 32, 1] instead'),
    ({'max_label': 10}, 'labels 0..10, not 0..9'),
  ],
)
def test_other_content_is_refused(tmp_path, settings, message, refusal):
  write_set(tmp_path, 'mnist', **settings)
  with refusal(message):
    load('mnist', tmp_path)


def test_failed_download_names_the_remedy(monkeypatch, tmp_path, refusal):
  import tensorflow_datasets as tfds

  asked = []

  class Offline:
    data_path = tmp_path / 'absent'
    url_infos = types.MappingProxyType({'https://nowhere.invalid/a.zip': None})

    def __init__(self, name):
      asked.append(name)

    def download_and_prepare(self):
      raise ConnectionError('no route to host\nsecond line')

  monkeypatch.setattr(tfds, 'builder', Offline)
  monkeypatch.setattr(downloads, 'check_reachable', lambda *a, **more: None)
  with refusal('no route to host', 'tfds/emnist/balanced/<version>/'):
    catalogue.load('emnist_balanced', data_dir=None, cache_dir='unused')
  assert asked == ['emnist/balanced']


def test_without_data_dir_tfds_prepares_the_set(tmp_path, monkeypatch):
  import tensorflow_datasets as tfds

  folder, written = write_set(tmp_path, 'mnist', '3.0.1')
  prepared = []

  def builder(name):
    assert name == 'mnist'
    local = tfds.builder_from_directory(str(folder))
    local.download_and_prepare = lambda: prepared.append(name)
    return local

  monkeypatch.setattr(tfds, 'builder', builder)
  source = catalogue.load('mnist', data_dir=None, cache_dir='unused')
  assert prepared == ['mnist']
  np.testing.assert_array_equal(source.train.examples, written['train'][0])


def test_table_rows_are_consistent():
  for entry in tfds_images.TABLE:
    channels = entry.input_shape[2]
    assert len(entry.mean) == len(entry.stddev) == channels


@pytest.mark.parts
def test_real_emnist_stands_upright_like_mnist(data_dir):
  mnist = load('mnist', data_dir)
  emnist = load('emnist_balanced', data_dir)
  assert len(mnist.train.labels) == 60_000 and 'subset' not in mnist.title
  assert len(emnist.train.labels) == 94_545
  assert len(np.unique(emnist.train.labels)) == 47
  # The published mean and deviation are MNIST's own.
  counts, values = (
    np.bincount(mnist.train.examples.ravel()),
    np.arange(256) / 255,
  )
  mean = np.average(values, weights=counts)
  deviation = np.average((values - mean) ** 2, weights=counts) ** 0.5
  assert (mean, deviation) == pytest.approx((0.1307, 0.3081), abs=5e-5)

  pixels = mnist.train.examples[..., 0].astype(np.float32)
  means = np.stack([pixels[mnist.train.labels == c].mean(0) for c in range(10)])

  def nearest_mean_accuracy(images, labels):
    products = np.tensordot(images, means, ([1, 2], [1, 2]))
    # |x - m|^2 without |x|^2, which is the same for all means.
    distances = (means**2).sum(axis=(1, 2)) - 2 * products
    return np.mean(distances.argmin(axis=1) == labels)

  is_digit = emnist.test.labels < 10
  images = emnist.test.examples[is_digit, ..., 0].astype(np.float32)
  labels = emnist.test.labels[is_digit]
  # EMNIST's digits fill the frame and MNIST's do not, so MNIST's means know
  # them only roughly; but no other orientation comes near the upright one.
  accuracies = [
    nearest_mean_accuracy(np.rot90(turned, quarters, (1, 2)), labels)
    for turned in (images, images.swapaxes(1, 2))
    for quarters in range(4)
  ]
  upright, transposed = accuracies[0], accuracies[4]
  assert upright == max(accuracies)
  assert upright > 2 * transposed
