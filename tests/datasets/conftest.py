"""What the tests of data share: small sources, and where splits are written."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_digits

from datasets.sources.source import Source, Split


@pytest.fixture(scope='session')
def source_of():
  """A function from labels to a source with one pixel an image."""

  def build(labels, client_ids=None, num_classes=None, **others):
    labels = np.asarray(labels, np.int32)
    split = Split(
      examples=np.zeros((len(labels), 1, 1, 1), np.uint8),
      labels=labels,
      client_ids=None if client_ids is None else np.array(client_ids, object),
    )
    num_classes = num_classes or int(labels.max()) + 1
    test = dataclasses.replace(split, labels=np.maximum(labels, 0))
    facts = {'name': 'tiny', 'version': '1', 'title': '', **others}
    return Source(
      **{'train': split, 'test': test, 'num_classes': num_classes, **facts},
      mean=(0.5,),
      stddev=(0.5,),
      background=0,
      mirrorable=False,
    )

  return build


@pytest.fixture(scope='session')
def digits_of(source_of):
  """A function from a number of writers to the labels of digits, of them."""

  def build(writers=None):
    labels = load_digits().target
    ids = None
    if writers:
      rng = np.random.default_rng(3)
      ids = [f'writer {w}' for w in rng.integers(writers, size=len(labels))]
    return source_of(labels, client_ids=ids)

  return build


@pytest.fixture
def paths(tmp_path):
  """Where a split is written: split.json and split.npz."""
  return tmp_path / 'split.json', tmp_path / 'split.npz'
