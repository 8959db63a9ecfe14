"""The records that builders take: defaults, and what nobody has a use for."""

import pytest

import tff_ssl
from tff_ssl import optimizers, testing
from tff_ssl.algorithms import PROCESSES

_OWN = tff_ssl.ServerPlan(steps=16, weight=1.0)


def test_what_is_not_given_is_the_builders_own():
  plan = tff_ssl.ServerPlan(data='data', epochs=2).over(_OWN, batch_size=8)
  # Its steps are no default beside passes.
  assert plan == tff_ssl.ServerPlan(
    data='data', epochs=2, weight=1.0, batch_size=8
  )
  # Whoever gives a plan of clients is told that data are missing.
  assert tff_ssl.TrainingPlan(steps=2).over(_OWN).data is None
  own = tff_ssl.Wiring(ema_decay=0.9)
  assert tff_ssl.Wiring(seed=3).over(own) == tff_ssl.Wiring(
    seed=3, ema_decay=0.9
  )
  assert tff_ssl.Wiring(ema_decay=0.0).over(own).ema_decay == 0.0


@pytest.mark.parametrize(
  'name, changes, message',
  [
    ('semifl', {'server': {'weight': 2.0}}, r'weight=2\.0 has no effect'),
    ('data_sharing', {'server': {'order': 'after'}}, "order='after' has no"),
    ('grouping_robust', {'server': {'order': 'after'}}, "order='after' has no"),
    ('grouping', {'server': {'client_momentum': 'mean'}}, 'client_momentum='),
    ('scaffold', {'client_training': {'client_momentum': 'mean'}}, "='mean' h"),
    ('fedlabel', {'client_training': {'redrawn_mask_ratio': 0.5}}, '=0.5 has'),
    ('grouping', {'server': {'weight': 0}}, 'weight must be a number > 0'),
    ('grouping', {'server': {'replicas': 'two'}}, 'replicas must be one of'),
    ('fedavg', {'client_training': {'client_momentum': 'no'}}, 'be one of'),
    ('fedmatch', {'helpers': {'num_helpers': 0}}, 'num_helpers must be'),
  ],
)
def test_a_field_of_no_use_or_out_of_range_is_refused(name, changes, message):
  problem = testing.TinyProblem(PROCESSES[name])
  records = {
    'client_training': tff_ssl.TrainingPlan,
    'server': tff_ssl.ServerPlan,
    'helpers': tff_ssl.Helpers,
    'pretraining': tff_ssl.Pretraining,
  }
  with pytest.raises(ValueError, match=message):
    problem.build(**{key: records[key](**v) for key, v in changes.items()})


def test_the_runner_asks_a_builders_own_records_what_it_takes():
  def build(model, *, server=_OWN, client_training, views):
    return server, client_training

  spec = tff_ssl.ProcessSpec('mine', 'It.', build, source='Paper')
  assert spec.takes('server_data') and spec.takes('class_weights')
  assert not spec.takes('bn_statistics') and not spec.takes('global_momentum')
  # One without records of its own may take anything.
  assert spec.takes('client_momentum')
  sgd = optimizers.build_grouping_sgd()
  server, clients = spec.build(
    'm',
    views='v',
    server_data='d',
    server_optimizer=sgd,
    client_momentum='mean',
  )
  assert server == tff_ssl.ServerPlan(data='d', optimizer=sgd)
  assert clients == tff_ssl.TrainingPlan(client_momentum='mean')
