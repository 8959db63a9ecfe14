"""What the tests of partitions share: a source of given labels."""

import numpy as np
import pytest

from datasets.sources.source import Source, Split


@pytest.fixture(scope='session')
def source_of():
  """A function from labels to a source with one pixel an image."""

  def build(labels, client_ids=None, num_classes=None, sets=None):
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
      sets=sets,
    )

  return build
