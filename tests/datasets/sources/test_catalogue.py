"""The table of sources, and the one that needs no file."""

import dataclasses
import functools

import numpy as np
import pytest
import pythons
from sklearn.datasets import load_digits

from datasets.sources import catalogue


def test_import_is_cheap():
  program = (
    'import sys; import datasets.sources.catalogue, datasets.partition.resplit,'
    'datasets.partition.partitions; print(*sys.modules)'
  )
  done = pythons.run('-c', program, check=True)
  heavy = {'tensorflow', 'tensorflow_federated', 'tensorflow_datasets'}
  heavy |= {'sklearn', 'matplotlib', 'tff_ssl.algorithms', 'experiments'}
  assert not heavy & set(done.stdout.split())


def test_table():
  assert list(catalogue.SOURCES) == [
    *('digits', 'emnist', 'emnist_balanced', 'mnist', 'cifar10', 'cifar100'),
    *('svhn', 'stl10', 'organamnist', 'bloodmnist', 'npz', 'image_folder'),
    *('npz_sets', 'image_sets', 'table', 'text'),
  ]
  specs = catalogue.SOURCES
  assert all(name == spec.name for name, spec in specs.items())
  native = {name for name, spec in specs.items() if spec.has_native_split}
  assert native == {'emnist', 'npz', 'image_folder', 'table', 'text'}
  unlabelled = {name for name, spec in specs.items() if spec.has_unlabelled}
  assert unlabelled == {'stl10', 'image_sets'}
  in_sets = {name for name, spec in specs.items() if spec.has_sets}
  assert in_sets == {'npz_sets', 'image_sets'}
  assert all(spec.description for spec in specs.values())


@pytest.mark.parametrize(
  'name', ['npz', 'image_folder', 'npz_sets', 'image_sets', 'table', 'text']
)
def test_a_users_own_files_need_a_folder(name, refusal):
  with refusal(f'dataset={name!r} needs data_dir'):
    catalogue.load(name, data_dir=None, cache_dir='unused')


def test_home_is_expanded(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  with pytest.raises(ValueError, match=str(tmp_path / 'd' / 'train.npz')):
    catalogue.load('npz', data_dir='~/d', cache_dir='~/c')


@pytest.fixture(scope='module')
def digits():
  # A folder given for other sources does not disturb.
  return catalogue.load('digits', data_dir='/nowhere', cache_dir='/nowhere')


def test_digits_are_scikit_learns(digits):
  def pairs(images, labels):
    return {(x.tobytes(), y) for x, y in zip(images, labels, strict=True)}

  bunch = load_digits()
  scaled = np.round(bunch.images / 16 * 255).astype(np.uint8)
  images = np.concatenate([digits.train.examples, digits.test.examples])
  labels = np.concatenate([digits.train.labels, digits.test.labels])
  assert images.shape == (1_797, 8, 8, 1) and images.dtype == np.uint8
  assert labels.dtype == np.int32
  assert pairs(images, labels) == pairs(scaled, bunch.target)


def test_digits_are_split_evenly_and_described(digits):
  assert len(digits.train.labels) == 1_437 and len(digits.test.labels) == 360
  assert digits.train.client_ids is None and digits.test.client_ids is None
  train = np.bincount(digits.train.labels) / 1_437
  test = np.bincount(digits.test.labels) / 360
  np.testing.assert_allclose(train, test, atol=0.003)
  again = catalogue.load('digits', data_dir=None, cache_dir='/nowhere')
  np.testing.assert_array_equal(again.train.examples, digits.train.examples)
  assert again.version == digits.version == 'sklearn-digits-1437+360'
  scaled = digits.train.examples / 255
  assert digits.mean[0] == pytest.approx(scaled.mean(), abs=5e-5)
  assert digits.stddev[0] == pytest.approx(scaled.std(), abs=5e-5)
  assert digits.background == 0 and not digits.mirrorable
  assert digits.num_classes == 10
  assert digits.train.examples.shape[1:] == (8, 8, 1)


def test_a_source_of_a_users_own():
  name = 'own_source:SOURCE'
  load = functools.partial(
    catalogue.load, name, data_dir=None, cache_dir='/nowhere'
  )
  assert (load().name, load().version) == ('stripes', 'stripes-60')
  assert load(size=30).version == 'stripes-30'
  with pytest.raises(ValueError, match='stripes_size must be .* is 0'):
    load(size=0)
  with pytest.raises(ValueError, match='holds no stripes'):
    catalogue.check_files(name, data_dir='/nowhere')
  spec = catalogue.SOURCES.find(name)
  assert spec.derive({}, {}) == {'seed': 7}
  assert spec.derive({}, {'seed': 1}) == {'seed': 1}


@pytest.mark.parametrize(
  'name, options, texts',
  [
    ('emnist_balance', {}, ["Did you mean 'emnist_balanced", 'digits, emnist']),
    ('cifar', {}, ["Did you mean 'cifar10", 'digits, emnist, ']),
    ('zzz', {}, ['unknown', 'digits, emnist, ']),
    ('digits', {'only_digits': 1}, ['only_digits=1 is no option', ': none']),
    ('emnist', {'letters': 1}, ['letters=1 is no', 'options: only_digits']),
    ('no_such_module:SOURCE', {}, ["there is no module 'no_such_module'"]),
    ('own_source:load', {}, ['no SourceSpec, but of the type function']),
  ],
)
def test_what_is_unknown(name, options, texts, refusal):
  with refusal(*texts, 'dataset='):
    catalogue.load(name, data_dir=None, cache_dir='unused', **options)


def test_settings_bear_the_name_of_their_source():
  spec = catalogue.SOURCES['emnist']
  assert spec.options['only_digits'].name == 'emnist_only_digits'
  with pytest.raises(ValueError, match="begins with 'digits_'"):
    dataclasses.replace(catalogue.SOURCES['digits'], settings=spec.settings)


def test_options_are_checked():
  with pytest.raises(ValueError, match='emnist_only_digits must be True or'):
    catalogue.load('emnist', data_dir=None, cache_dir='', only_digits='yes')


def test_folders_of_clients_are_the_clients(tmp_path):
  def values(**given):
    given = {'data_dir': str(tmp_path), **given}
    return catalogue.SOURCES['image_folder'].derive({}, given)

  for count in range(12):
    assert 'partition' not in values(partition='r')
    found = values()
    assert found == values(partition='native')
    assert found.get('partition') == ('native' if count > 1 else None)
    (tmp_path / 'train' / f'client{count}').mkdir(parents=True)
    (tmp_path / 'train' / '.DS_Store').write_text('')
  assert values(data_dir=None) == values(data_dir='/nowhere') == {}
