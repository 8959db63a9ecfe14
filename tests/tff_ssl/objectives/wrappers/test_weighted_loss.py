"""An objective times a constant."""

import collections

import pytest

from tff_ssl import objectives


class Constant:
  """An objective that tells what it was called with."""

  metric_names = ('loss',)

  def __call__(self, predict, batch, anchors, seed):
    return 3.0, collections.OrderedDict(loss=(predict, batch, anchors, seed))


def test_the_loss_alone_is_weighted():
  objective = objectives.WeightedLoss(Constant(), 2.5)
  loss, metrics = objective(1, 2, 3, 4)
  assert loss == 7.5 and metrics == {'loss': (1, 2, 3, 4)}
  assert objective.metric_names == ('loss',)


def test_the_weight_is_a_number():
  with pytest.raises(ValueError, match='supervised_weight must be .*-1'):
    objectives.WeightedLoss(Constant(), -1)
