"""The partitions by name: who gets what under a seed, and what is refused."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from datasets import partitions
from datasets.source import Source, Split


def _source(labels, client_ids=None, num_classes=None):
  labels = np.asarray(labels, np.int32)
  split = Split(
    images=np.zeros((len(labels), 1, 1, 1), np.uint8),
    labels=labels,
    client_ids=None if client_ids is None else np.array(client_ids, object),
  )
  return Source(
    name='tiny',
    version='1',
    title='',
    train=split,
    test=split,
    num_classes=num_classes or int(labels.max()) + 1,
    mean=(0.5,),
    stddev=(0.5,),
    background=0,
    mirrorable=False,
  )


def _digits(writers=None):
  labels = load_digits().target
  ids = None
  if writers:
    rng = np.random.default_rng(3)
    ids = [f'writer {w}' for w in rng.integers(writers, size=len(labels))]
  return _source(labels, ids)


@pytest.mark.parametrize('server_examples', [0, 1, 10, 103, 500])
def test_server_set_is_class_uniform(server_examples):
  source = _digits()
  for name, others in (('pooled', {}), ('r', _r(num_clients=10))):
    partition = partitions.build(
      name, source, server_examples=server_examples, seed=3, **others
    )
    at_server = source.train.labels[partition.server_indices]
    counts = np.bincount(at_server, minlength=10)
    assert counts.sum() == server_examples
    assert np.ptp(counts) == (1 if server_examples % 10 else 0)
    assert len(partition.examples) == 1797 - server_examples
    if server_examples == 500:  # Not sorted by class.
      assert len(np.unique(at_server[:50])) == 10


def _r(num_clients, noniid_r=0.4):
  return {'num_clients': num_clients, 'noniid_r': noniid_r}


def test_a_seed_fixes_the_partition():
  source = _digits()
  build = lambda seed, **others: partitions.build(
    'r', source, server_examples=100, seed=seed, **{**_r(10), **others}
  )
  assert build(4).digest() == build(4).digest()
  assert build(4).digest() != build(5).digest()
  # The server set is that of the seed, whatever the clients look like.
  np.testing.assert_array_equal(
    build(4).server_indices, build(4, num_clients=20).server_indices
  )
  assert set(build(4).server_indices) != set(build(5).server_indices)


# Stores and run folders go by these: made with the code as it was before there
# were partitions into sets.
@pytest.mark.parametrize(
  'name, arguments, digest',
  [
    ('r', _r(5), '9e1c6320bbc82dcf'),
    (
      'dirichlet',
      {'num_clients': 5, 'dirichlet_alpha': 0.5},
      '93ea24bf0873c3fc',
    ),
    ('native', {'server_writers': 'everyone'}, '5f4c66d5d633b6e8'),
    ('native', {'server_writers': 'held_out'}, 'da4daac8d623b830'),
    ('pooled', {'mask_ratio': 0.5, 'server_examples': 0}, 'a630884da60254be'),
  ],
)
def test_digests_do_not_change(name, arguments, digest):
  source = _source(np.arange(600) % 7, [f'w{i % 30}' for i in range(600)])
  partition = partitions.build(
    name, source, **{'seed': 3, 'server_examples': 14, **arguments}
  )
  assert partition.digest().startswith(digest)


def test_sets_have_a_door_of_their_own():
  with pytest.raises(ValueError, match='set_partitions.build'):
    partitions.build('u_sets', _digits(), seed=0, num_clients=5)


def test_a_seed_does_not_depend_on_the_hash_seed():
  program = (
    'import numpy as np; from datasets import partitions as p;'
    'ids = np.array([f"w{i % 40}" for i in range(900)], object);'
    'held = p.native_partition(ids, np.arange(900) % 9, 9, server_examples=45,'
    ' seed=1, num_clients=20);'
    'print(held.client_names, held.examples.tolist());'
    'import sys; assert "tensorflow" not in sys.modules'
  )
  outputs = {
    subprocess.run(
      [sys.executable, '-c', program],
      cwd=pathlib.Path(partitions.__file__).parents[1],
      env={'PYTHONHASHSEED': hash_seed},
      capture_output=True,
      check=True,
      timeout=60,
    ).stdout
    for hash_seed in ('1', '2')
  }
  assert len(outputs) == 1


@pytest.mark.parametrize('server_writers', ['spread', 'held_out'])
def test_held_out_writers_never_take_part(server_writers):
  source = _digits(writers=60)
  partition = partitions.build(
    'native',
    source,
    server_examples=100,
    seed=6,
    server_writers=server_writers,
  )
  held_out = set(partition.held_out_client_names)
  assert held_out
  assert not held_out & set(partition.client_names)
  ids = source.train.client_ids
  assert set(ids[partition.server_indices]) <= held_out
  assert not set(ids[partition.examples]) & held_out
  for client, name in enumerate(partition.client_names):
    np.testing.assert_array_equal(
      np.sort(partition.client_indices(client)), np.flatnonzero(ids == name)
    )
  assert list(partition.client_names) == sorted(set(ids) - held_out)
  counts = np.bincount(source.train.labels[partition.server_indices])
  assert counts.tolist() == [10] * 10
  assert len(held_out) < 10


def test_each_held_out_writer_was_needed():
  # Each writer has one class: 4 classes need exactly 4 of 40 writers.
  source = _source(np.arange(400) % 4, [f'{i % 40:02d}' for i in range(400)])
  partition = partitions.build(
    'native', source, server_examples=20, seed=8, server_writers='held_out'
  )
  assert len(partition.held_out_client_names) == 4


@pytest.mark.parametrize(
  'writers, server_examples, held_out, of_a_class, of_a_writer',
  [
    # As many writers as a class has labels: 3 or 4.
    (60, 100, 4, 1, 25),
    # A tenth of the writers, rounded up.
    (60, 280, 6, 2, 47),
    (21, 280, 3, 4, 94),
    (5, 100, 1, 4, 100),
  ],
)
def test_server_labels_are_spread_over_held_out_writers(
  writers, server_examples, held_out, of_a_class, of_a_writer
):
  # Every writer has 5 examples of each of 28 classes and could serve alone.
  source = _source(
    np.arange(140 * writers) // writers % 28,
    [f'{i % writers:02d}' for i in range(140 * writers)],
  )
  partition = partitions.build(
    'native', source, server_examples=server_examples, seed=4
  )
  assert len(partition.held_out_client_names) == held_out
  server = partition.server_indices
  table = np.zeros((writers, 28), int)
  owner = source.train.client_ids[server].astype(int)
  np.add.at(table, (owner, source.train.labels[server]), 1)
  assert np.ptp(table.sum(axis=0)) == (1 if server_examples % 28 else 0)
  # Nobody gives more of a class, or in all, than equal shares make necessary.
  assert table.max() == of_a_class
  assert table.sum(axis=1).max() == of_a_writer


def test_more_writers_are_held_out_where_labels_are_short():
  # Class 0 is rare: each of 40 writers has one example of it and 9 of class 1.
  source = _source(
    (np.arange(400) // 40 > 0) + 0, [f'{i % 40:02d}' for i in range(400)]
  )
  partition = partitions.build('native', source, server_examples=20, seed=0)
  assert len(partition.held_out_client_names) == 10
  server = partition.server_indices
  assert np.bincount(source.train.labels[server]).tolist() == [10, 10]
  # Everybody gave an example of each class, not one all of class 1.
  assert set(np.bincount(source.train.client_ids[server].astype(int))) == {0, 2}


def test_writers_without_labels_are_not_held_out():
  labels = np.arange(400) // 20 % 4
  writers = np.arange(400) % 20
  labels[writers % 2 == 0] = -1
  source = _source(labels, [f'{w:02d}' for w in writers], 4)
  partition = partitions.build('native', source, server_examples=8, seed=0)
  assert [int(w) % 2 for w in partition.held_out_client_names] == [1, 1]


def test_server_examples_from_everyone():
  source = _digits(writers=60)
  partition = partitions.build(
    'native', source, server_examples=100, seed=6, server_writers='everyone'
  )
  assert partition.held_out_client_names == ()
  assert partition.num_clients == 60
  given = np.concatenate([partition.server_indices, partition.examples])
  np.testing.assert_array_equal(np.sort(given), np.arange(1797))
  assert len(set(source.train.client_ids[partition.server_indices])) > 30


def test_a_subset_of_native_clients():
  source = _digits(writers=60)
  build = lambda seed, k: partitions.build(
    'native', source, server_examples=10, seed=seed, num_clients=k
  )
  some = build(1, 20)
  everyone = build(1, None)
  assert some.num_clients == 20
  assert set(some.client_names) < set(everyone.client_names)
  assert some.client_names != build(2, 20).client_names
  np.testing.assert_array_equal(some.server_indices, everyone.server_indices)


def test_3400_native_clients():
  rng = np.random.default_rng(0)
  ids = [f'f{w:04d}_{w % 50:02d}' for w in range(3400)]
  owners = np.repeat(ids, 30)
  source = _source(rng.integers(62, size=len(owners)), owners.tolist())
  partition = partitions.build('native', source, server_examples=620, seed=0)
  assert partition.num_clients + len(partition.held_out_client_names) == 3400
  assert (partition.client_sizes == 30).all()


def test_hostile_ids_stay_apart():
  ids = [
    'a',
    'a\x00',
    'a|b',
    '../../x',
    "'; drop",
    '\n',
    'é',
    'e\u0301',
    '\ud800',
  ]
  ids += ['x' * 10_000, '']
  source = _source(np.arange(110) % 5, [ids[i % 11] for i in range(110)])
  partition = partitions.build('native', source, server_examples=0, seed=0)
  assert list(partition.client_names) == sorted(ids)
  for client, name in enumerate(partition.client_names):
    assert set(partition.client_indices(client) % 11) == {ids.index(name)}


@pytest.mark.parametrize(
  ('name', 'arguments', 'error', 'message'),
  [
    ('q', {}, ValueError, r"partition='q'.*native.*pooled.*r"),
    ('native', {}, ValueError, '--partition=r'),
    ('r', {'num_clients': 5}, ValueError, 'noniid_r=None'),
    ('r', {'noniid_r': 0.5}, ValueError, 'num_clients=None'),
    ('r', _r(5, 1.5), ValueError, r'noniid_r=1.5.*\[0, 1\]'),
    ('r', _r(5, -0.1), ValueError, r'noniid_r=-0.1.*\[0, 1\]'),
    ('r', _r(5, float('nan')), ValueError, 'noniid_r=nan'),
    ('r', _r(5, '1'), TypeError, "noniid_r='1'"),
    ('r', _r(0), ValueError, 'num_clients=0.*at least 1'),
    ('r', _r(2.0), TypeError, 'num_clients=2.0'),
    ('r', _r(1788), ValueError, 'num_clients=1788.*1787'),
    ('r', {**_r(5), 'seed': -1}, ValueError, 'seed=-1'),
    ('r', {**_r(5), 'seed': True}, TypeError, 'seed=True'),
    ('r', {**_r(5), 'server_examples': -1}, ValueError, 'server_examples=-1'),
    (
      'r',
      {**_r(5), 'server_examples': 1797},
      ValueError,
      'server_examples=1797',
    ),
    (
      'r',
      {**_r(5), 'server_examples': 1740},
      ValueError,
      'server_examples=1740',
    ),
    ('r', {**_r(5), 'server_examples': 1750}, ValueError, 'class 8.*only 174'),
    (
      'r',
      {**_r(5), 'server_writers': 'held_out'},
      ValueError,
      'server_writers',
    ),
    ('pooled', {'num_clients': 2}, ValueError, 'num_clients=2'),
    ('pooled', {'noniid_r': 0.4}, ValueError, 'noniid_r=0.4.*--partition=r'),
  ],
)
def test_bad_arguments(name, arguments, error, message):
  with pytest.raises(error, match=message):
    partitions.build(
      name, _digits(), **{'server_examples': 10, 'seed': 0, **arguments}
    )


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'server_writers': 'some'}, "server_writers='some'"),
    ({'num_clients': 61}, 'num_clients=61'),
    ({'server_examples': 1740}, 'holds out all|lower it'),
  ],
)
def test_bad_native_arguments(arguments, message):
  source = _digits(writers=60)
  with pytest.raises(ValueError, match=message):
    partitions.build(
      'native', source, **{'server_examples': 10, 'seed': 0, **arguments}
    )


def test_a_class_left_without_examples():
  source = _source([0] * 5 + [1] * 50)
  arguments = {**_r(2), 'seed': 0}
  with pytest.raises(ValueError, match='no example of class 0'):
    partitions.build('r', source, server_examples=10, **arguments)
  partition = partitions.build('r', source, server_examples=8, **arguments)
  assert len(partition.examples) == 47


def test_bad_sources():
  labels = np.array([0, 1, 5])
  with pytest.raises(ValueError, match='from 0 to 5.*outside'):
    partitions.build(
      'pooled', _source(labels, num_classes=3), server_examples=0, seed=0
    )
  with pytest.raises(ValueError, match='no training examples'):
    partitions.build(
      'pooled', _source([], num_classes=3), server_examples=0, seed=0
    )
  with pytest.raises(TypeError, match='client_ids holds 7'):
    partitions.build(
      'native', _source([0, 1], ['a', 7]), server_examples=0, seed=0
    )


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'examples': np.array([0, 1, 1, 2])}, 'example 1 .*more than once'),
    ({'examples': np.array([0, 1, 2, 99])}, 'from 0 to 99'),
    ({'offsets': np.array([0, 2, 3])}, 'offsets'),
    ({'offsets': np.array([0, 4])}, 'offsets'),
    ({'client_names': ('a',)}, 'offsets'),
  ],
)
def test_an_inconsistent_partition_is_refused(changes, message):
  sound = partitions.build(
    'r', _source([0, 0, 1, 1]), server_examples=0, seed=0, **_r(2, 0.0)
  )
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(sound, **changes)


def test_no_such_client():
  partition = partitions.build('pooled', _digits(), server_examples=0, seed=0)
  with pytest.raises(ValueError, match='client=1'):
    partition.client_indices(1)
