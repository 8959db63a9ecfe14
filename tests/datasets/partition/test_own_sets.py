"""Sets that data come in: who gets what, what clients know, refusals."""

import numpy as np
import pytest

from datasets.partition import partitions
from datasets.sources.source import SourceSets


@pytest.fixture
def own_sets(source_of):
  """A function from priors to two clients with two sets of two examples."""
  names = ('ill', 'well')
  return lambda priors: source_of(
    [-1] * 8, num_classes=2, sets=sets_of(priors), names=names
  )


def sets_of(priors):
  return SourceSets(
    client_names=('north', 'south'),
    client_index=np.repeat([0, 1], 4),
    set_index=np.tile([0, 0, 1, 1], 2),
    class_priors=np.asarray(priors, float),
  )


TWO = [[0.2, 0.8], [0.7, 0.3]]


def test_own_sets_as_they_come(own_sets):
  partition = partitions.build('own_sets', own_sets([TWO, TWO]), seed=0)
  assert partition.client_names == ('north', 'south')
  np.testing.assert_array_equal(partition.class_priors, [TWO, TWO])
  for client in range(2):
    own = slice(*partition.offsets[client : client + 2])
    held = partition.examples[own]
    assert sorted(held) == list(range(4 * client, 4 * client + 4))
    np.testing.assert_array_equal(partition.set_ids[own], held % 4 // 2)
  noisy = partitions.build(
    'own_sets', own_sets([TWO, TWO]), seed=0, prior_noise=1.6
  )
  assert np.abs(noisy.class_priors - partition.class_priors).max() > 0.01


@pytest.mark.parametrize('prior_noise', [0.0, 0.2])
@pytest.mark.parametrize(
  'priors, message',
  [
    ([TWO, [[0.4, 0.6], [0.4, 0.6]]], "'south' have rank 1 for 2 classes"),
    ([[[1.0, 0.0]] * 2] * 2, "class 'well' has a prior of 0 in every set"),
  ],
)
def test_priors_that_tell_nothing(own_sets, priors, message, prior_noise):
  with pytest.raises(ValueError, match=message):
    partitions.build(
      'own_sets', own_sets(priors), seed=0, prior_noise=prior_noise
    )


def test_own_sets_need_sets_and_take_no_other_arguments(own_sets, source_of):
  with pytest.raises(ValueError, match="'tiny' has none.*u_sets"):
    partitions.build('own_sets', source_of([0, 1]), seed=0)
  with pytest.raises(ValueError, match='num_clients=5 does not apply'):
    partitions.build('own_sets', own_sets([TWO, TWO]), seed=0, num_clients=5)
