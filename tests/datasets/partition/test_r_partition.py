"""The R-partition against numbers worked by hand from the paper's equations."""

import numpy as np
import pytest

from datasets.partition.class_skew import r_partition
from datasets.records import partition_report


@pytest.fixture
def split(source_of):
  """A function from labels to a partition, by default without a server."""

  def build(labels, num_clients, noniid_r, server_examples=0, seed=5):
    return r_partition(
      source_of(labels),
      num_clients=num_clients,
      noniid_r=noniid_r,
      server_examples=server_examples,
      seed=seed,
    )

  return build


def _counts(held, labels, num_classes):
  of_example = labels[held.examples], held.owners
  return partition_report.class_counts(
    *of_example, held.num_clients, num_classes
  )


def _pairs_of_one_main_class(num_clients, holders):
  same = sum(m * (m - 1) for m in holders)
  return same / (num_clients * (num_clients - 1))


def test_eq_9_worked_by_hand(split):
  # 70 and 50 examples, 10 of each at the server: n = (60, 40), q = (.6, .4).
  # Client 0: 60*.5 + 60*.6*.5 = 48 of class 0, 40*.6*.5 = 12 of class 1.
  # Client 1: 60*.4*.5 = 12 of class 0, 40*.5 + 40*.4*.5 = 28 of class 1.
  labels = np.repeat([0, 1], [70, 50])
  held = split(labels, num_clients=2, noniid_r=0.5, server_examples=20)
  np.testing.assert_array_equal(_counts(held, labels, 2), [[48, 12], [12, 28]])
  np.testing.assert_array_equal(
    np.bincount(labels[held.server_indices]), [10, 10]
  )


def test_several_clients_share_a_main_class(split):
  # n = (100, 50), K = 3: m = (2, 1), so that all clients have 50 examples.
  # R = .4; clients 0, 1: 100*.4/2 + 100*(2/3)*.6/2 = 40, 50*(2/3)*.6/2 = 10;
  # client 2: 100*(1/3)*.6 = 20, 50*.4 + 50*(1/3)*.6 = 30.
  labels = np.repeat([0, 1], [100, 50])
  held = split(labels, num_clients=3, noniid_r=0.4)
  np.testing.assert_array_equal(
    _counts(held, labels, 2), [[40, 10], [40, 10], [20, 30]]
  )


def test_fewer_clients_than_classes_share_them_out(split):
  # n = (40, 30, 20, 10), K = 2: client 0 gets classes 0 and 3, client 1 the
  # others; Q = (.5, .5). R = .5: of its own classes a client gets 3/4, of the
  # others 1/4. Half an example (class 1: 22.5, 7.5; class 3: 7.5, 2.5) may go
  # either way.
  labels = np.repeat(np.arange(4), [40, 30, 20, 10])
  held = split(labels, num_clients=2, noniid_r=0.5)
  exact = np.array([[30, 7.5, 5, 7.5], [10, 22.5, 15, 2.5]])
  assert np.abs(_counts(held, labels, 4) - exact).max() <= 0.5


@pytest.mark.parametrize('noniid_r', [0.0, 0.4, 1.0])
@pytest.mark.parametrize('num_clients', [1, 3, 5, 10, 20, 47])
@pytest.mark.parametrize('unequal', [False, True])
def test_counts_follow_the_equations(split, num_clients, noniid_r, unequal):
  num_classes = 10
  sizes = np.full(10, 2000)
  if unequal:
    sizes = np.array([9, 25, 13, 17, 40, 10, 21, 19, 30, 16]) * 100
  labels = np.random.default_rng(0).permutation(
    np.repeat(np.arange(num_classes), sizes + 10)
  )
  held = split(labels, num_clients, noniid_r, server_examples=100, seed=7)
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
    assert partition_report.noniid_r(counts) == pytest.approx(
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


@pytest.mark.parametrize('noniid_r', [0.0, 0.4, 1.0])
def test_ten_classes_ten_clients_measure_r_exactly(split, noniid_r):
  labels = np.repeat(np.arange(10), 1000)
  counts = _counts(split(labels, 10, noniid_r, seed=1), labels, 10)
  assert partition_report.noniid_r(counts) == pytest.approx(noniid_r)


def test_the_paper_s_470_users(split):
  # EMNIST of the paper: 47 classes of 2,400, N_s = 4,700; users have 230
  # images each. Same-class pairs take 47*45 of 470*469/2 pairs off R.
  labels = np.tile(np.arange(47), 2400)
  held = split(labels, 470, noniid_r=0.4, server_examples=4700, seed=2019)
  counts = _counts(held, labels, 47)
  assert counts.sum() == 112800 - 4700
  assert abs(held.client_sizes - 230).max() <= 3
  expected = 0.4 * (1 - _pairs_of_one_main_class(470, [10] * 47))
  assert partition_report.noniid_r(counts) == pytest.approx(expected, abs=0.015)


def test_every_r_client_is_shuffled(split):
  labels = np.repeat(np.arange(10), 100)
  held = split(labels, num_clients=10, noniid_r=0, seed=1)
  for client in range(10):
    assert len(np.unique(labels[held.client_indices(client)][:30])) > 5
