"""Data in sets: what runs train on, and what their folders keep of it."""

import json
import types

import numpy as np
import pytest
import stores

from experiments.config import settings
from experiments.preparing import building, data, description, run_data

HAS_PICTURES = True


@pytest.fixture(scope='module')
def cache_dir(tmp_path_factory):
  return str(tmp_path_factory.mktemp('cache'))


def prepare(cache_dir, process='fedul', **given):
  made = settings.make(
    {'process': process, 'dataset': 'digits', 'cache_dir': cache_dir, **given}
  )
  return data.prepare(made)


def test_set_data_and_their_records(cache_dir, tmp_path, capsys):
  run = prepare(cache_dir, priors='noniid', num_clients=3)
  part = stores.read(run.store, 1)
  own = slice(*run.partition.offsets[1:3])
  np.testing.assert_array_equal(part.y, run.partition.set_ids[own])
  facts = run.describe()
  assert facts['labelled_client_examples'] == 0
  assert facts['sets_of_each_client'] == [10] * 3
  assert facts['condition_numbers'] == pytest.approx(
    [np.linalg.cond(one) for one in run.partition.class_priors]
  )
  json.dumps(facts)
  run_data.write_records(run, types.SimpleNamespace(path=tmp_path))
  said = json.loads((tmp_path / 'split.json').read_text())
  assert said['labels']['labels_at'] == 'sets'
  assert said['arguments']['priors'] == 'noniid'
  told = '\n'.join(description.lines_of_data(run))
  assert 'Partition u_sets: ' in told and 'condition numbers' in told


def test_supervised_clients_see_labels_of_the_same_sets(cache_dir):
  given = {'partition': 'u_sets', 'priors': 'noniid'}
  sets = prepare(cache_dir, priors='noniid')
  plain = prepare(cache_dir, 'fedavg', **given)
  assert plain.partition.digest() == sets.partition.digest()
  part = stores.read(plain.store, 0)
  np.testing.assert_array_equal(part.y, part.true_y)
  tenth = prepare(cache_dir, 'fedavg', labelled_fraction=0.1, **given)
  np.testing.assert_array_equal(
    tenth.partition.examples, sets.partition.examples
  )
  sizes = tenth.partition.client_sizes
  assert tenth.describe()['labelled_client_examples'] == sum(
    int(n - int(0.9 * n)) for n in sizes
  )


def test_the_last_fifth_validates(cache_dir):
  run = prepare(cache_dir, split='80_20_uniform')
  assert run.describe()['validation_examples'] == 1437 // 5
  assert run.source.version.endswith('-80_20-uniform-seed0')
  counts = np.bincount(run.source.test.labels)
  assert np.ptp(counts) == 0
  other = prepare(cache_dir, split='80_20')
  assert other.describe()['test_examples'] == 360
  np.testing.assert_array_equal(
    run.source.train.labels, other.source.train.labels
  )


def test_readers_of_both_kinds(cache_dir):
  sets = prepare(cache_dir)
  assert 'class_priors=float32[10,10]' in str(
    building.build_reader(sets).type_signature
  )
  plain = prepare(cache_dir, 'fedavg', partition='u_sets')
  assert 'context' not in str(building.build_reader(plain).type_signature)


@pytest.mark.runs
def test_mnist_in_sets(data_dir, cache_dir):
  """The whole of MNIST, 80% of it for training, as in Appendix D."""
  run = prepare(
    cache_dir,
    dataset='mnist',
    data_dir=data_dir,
    split='80_20_uniform',
    u_set_recipe='code',
    sets_per_client='20',
  )
  facts = run.describe()
  assert facts['validation_examples'] == 12_000
  # By the authors' code it is 4,696.
  assert facts['median_examples'] == pytest.approx(4696, rel=5e-3)
