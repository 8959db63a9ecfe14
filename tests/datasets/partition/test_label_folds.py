"""Folds of the labelled examples: what is held out, and that nobody has it."""

import collections
import dataclasses

import numpy as np
import pytest

from datasets.partition import label_folds, partitions
from datasets.sources.source import Source, Split
from datasets.store import client_store

DIVISIONS = {
  'server': ('r', {'noniid_r': 0.4, 'server_examples': 30}),
  'clients': ('dirichlet', {'dirichlet_alpha': 1.0, 'mask_ratio': 0.9}),
}


@pytest.fixture(scope='module')
def source():
  """300 examples of three classes; each image is its number."""
  images = np.arange(300, dtype=np.uint16).view(np.uint8).reshape(-1, 1, 2, 1)
  labels = (np.arange(300) % 3).astype(np.int32)
  train, test = Split(images, labels), Split(images[:3], labels[:3])
  return Source('made', '1', '', train, test, 3, (0.5,), (0.5,), 0, False)


def _divided(source, where, seed=0, **more):
  name, given = DIVISIONS[where]
  given = {'num_clients': 4, **given, **more}
  partition = partitions.build(name, source, seed=seed, **given)
  known = {
    'server': partition.server_indices,
    'clients': partition.labelled_indices,
  }
  return partition, known[where]


def _numbers(split):
  return split.examples.reshape(-1, 2).view(np.uint16).ravel().tolist()


@pytest.mark.parametrize('where', DIVISIONS)
def test_each_label_is_held_out_once(source, where, tmp_path):
  whole, known = _divided(source, where)
  held = collections.Counter()
  for fold in ('1of5', '2of5', '3of5', '4of5', '5of5'):
    cut, partition = label_folds.hold_out(source, whole, known, fold)
    own = _numbers(cut.validation)
    held.update(own)
    assert cut.validation.labels.tolist() == [n % 3 for n in own]
    by_class = np.bincount(cut.validation.labels, minlength=3)
    assert by_class.max() - by_class.min() <= 1
    # Nobody has it, and all else stays where and in the order that it was.
    at_nobody = set(own)
    for field in ('server_indices', 'labelled_indices'):
      before = getattr(whole, field).tolist()
      kept = [n for n in before if n not in at_nobody]
      assert getattr(partition, field).tolist() == kept
    for client in range(4):
      before = whole.client_indices(client).tolist()
      kept = [n for n in before if n not in at_nobody]
      assert partition.client_indices(client).tolist() == kept
    assert partition.digest() != whole.digest()
    client_store.build(
      cut,
      partition,
      cache_dir=tmp_path,
      labelled='server' if where == 'server' else 'dealt',
    )
  assert held == collections.Counter(known.tolist())


def test_a_seed_fixes_the_folds(source):
  folds = []
  for seed, order in ((0, 1), (0, -1), (1, 1)):
    whole, _ = _divided(source, 'server', seed=seed)
    # However the labelled examples are listed, and whichever these are.
    known = np.arange(30)[::order]
    cut, _ = label_folds.hold_out(source, whole, known, '1of3')
    folds.append(_numbers(cut.validation))
  assert folds[0] == folds[1] != folds[2]


@pytest.mark.parametrize(
  'text', ['', '5', '0of5', '6of5', '1of1', '1/5', '1of', '01of5', '-1of5']
)
def test_refused_values(text):
  with pytest.raises(ValueError, match=f'label_fold={text}: must be a fold'):
    label_folds.FOLD.check_flag(text)


def test_refusals(source):
  whole, known = _divided(source, 'server')
  validated = dataclasses.replace(source, validation=source.test)
  one_each, of_one = _divided(source, 'server', server_examples=3)
  for given, fold, message in (
    ((validated, whole, known), '1of2', 'has a validation split already'),
    ((source, whole, known[:0]), '1of2', 'needs labelled examples'),
    ((source, one_each, of_one), '1of2', "of the class '0' .* take the defaul"),
    ((source, one_each, of_one), '2of2', 'holds none of the 3 labels: give as'),
  ):
    with pytest.raises(ValueError, match=f'label_fold={fold}.*{message}'):
      label_folds.hold_out(*given, fold)
