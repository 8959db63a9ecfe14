"""What a run trains on, and what its folder keeps of that."""

import dataclasses
import json
import pathlib
import types

import numpy as np
import pandas as pd
import pytest
import stores
from sklearn import datasets as sklearn_datasets

from datasets.records import partition_report
from datasets.sources import catalogue
from datasets.store import client_store
from experiments.artifacts import checkpoints
from experiments.config import settings
from experiments.config.command_line import UsageError
from experiments.preparing import data, description, run_data


@pytest.fixture(scope='module')
def cache_dir(tmp_path_factory):
  return str(tmp_path_factory.mktemp('cache'))


@pytest.fixture(scope='module')
def prepare(cache_dir):
  """Prepares the digits for a process, or another data set."""

  def prepare_data(process='grouping', **given):
    made = settings.make(
      {'process': process, 'dataset': 'digits', 'cache_dir': cache_dir, **given}
    )
    return data.prepare(made)

  return prepare_data


def labels_in_records(run, folder):
  """Writes the records of a run; returns what they say of labels."""
  run_data.write_records(run, types.SimpleNamespace(path=folder))
  return json.loads((folder / 'split.json').read_text())['labels']


SIX = {'num_clients': 6, 'clients_per_round': 2}
MASKED = {**SIX, 'mask_ratio': 0.9}


def test_partition_store_and_report_agree(prepare):
  run = prepare(**SIX, server_examples=50, noniid_r=0.5)
  labels = run.source.train.labels
  for client in range(6):
    start, end = run.partition.offsets[client : client + 2]
    members = run.partition.examples[start:end]
    np.testing.assert_array_equal(
      run.counts[client], np.bincount(labels[members], minlength=10)
    )
  sizes = run.counts.sum(axis=1)
  assert run.describe() == {
    'clients': 6,
    'examples': 1437 - 50,
    'min_examples': sizes.min(),
    'median_examples': np.median(sizes),
    'max_examples': sizes.max(),
    'classes': 10,
    'examples_of_known_class': 1437 - 50,
    'measured_r': partition_report.noniid_r(run.counts),
    'server_examples': 50,
    'labelled_client_examples': 0,
    'training_labels': 1437,
    'unused_labels': 1387,
    'held_out_clients': 0,
    'held_out_examples': 0,
    'test_examples': 360,
  }
  assert (
    'Training uses 50 of the 1,437 labels of the training examples (50 at the '
    'server, 0 at clients); 1,387 are not used.'
  ) in description.lines_of_data(run)
  assert run.describe()['measured_r'] == pytest.approx(0.5, abs=0.03)
  np.testing.assert_array_equal(run.store.client_sizes, sizes)


@pytest.mark.parametrize(
  'process, hidden', [('grouping', True), ('fedavg', False)]
)
def test_labels_are_where_the_process_may_see_them(prepare, process, hidden):
  run = prepare(process, **SIX)
  facts = run.describe()
  assert facts['examples'] + facts['server_examples'] == 1437
  assert facts['labelled_client_examples'] == (0 if hidden else 1437)
  part = stores.read(run.store, 0)
  members = run.partition.examples[: run.partition.offsets[1]]
  np.testing.assert_array_equal(
    part.examples, run.source.train.examples[members]
  )
  right = run.source.train.labels[members]
  np.testing.assert_array_equal(
    part.y, np.full_like(right, client_store.HIDDEN) if hidden else right
  )


def test_dealt_labels_are_at_the_clients(prepare, tmp_path):
  run = prepare('grouping_client_labels', **SIX, labelled_examples=60)
  facts = run.describe()
  assert facts['labelled_client_examples'] == 60
  assert facts['server_examples'] == 0 and facts['examples'] == 1437
  for client in range(6):
    part = stores.read(run.store, client)
    assert np.bincount(part.y[part.y >= 0]).tolist() == [1] * 10
  said = labels_in_records(run, tmp_path)
  assert (said['labels_at'], said['labelled']) == ('dealt', 60)


def test_a_fixed_mask_hides_labels_in_store_and_records(prepare, tmp_path):
  run = prepare('fedavg', **MASKED)
  sizes = run.store.client_sizes
  shown = [int(n - int(0.9 * n)) for n in sizes]
  for client in range(6):
    y = stores.read(run.store, client).y
    assert np.count_nonzero(y >= 0) == shown[client]
  facts = run.describe()
  assert facts['labelled_client_examples'] == sum(shown)
  assert facts['min_labels'] == min(shown)
  assert facts['median_labels'] == np.median(shown)
  assert facts['max_labels'] == max(shown)
  assert facts['clients_without_labels'] == 0
  assert facts['clients_without_unlabelled'] == 0
  said = labels_in_records(run, tmp_path)
  assert said['labelled'] == sum(shown)
  assert (said['mask'], said['mask_ratio']) == ('fixed', 0.9)


def test_labelled_against_unlabelled_examples_of_each_client(prepare, tmp_path):
  run = prepare('fedavg', **MASKED, noniid_r=0.6, partition='r')
  run_data.write_records(run, types.SimpleNamespace(path=tmp_path))
  table = pd.read_csv(tmp_path / 'label_mismatch.csv')
  assert table['client'].tolist() == list(range(6))
  parts = [stores.read(run.store, client) for client in range(6)]
  shown, hidden = (
    np.array([np.bincount(p.true_y[has(p.y)], minlength=10) for p in parts])
    for has in (lambda y: y >= 0, lambda y: y < 0)
  )
  assert table['labelled'].tolist() == shown.sum(axis=1).tolist()
  assert table['unlabelled'].tolist() == hidden.sum(axis=1).tolist()
  expected = partition_report.mismatch_of(shown, hidden)
  np.testing.assert_allclose(table['total_variation'], expected)
  facts = run.describe()
  assert facts['label_mismatch_tv_mean'] == pytest.approx(np.nanmean(expected))
  assert facts['label_mismatch_tv_max'] == pytest.approx(np.nanmax(expected))


def test_without_fixed_labels_there_is_no_mismatch(prepare, tmp_path):
  run = prepare('fedavg', **SIX, mask_ratio=0.0)
  run_data.write_records(run, types.SimpleNamespace(path=tmp_path))
  assert not (tmp_path / 'label_mismatch.csv').exists()
  assert not [name for name in run.describe() if 'mismatch' in name]


def test_a_cut_has_its_own_store_and_a_validation_split(prepare):
  own, same, cut = (
    prepare('fedavg', **SIX, split=split) for split in (None, 'own', '80_5_15')
  )
  other = prepare('fedavg', **SIX, split='80_5_15', seed=1)
  assert own.store.key == same.store.key
  assert len({own.store.key, cut.store.key, other.store.key}) == 3
  assert 'validation_examples' not in own.describe()
  facts = cut.describe()
  assert facts['examples'] == 1797 - 89 - 269
  assert facts['validation_examples'] == len(cut.source.validation.labels) == 89
  assert facts['test_examples'] == 269
  assert other.source.version.endswith('-80_5_15-seed1')


def test_a_fold_of_the_labels_is_for_validation(prepare):
  """Of the server's, or of those that clients know; hidden ones stay hidden."""
  for process, given, labelled in (
    ('server_only', {'server_examples': 50}, 'server_examples'),
    ('fedlabel', {'mask_ratio': 0.9}, 'labelled_client_examples'),
    ('fedavg', {}, 'labelled_client_examples'),
  ):
    whole = prepare(process, num_clients=6, **given)
    cut = prepare(process, num_clients=6, label_fold='2of5', **given)
    before, after = whole.describe(), cut.describe()
    held = after['validation_examples']
    assert held == pytest.approx(before[labelled] / 5, abs=5)
    assert before[labelled] - after[labelled] == held
    # No pass sees them.
    assert after['unused_labels'] == before['unused_labels'] + held
    assert whole.store.key != cut.store.key


def test_examples_of_unknown_classes_are_counted(prepare):
  given = {'server_examples': 20, 'unknown_classes': 5}
  run = prepare(**SIX, **given, unknown_share=0.5)
  digits = sklearn_datasets.load_digits().target
  facts = run.describe()
  unknown, known = (
    facts[name]
    for name in ('unknown_class_examples', 'examples_of_known_class')
  )
  assert unknown == known == facts['examples'] / 2
  assert known + 20 == facts['training_labels']
  # The split into training and test is stratified: a fifth of the known ones.
  assert facts['training_labels'] + facts['test_examples'] == sum(digits < 5)
  assert (facts['classes'], run.source.num_classes) == (5, 5)
  assert (run.source.training.labels[run.hidden_from_clients] >= 0).all()
  (said,) = (
    x for x in description.lines_of_data(run) if f'{unknown:,} of' in x
  )
  assert "of the clients' 1,402 examples, 50% to 50%" in said
  whole = prepare(**SIX)
  assert 'unknown_class_examples' not in whole.describe()


def test_native_clients_give_validation_examples(prepare, half_labelled):
  own, cut = (
    prepare('fedlabel', **half_labelled, mask_ratio=0.0, **split)
    for split in ({}, {'split': '90_10_per_client'})
  )
  assert own.partition.client_names == cut.partition.client_names
  held = cut.describe()['validation_examples']
  assert held == len(cut.source.validation.labels) > 0
  labelled = [run.describe()['labelled_client_examples'] for run in (own, cut)]
  assert labelled[0] - labelled[1] == held
  assert (cut.source.validation.labels >= 0).all()


def test_clients_with_one_kind_of_examples_are_counted(prepare):
  forty = {'num_clients': 40, 'clients_per_round': 2}
  run = prepare(
    'fedlabel', partition='dirichlet', labelled_fraction=0.99, **forty
  )
  parts = [stores.read(run.store, client) for client in range(40)]
  full = sum((part.y >= 0).all() for part in parts)
  facts = run.describe()
  assert facts['clients_without_unlabelled'] == full > 0
  assert facts['clients_without_labels'] == 0
  partition = run.partition
  first = partition.examples[: partition.offsets[1]]
  without = dataclasses.replace(
    partition, labelled_indices=np.setdiff1d(partition.labelled_indices, first)
  )
  facts = dataclasses.replace(run, partition=without).describe()
  assert facts['clients_without_labels'] == 1


def test_one_mask_for_every_process(prepare):
  masks = [
    prepare(process, **MASKED)
    for process in ('fedavg', 'fedprox', 'fsl', 'sspt', 'ssjo')
  ]
  assert len({mask.store.key for mask in masks}) == 1
  assert len({mask.partition.digest() for mask in masks}) == 1


def test_the_process_hides_the_labels_of_a_redrawn_mask(prepare, tmp_path):
  run = prepare('fedavg', mask='redrawn', **MASKED)
  plain = prepare('fedavg', **SIX, mask_ratio=0.0)
  assert run.store.key == plain.store.key
  assert run.partition.digest() == plain.partition.digest()
  assert 'min_labels' not in plain.describe()
  seen = [n - int(0.9 * n) for n in run.store.client_sizes]
  facts = run.describe()
  assert facts['labelled_client_examples'] == 1437
  assert facts['max_labels'] == max(seen)
  said = labels_in_records(run, tmp_path)
  assert (said['mask'], said['mask_ratio']) == ('redrawn', 0.9)
  assert said['labelled_at_clients_in_a_pass'] == sum(seen)


def test_dirichlet_is_measured(prepare):
  run = prepare(partition='dirichlet', **SIX)
  assert run.describe()['min_examples'] >= 10
  assert run.describe()['measured_r'] == partition_report.noniid_r(run.counts)
  assert run.partition.arguments['dirichlet_alpha'] == 0.5


def test_letters_are_asked_of_the_source(prepare, monkeypatch):
  asked = []

  def load(name, **given):
    asked.append((name, given.get('only_digits')))
    raise ValueError('enough')

  monkeypatch.setattr(catalogue, 'load', load)
  for given in ({'dataset': 'emnist', 'emnist_only_digits': False}, {}):
    with pytest.raises(ValueError, match='enough'):
      prepare(**given)
  assert asked == [('emnist', False), ('digits', None)]


def test_pooled_is_one_client(prepare):
  facts = prepare('fedavg', partition='pooled').describe()
  assert facts['clients'] == 1
  assert facts['measured_r'] == 0.0


@pytest.mark.parametrize(
  'given, message',
  [
    ({'server_examples': 1437}, 'server_examples=1437'),
    ({'num_clients': 1400}, 'num_clients=1400'),
    ({'partition': 'native'}, "partition='native'"),
    (
      {'partition': 'pooled', 'gradient_diversity_clients': 2},
      '--gradient_diversity_clients=2 is more than the 1 clients',
    ),
    ({'dataset': 'mnist', 'data_dir': '/nowhere'}, '/nowhere'),
    ({'dataset': 'npz', 'data_dir': '/nowhere'}, '/nowhere'),
  ],
)
def test_impossible_data_are_one_sentence(prepare, given, message, refusal):
  with refusal(message):
    prepare(**given)


def test_records(prepare, tmp_path):
  run = prepare(**SIX)
  assert labels_in_records(run, tmp_path)
  with np.load(tmp_path / 'split.npz', allow_pickle=False) as split:
    split_of = dict(split)
  held = [split_of['server_indices'], split_of['examples']]
  # Every example is at the server or at one client.
  np.testing.assert_array_equal(np.sort(np.concatenate(held)), range(1437))
  table = pd.read_csv(tmp_path / 'partition.csv', index_col='client')
  assert list(table.columns) == [str(digit) for digit in range(10)]
  assert list(table.index) == [f'client_{k:05d}' for k in range(6)]
  held = pd.Series(run.source.train.labels[split_of['examples']])
  owners = np.repeat(range(6), np.diff(split_of['offsets']))
  expected = held.groupby(owners).value_counts().unstack(fill_value=0)
  assert table.to_numpy().tolist() == expected.to_numpy().tolist()


@pytest.fixture(scope='module')
def half_labelled(tmp_path_factory):
  """Twelve writers with 30 examples of 3 classes each, half without labels."""
  folder = tmp_path_factory.mktemp('half_labelled')
  rng = np.random.default_rng(0)
  labels = np.arange(360) // 12 % 3
  labels[rng.permutation(360)[:180]] = -1
  images = rng.integers(0, 256, (360, 6, 6), np.uint8)
  ids = np.arange(360) % 12
  np.savez(folder / 'train.npz', images=images, labels=labels, client_ids=ids)
  np.savez(folder / 'test.npz', images=images[:9], labels=np.arange(9) % 3)
  return {'dataset': 'npz', 'data_dir': str(folder)}


@pytest.mark.parametrize('partition', [None, 'r', 'pooled'])
@pytest.mark.parametrize('process', ['fedavg', 'fsl', 'fedlabel'])
def test_labels_that_clients_lack_are_the_mask(
  prepare, half_labelled, tmp_path, process, partition
):
  given = {} if partition is None else {'partition': partition}
  run = prepare(process, **half_labelled, mask_ratio=0.0, **given)
  assert run.partition.name == (partition or 'native')
  part = stores.read(run.store, 0)
  np.testing.assert_array_equal(part.y, part.true_y)
  facts = run.describe()
  assert facts['labelled_client_examples'] == 180
  assert facts['examples'] == 360
  assert not [name for name in facts if 'mismatch' in name]
  said = labels_in_records(run, tmp_path)
  assert (said['labelled'], said['unlabelled']) == (180, 180)


R = {'partition': 'r'}
LACK = '180 training images without a label'


@pytest.mark.parametrize(
  'process, given, parts',
  [
    ('fedlabel', {'mask_ratio': 0.7}, ['=0.7', '180 of', '--mask_ratio=0 ']),
    (
      'fsl',
      {'mask_ratio': 0.5, 'mask': 'redrawn'},
      ['=0.5', '180 of', '--mask_ratio=0 '],
    ),
    ('fedavg', {**R, 'noniid_r': 0.4}, [LACK, '--noniid_r=0', 'native']),
    ('fedavg', {'partition': 'dirichlet'}, [LACK, '--noniid_r=0']),
    ('fedul', {}, [LACK, '--partition']),
    ('fedavg', {**R, 'split': '80_5_15'}, ["split='80_5_15' would test on"]),
    ('fedavg', {**R, 'split': '80_20'}, ["split='80_20' would validate on"]),
    ('grouping', {'server_examples': 300}, ['server_examples=300', 'class']),
  ],
)
def test_what_needs_the_class_of_each_image_is_refused(
  prepare, half_labelled, process, given, parts, refusal
):
  with refusal(*parts):
    prepare(process, **half_labelled, **given)


@pytest.mark.parametrize('process', ['fedlabel', 'ssjo'])
def test_a_default_mask_hides_nothing_more(prepare, half_labelled, process):
  run = prepare(process, **half_labelled)
  assert run.describe()['labelled_client_examples'] == 180
  assert run.redrawn_ratio is None
  (note,) = run.notes
  assert '180' in note and '--mask_ratio=0.' in note
  assert note in description.lines_of_data(run)
  masked = prepare(process)
  assert masked.notes == ()
  assert masked.describe()['labelled_client_examples'] < 300


@pytest.fixture
def with_server(tmp_path):
  """Digits of 20 writers without labels, and 40 of the server."""
  digits = sklearn_datasets.load_digits()
  images = np.uint8(digits.images * 255 / 16)
  owners = np.arange(1000) % 20
  np.savez(tmp_path / 'train', images=images[:1000], client_ids=owners)
  parts = {'server': slice(1000, 1040), 'test': slice(1100, 1200)}
  for name, part in parts.items():
    np.savez(tmp_path / name, images=images[part], labels=digits.target[part])
  given = {'dataset': 'npz', 'data_dir': str(tmp_path)}
  return given, images[1000:1040], digits.target[1000:1040]


def test_the_server_has_what_its_file_has(prepare, with_server):
  given, images, labels = with_server
  run = prepare(**given)
  facts = run.describe()
  assert (facts['server_examples'], facts['clients']) == (40, 20)
  assert facts['examples'] == 1000
  server = stores.read(run.store, 'server')
  order = run.partition.server_indices - 1000
  np.testing.assert_array_equal(server.examples[..., 0], images[order])
  np.testing.assert_array_equal(server.y, labels[order])
  lines = description.lines_of_data(run)
  assert any('those that the data give to the server' in x for x in lines)
  with pytest.raises(ValueError, match='server_examples=30 has no effect'):
    prepare(**given, server_examples=30)
  with pytest.raises(ValueError, match="none of the clients' 1,000 examples"):
    prepare('fedavg', **given)
  with pytest.raises(ValueError, match="split='80_20' does not fit npz"):
    prepare(**given, split='80_20', partition='r')


def test_r6_what_has_changed_is_named(prepare, with_server):
  given, images, labels = with_server
  path = pathlib.Path(given['data_dir'], 'server.npz')

  def fingerprint():
    found = prepare(**given).digests().items()
    return {name: f'{checkpoints.SHA256}{digest}' for name, digest in found}

  before = fingerprint()
  np.savez(path, images=images, labels=(labels + 1) % 10)
  with pytest.raises(checkpoints.FingerprintMismatch) as caught:
    checkpoints.check_fingerprint(before, fingerprint())
  _, _, *rows = str(caught.value).splitlines()
  assert [' '.join(row.split()) for row in rows] == [
    'labels of server as it was changed'
  ]


@pytest.mark.parametrize('given', [{}, {'mask_ratio': 0.5, 'mask': 'fixed'}])
def test_balanced_class_weights(prepare, given):
  run = prepare('fedavg', num_clients=6, **given)
  partition, labels = run.partition, run.source.train.labels
  seen = partition.labelled_indices if given else partition.examples
  counts = np.bincount(labels[seen], minlength=10)
  weights = counts.sum() / (10 * counts)
  assert run.balanced_class_weights() == pytest.approx(weights)
  grouping = prepare(num_clients=6, server_examples=30)
  # As many of each class.
  assert grouping.balanced_class_weights() == pytest.approx([1] * 10)
  # A class that nobody has a label of.
  lost = np.where(labels == 3, 4, labels)
  train = dataclasses.replace(run.source.train, labels=lost)
  source = dataclasses.replace(run.source, train=train)
  with pytest.raises(UsageError, match="balanced needs .*'3' has none"):
    dataclasses.replace(run, source=source).balanced_class_weights()
