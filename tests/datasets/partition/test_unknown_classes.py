"""Examples of classes that the server does not have: whose, and how many."""

import dataclasses

import numpy as np
import pytest
import stores

from datasets.partition import partitions, unknown_classes
from datasets.sources.source import UNKNOWN, Source, Split
from datasets.store import client_store

DIVISIONS = {
  'r': {'noniid_r': 0.4},
  'dirichlet': {'dirichlet_alpha': 1.0, 'min_client_examples': 10},
}


@pytest.fixture(scope='module')
def source():
  """400 examples of four classes, in turn; each image is its number."""
  images = np.arange(400, dtype=np.uint16).view(np.uint8).reshape(-1, 1, 2, 1)
  whole = Split(images, (np.arange(400) % 4).astype(np.int32))
  return Source(
    *('made', '1', '', whole, whole.part(slice(8)), 4, (0.5,), (0.5,)),
    validation=whole.part(slice(4)),
    names=('a', 'b', 'c', 'd'),
  )


def _numbers(split):
  return split.examples.reshape(-1, 2).view(np.uint16).ravel()


def _divided(source, name, unknown_share, seed=0):
  return partitions.build(
    name,
    unknown_classes.take_out(source, 2),
    seed=seed,
    server_examples=8,
    num_clients=5,
    unknown_share=unknown_share,
    **DIVISIONS[name],
  )


def test_only_unlabelled_examples_of_clients_are_of_the_last_classes(source):
  left = unknown_classes.take_out(source, 2)
  assert (left.num_classes, left.names) == (2, ('a', 'b'))
  classes = _numbers(left.train) % 4
  # The known ones come first; each example is still there.
  assert (classes[:200] < 2).all() and (classes[200:] >= 2).all()
  assert sorted(_numbers(left.train).tolist()) == list(range(400))
  np.testing.assert_array_equal(left.train.labels[:200], classes[:200])
  np.testing.assert_array_equal(left.train.labels[200:], UNKNOWN)
  assert _numbers(left.test).tolist() == [0, 1, 4, 5]
  assert _numbers(left.validation).tolist() == [0, 1]
  assert left.version != unknown_classes.take_out(source, 1).version
  assert unknown_classes.take_out(source, None) is source


@pytest.mark.parametrize('name', DIVISIONS)
def test_each_client_has_the_share_and_all_else_stays(source, name, tmp_path):
  left = unknown_classes.take_out(source, 2)
  without = _divided(source, name, 0.0)
  assert (left.train.labels[without.examples] >= 0).all()
  for share, odds in ((0.2, 1 / 4), (0.5, 1)):
    held = _divided(source, name, share)
    np.testing.assert_array_equal(held.server_indices, without.server_indices)
    assert held.digest() == _divided(source, name, share).digest()
    assert held.digest() != without.digest()
    store = client_store.build(
      left, held, cache_dir=tmp_path, labelled='server'
    )
    for client in range(5):
      mine = held.client_indices(client)
      is_known = left.train.labels[mine] >= 0
      known = without.client_indices(client)
      assert set(mine[is_known].tolist()) == set(known.tolist())
      assert (~is_known).sum() == round(len(known) * odds)
      # Nothing that trains or measures is told a label of theirs.
      part = stores.read(store, client)
      assert (part.y == UNKNOWN).all()
      np.testing.assert_array_equal(part.true_y[~is_known], UNKNOWN)
    assert (stores.read(store, 5).y >= 0).all()


def test_a_seed_fixes_whose_they_are(source):
  first, other = (_divided(source, 'r', 0.2, seed=seed) for seed in (0, 1))
  of_unknown = [
    set(held.examples[held.examples >= 200].tolist()) for held in (first, other)
  ]
  assert of_unknown[0] != of_unknown[1]


@pytest.mark.parametrize('number, left', [(3, 1), (4, 0), (9, 0)])
def test_too_few_known_classes(source, number, left):
  said = f'unknown_classes={number} leaves {left} of the 4.*give at most 2'
  with pytest.raises(ValueError, match=said):
    unknown_classes.take_out(source, number)


def test_classes_that_nobody_knows(source):
  labels = source.train.labels.copy()
  labels[3] = UNKNOWN
  train = dataclasses.replace(source.train, labels=labels)
  with pytest.raises(ValueError, match='unknown_classes=1 needs.*leave it out'):
    unknown_classes.take_out(dataclasses.replace(source, train=train), 1)


def test_shares_that_cannot_be(source):
  with pytest.raises(ValueError, match='unknown_share=0.9 asks for.*are 200'):
    _divided(source, 'r', 0.9)
  with pytest.raises(ValueError, match='unknown_share must be.*1.0'):
    _divided(source, 'r', 1.0)
  owned = dataclasses.replace(
    source,
    train=dataclasses.replace(
      source.train, client_ids=np.array(['one', 'other'] * 200, object)
    ),
  )
  with pytest.raises(ValueError, match="unknown_share=0.2.*'native'.*=r"):
    partitions.build(
      'native',
      unknown_classes.take_out(owned, 2),
      seed=0,
      server_examples=8,
      server_writers='everyone',
      unknown_share=0.2,
    )
