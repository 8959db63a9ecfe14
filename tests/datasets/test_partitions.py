"""The partitions, against numbers worked by hand from the paper's equations."""

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


def _counts(partition, labels, num_classes):
  return np.array(
    [
      np.bincount(labels[partition.client_indices(k)], minlength=num_classes)
      for k in range(partition.num_clients)
    ]
  )


def _measured_r(counts):
  """Definition 2: the mean total variation distance over all pairs."""
  p = counts / counts.sum(axis=1, keepdims=True)
  first, second = np.triu_indices(len(p), 1)
  return np.mean(np.abs(p[first] - p[second]).sum(axis=1) / 2)


def _pairs_of_one_main_class(num_clients, holders):
  same = sum(m * (m - 1) for m in holders)
  return same / (num_clients * (num_clients - 1))


def test_eq_9_worked_by_hand():
  # 70 and 50 examples, 10 of each at the server: n = (60, 40), q = (.6, .4).
  # Client 0: 60*.5 + 60*.6*.5 = 48 of class 0, 40*.6*.5 = 12 of class 1.
  # Client 1: 60*.4*.5 = 12 of class 0, 40*.5 + 40*.4*.5 = 28 of class 1.
  labels = np.repeat([0, 1], [70, 50])
  held = partitions.r_partition(
    labels, 2, num_clients=2, noniid_r=0.5, server_examples=20, seed=5
  )
  np.testing.assert_array_equal(_counts(held, labels, 2), [[48, 12], [12, 28]])
  np.testing.assert_array_equal(
    np.bincount(labels[held.server_indices]), [10, 10]
  )


def test_several_clients_share_a_main_class():
  # n = (100, 50), K = 3: m = (2, 1), so that all clients have 50 examples.
  # R = .4; clients 0, 1: 100*.4/2 + 100*(2/3)*.6/2 = 40, 50*(2/3)*.6/2 = 10;
  # client 2: 100*(1/3)*.6 = 20, 50*.4 + 50*(1/3)*.6 = 30.
  labels = np.repeat([0, 1], [100, 50])
  held = partitions.r_partition(
    labels, 2, num_clients=3, noniid_r=0.4, server_examples=0, seed=5
  )
  np.testing.assert_array_equal(
    _counts(held, labels, 2), [[40, 10], [40, 10], [20, 30]]
  )


def test_fewer_clients_than_classes_share_them_out():
  # n = (40, 30, 20, 10), K = 2: client 0 gets classes 0 and 3, client 1 the
  # others; Q = (.5, .5). R = .5: of its own classes a client gets 3/4, of the
  # others 1/4. Half an example (class 1: 22.5, 7.5; class 3: 7.5, 2.5) may go
  # either way.
  labels = np.repeat(np.arange(4), [40, 30, 20, 10])
  held = partitions.r_partition(
    labels, 4, num_clients=2, noniid_r=0.5, server_examples=0, seed=5
  )
  exact = np.array([[30, 7.5, 5, 7.5], [10, 22.5, 15, 2.5]])
  assert np.abs(_counts(held, labels, 4) - exact).max() <= 0.5


@pytest.mark.parametrize('noniid_r', [0.0, 0.4, 1.0])
@pytest.mark.parametrize('num_clients', [1, 3, 5, 10, 20, 47])
@pytest.mark.parametrize('unequal', [False, True])
def test_counts_follow_the_equations(num_clients, noniid_r, unequal):
  num_classes = 10
  sizes = np.full(10, 2000)
  if unequal:
    sizes = np.array(
      [900, 2500, 1300, 1700, 4000, 1000, 2100, 1900, 3000, 1600]
    )
  labels = np.random.default_rng(0).permutation(
    np.repeat(np.arange(num_classes), sizes + 10)
  )
  held = partitions.r_partition(
    labels,
    num_classes,
    num_clients=num_clients,
    noniid_r=noniid_r,
    server_examples=100,
    seed=7,
  )
  given = np.concatenate([held.server_indices, held.examples])
  np.testing.assert_array_equal(np.sort(given), np.arange(len(labels)))

  counts = _counts(held, labels, num_classes)
  q = sizes / sizes.sum()
  if num_clients >= num_classes:
    main = (counts / sizes).argmax(axis=1)
    if noniid_r == 0:  # No main class to be seen: clients come in its order.
      main = _expected_main_classes(sizes, num_clients)
    holders = np.bincount(main, minlength=num_classes)
    assert holders.min() >= 1
    if not unequal:
      assert np.ptp(holders) <= 1
    own = np.eye(num_classes)[main]
    exact = (
      noniid_r * own * sizes / holders
      + (1 - noniid_r) * sizes * (q[main] / holders[main])[:, np.newaxis]
    )
    expected_p = noniid_r * own + (1 - noniid_r) * q
    expected_r = noniid_r * (
      1 - _pairs_of_one_main_class(num_clients, holders)
      if num_clients > 1
      else 1
    )
  else:
    own = _dealt_classes(sizes, num_clients)
    part = (own @ q)[:, np.newaxis]
    exact = noniid_r * own * sizes + (1 - noniid_r) * sizes * part
    expected_p = noniid_r * own * q / part + (1 - noniid_r) * q
    expected_r = noniid_r
  assert np.abs(counts - exact).max() < 1
  p = counts / counts.sum(axis=1, keepdims=True)
  np.testing.assert_allclose(p, expected_p, atol=2 / counts.sum(axis=1).min())
  if num_clients > 1:
    assert _measured_r(counts) == pytest.approx(
      expected_r, abs=num_classes / counts.sum(axis=1).min() / 2
    )


def _expected_main_classes(sizes, num_clients):
  """Seats by Huntington-Hill, by sorting all priorities at once."""
  places = np.arange(1, num_clients)
  priority = sizes[:, np.newaxis] / np.sqrt(places * (places + 1))
  order = np.argsort(-priority.ravel(), kind='stable')
  extra = order[: num_clients - len(sizes)] // len(places)
  holders = 1 + np.bincount(extra, minlength=len(sizes))
  return np.repeat(np.arange(len(sizes)), holders)


def _dealt_classes(sizes, num_clients):
  own = np.zeros((num_clients, len(sizes)))
  load = [0] * num_clients
  for label in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
    poorest = load.index(min(load))
    own[poorest, label] = 1
    load[poorest] += sizes[label]
  return own


def test_ten_classes_ten_clients_measure_r_exactly():
  labels = np.repeat(np.arange(10), 1000)
  for noniid_r in (0.0, 0.4, 1.0):
    held = partitions.r_partition(
      labels, 10, num_clients=10, noniid_r=noniid_r, server_examples=0, seed=1
    )
    assert _measured_r(_counts(held, labels, 10)) == pytest.approx(noniid_r)


def test_the_paper_s_470_users():
  # EMNIST of the paper: 47 classes of 2,400, N_s = 4,700; users have 230
  # images each. Same-class pairs take 47*45 of 470*469/2 pairs off R.
  labels = np.tile(np.arange(47), 2400)
  held = partitions.r_partition(
    labels, 47, num_clients=470, noniid_r=0.4, server_examples=4700, seed=2019
  )
  counts = _counts(held, labels, 47)
  assert counts.sum() == 112800 - 4700
  assert abs(held.client_sizes - 230).max() <= 3
  expected = 0.4 * (1 - _pairs_of_one_main_class(470, [10] * 47))
  assert _measured_r(counts) == pytest.approx(expected, abs=0.015)


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


def test_every_r_client_is_shuffled():
  labels = np.repeat(np.arange(10), 100)
  held = partitions.r_partition(
    labels, 10, num_clients=10, noniid_r=0, server_examples=0, seed=1
  )
  for client in range(10):
    assert len(np.unique(labels[held.client_indices(client)][:30])) > 5


def test_held_out_writers_never_take_part():
  source = _digits(writers=60)
  partition = partitions.build('native', source, server_examples=100, seed=6)
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
  # No more writers than needed: without the last one drawn, a class is short.
  counts = np.bincount(source.train.labels[partition.server_indices])
  assert counts.tolist() == [10] * 10
  assert len(held_out) < 10


def test_each_held_out_writer_was_needed():
  # Each writer has one class: 4 classes need exactly 4 of 40 writers.
  source = _source(np.arange(400) % 4, [f'{i % 40:02d}' for i in range(400)])
  partition = partitions.build('native', source, server_examples=20, seed=8)
  assert len(partition.held_out_client_names) == 4


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
