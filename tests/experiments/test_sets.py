"""Runs on sets: flags, defaults and refusals, and what a run folder keeps."""

import dataclasses
import json
import types

import numpy as np
import pytest
from PIL import Image

from datasets.store import client_store
from experiments.config import settings
from experiments.config.usage import UsageError
from experiments.preparing import building, data, description
from tff_ssl import algorithms
from tff_ssl.algorithms import PROCESSES

HAS_PICTURES = True
IN_SETS = dataclasses.replace(
  PROCESSES['fedavg'], name='in_sets', labels_at='sets'
)


@pytest.fixture(autouse=True)
def process_in_sets(monkeypatch):
  """Adds a process that sees sets in place of labels."""
  known = {**PROCESSES, 'in_sets': IN_SETS}
  monkeypatch.setattr(algorithms, 'PROCESSES', known)
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


@pytest.fixture(scope='module')
def cache_dir(tmp_path_factory):
  return str(tmp_path_factory.mktemp('cache'))


def make(process='in_sets', dataset='digits', **given):
  return settings.make({'process': process, 'dataset': dataset, **given})


def prepare(cache_dir, process='in_sets', **given):
  made = make(process, cache_dir=cache_dir, **given)
  spec = {**PROCESSES, 'in_sets': IN_SETS}[process]
  return data.prepare(data.DataRequest.of_run(made, spec.labels_at))


def test_defaults_are_those_of_section_4():
  made = make()
  assert (made.partition, made.num_clients) == ('u_sets', 5)
  assert (made.clients_per_round, made.sets_per_client) == (5, '10')
  assert (made.priors, made.u_set_recipe) == ('iid', 'paper')
  assert (made.set_repeats, made.known_priors) == ('none', 'exact')
  assert made.prior_noise == 0 and made.client_examples is None
  assert make(u_set_recipe='code').set_repeats == 'across_sets'
  assert make(num_clients=50).clients_per_round == 50
  assert make('fedavg').partition == 'r'
  assert make('fedavg', partition='u_sets').num_clients == 5
  own = make(dataset='npz_sets')
  assert (own.partition, own.sets_per_client) == ('own_sets', None)
  assert own.prior_noise == 0


@pytest.mark.parametrize(
  'given, parts',
  [
    ({'partition': 'r'}, ['--partition=r lays no examples in sets']),
    ({'partition': 'pooled'}, ['--partition=pooled', 'process in_sets']),
    ({'partition': 'own_sets'}, ['--partition=own_sets', '--dataset=digits']),
    (
      {'dataset': 'npz_sets', 'partition': 'u_sets'},
      ['--partition=u_sets', '--dataset=npz_sets', '--partition=own_sets'],
    ),
    (
      {'process': 'grouping', 'partition': 'u_sets'},
      ['--partition=u_sets', 'no labels for the process grouping'],
    ),
    (
      {'process': 'grouping', 'dataset': 'image_sets'},
      ['--dataset=image_sets', 'process grouping'],
    ),
    (
      {'process': 'fedavg', 'dataset': 'image_sets'},
      ['--dataset=image_sets', 'labels of all clients'],
    ),
    ({'dataset': 'stl10'}, ['--dataset=stl10', 'no label']),
    ({'dataset': 'npz_sets', 'split': '80_20'}, ['--split=80_20', 'in sets']),
    ({'split': '80_02'}, ['--split=80_02', "'80_20'?"]),
    ({'sets_per_client': '10,x'}, ['--sets_per_client=10,x']),
    ({'sets_per_client': '10,20'}, ['--sets_per_client=10,20', '5 clients']),
    ({'client_examples': 0}, ['--client_examples=0', '>= 1']),
    ({'prior_noise': -0.1}, ['--prior_noise=-0.1', '>= 0']),
    (
      {'process': 'fedavg', 'partition': 'u_sets', 'prior_noise': 0.4},
      ['--prior_noise=0.4 has no effect', 'process fedavg see labels'],
    ),
    (
      {'process': 'fedavg', 'partition': 'u_sets', 'known_priors': 'nominal'},
      ['--known_priors=nominal has no effect', 'no class priors'],
    ),
    ({'priors': 'nonid'}, ['--priors=nonid', "'noniid'?"]),
    ({'process': 'fedavg', 'priors': 'iid'}, ['--priors=iid', '--partition=r']),
    (
      {'dataset': 'npz_sets', 'known_priors': 'exact'},
      ['--known_priors=exact', '--partition=own_sets'],
    ),
    ({'mask_ratio': 0.5}, ['--mask_ratio=0.5', 'process in_sets']),
  ],
)
def test_refusals(given, parts):
  with pytest.raises(UsageError) as caught:
    make(**given)
  text = str(caught.value)
  assert '\n' not in text
  for part in parts:
    assert part in text


def test_set_data_and_their_records(cache_dir, tmp_path, capsys):
  run = prepare(cache_dir, priors='noniid', num_clients=3)
  part = client_store.read_numpy(run.store, 1)
  own = slice(*run.partition.offsets[1:3])
  np.testing.assert_array_equal(part.y, run.partition.set_ids[own])
  facts = run.describe()
  assert facts['labelled_client_examples'] == 0
  assert facts['sets_of_each_client'] == [10] * 3
  assert facts['condition_numbers'] == pytest.approx(
    [np.linalg.cond(one) for one in run.partition.class_priors]
  )
  json.dumps(facts)
  data.write_records(run, types.SimpleNamespace(path=tmp_path))
  said = json.loads((tmp_path / 'split.json').read_text())
  assert said['labels']['labels_at'] == 'sets'
  assert said['arguments']['priors'] == 'noniid'
  with Image.open(tmp_path / 'class_priors.png') as picture:
    assert picture.size == (960, 360)
  told = '\n'.join(description.lines_of_data(run))
  assert 'Partition u_sets: ' in told and 'condition numbers' in told


def test_supervised_clients_see_labels_of_the_same_sets(cache_dir):
  given = {'partition': 'u_sets', 'priors': 'noniid'}
  sets = prepare(cache_dir, priors='noniid')
  plain = prepare(cache_dir, 'fedavg', **given)
  assert plain.partition.digest() == sets.partition.digest()
  part = client_store.read_numpy(plain.store, 0)
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
