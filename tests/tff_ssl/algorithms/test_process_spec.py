"""The record of a process: defaults, base processes, and building."""

import dataclasses

import pytest

import tff_ssl
from tff_ssl import optimizers
from tff_ssl.algorithms import Needs, ProcessSpec
from tff_ssl.common.setting import Setting

STEPS = Setting('steps', int, 'Steps.', at_least=1)
THRESHOLD = Setting('threshold', float, 'Threshold.', at_least=0)


@dataclasses.dataclass(frozen=True)
class Objective:
  views: str
  threshold: float = 0.95
  weight: float = 1.0


def builder(
  model, *, views, seed=0, steps=16, rate=None, threshold=0.5, **more
):
  return {'model': model, 'views': views, 'seed': seed, 'steps': steps, **more}


def spec(**more):
  return ProcessSpec(
    'mine',
    'What it does.',
    more.pop('builder', builder),
    (STEPS, THRESHOLD),
    source='Paper',
    **more,
  )


def test_names_of_settings():
  # The average is an option of what takes a `Wiring`.
  assert spec().setting_names == ('steps', 'threshold', 'ema_decay')


@pytest.mark.parametrize(
  'objective, name, default',
  [
    (None, 'steps', 16),
    (None, 'threshold', 0.5),
    # That of the objective, to which it goes.
    (Objective, 'threshold', 0.95),
    (Objective, 'weight', 1.0),
    (Objective, 'steps', 16),
    (None, 'rate', None),
    # An argument without a default, and none at all.
    (None, 'model', None),
    (Objective, 'views', None),
    (None, 'momentum', None),
  ],
)
def test_default_of(objective, name, default):
  assert spec(objective=objective).default_of(name) == default


def test_build_gives_settings_to_the_builder():
  built = spec().build('a model', views='plain', steps=3, seed=1)
  assert built == {'model': 'a model', 'views': 'plain', 'steps': 3, 'seed': 1}


def test_build_adds_what_is_fixed_and_refuses_another_value_for_it():
  fixed = spec(fixed={'steps': 1, 'groups': 2})
  assert fixed.build('m', views='v')['steps'] == 1
  assert fixed.build('m', views='v')['groups'] == 2
  with pytest.raises(TypeError, match=r"\['steps'\] cannot be given: mine"):
    fixed.build('m', views='v', steps=1)


def test_build_gives_fields_of_the_objective_to_it():
  of_objective = spec(objective=Objective, fixed={'weight': 2.0})
  built = of_objective.build('m', views='v', steps=3, threshold=0.7)
  assert built['client_objective'] == Objective('v', 0.7, 2.0)
  assert 'weight' not in built and built['steps'] == 3
  default = of_objective.build('m', views='v')['client_objective']
  assert default == Objective('v', 0.95, 2.0)


def test_build_makes_the_server_optimizer_of_its_rate():
  with_optimizer = spec(
    server_optimizer=lambda server_learning_rate=0.25: server_learning_rate,
  )
  built = with_optimizer.build('m', views='v', server_learning_rate=0.5)
  assert built['server_optimizer'] == 0.5
  assert 'server_learning_rate' not in built
  assert with_optimizer.build('m', views='v')['server_optimizer'] == 0.25
  # One that is given counts.
  other = optimizers.build_grouping_sgd(1.0)
  built = with_optimizer.build('m', views='v', server_optimizer=other)
  assert built['server_optimizer'] is other


STEPS_OF_PLAN = Setting(
  'local_steps', int, 'Steps.', at_least=1, argument='client_training.steps'
)
RATE = tff_ssl.TrainingPlan(schedule=tff_ssl.exponential(0.9))


def with_records(
  model,
  *,
  views,
  client_training=tff_ssl.TrainingPlan(steps=5),
  server=tff_ssl.ServerPlan(),
  wiring=tff_ssl.Wiring(),
):
  return client_training, server, wiring


def test_build_puts_into_records_what_the_builder_has_only_there():
  sgd = optimizers.build_grouping_sgd()
  own = ProcessSpec(
    'mine', 'It.', with_records, (STEPS_OF_PLAN,), source='Paper'
  )
  assert own.default_of('local_steps') == 5
  clients, server, wiring = own.build(
    'm',
    views='v',
    local_steps=3,
    client_training=tff_ssl.TrainingPlan(batch_size=2),
    server_optimizer=sgd,
    schedule=RATE.schedule,
    seed=4,
  )
  assert clients == tff_ssl.TrainingPlan(
    batch_size=2, steps=3, schedule=RATE.schedule
  )
  assert server == tff_ssl.ServerPlan(optimizer=sgd, schedule=RATE.schedule)
  assert wiring == tff_ssl.Wiring(seed=4)
  # What is not given stays the builder's own.
  assert own.build('m', views='v')[0] == tff_ssl.TrainingPlan(steps=5)


def test_a_record_keeps_what_the_builder_says_of_it_and_a_class_is_none():
  @dataclasses.dataclass(frozen=True)
  class Stage:
    length: int
    images: str = 'all'

  def in_stages(model, *, views, stage=Stage(5, 'some'), make=Objective):
    return stage, make

  own = spec(builder=in_stages)
  assert own.build('m', views='v', length=3) == (Stage(3, 'some'), Objective)
  assert own.takes('images') and not own.takes('threshold')


def test_a_field_of_a_plan_is_not_what_an_objective_calls_the_same():
  def grouped(model, *, views, client_objective, client_training, server):
    return client_objective, client_training, server

  own = spec(builder=grouped, objective=Objective)
  objective, clients, server = own.build(
    'm',
    views='v',
    weight=2.0,
    redrawn_mask_ratio=0.5,
    server_data='d',
    batch_size=8,
  )
  assert objective == Objective('v', weight=2.0)
  # The server hides none of its labels.
  assert server == tff_ssl.ServerPlan(data='d')
  assert clients == tff_ssl.TrainingPlan(batch_size=8, redrawn_mask_ratio=0.5)


def test_what_a_record_that_is_passed_on_may_hold_is_not_known():
  def passes_on(model, **more):
    return more

  own = spec(builder=passes_on)
  assert not own.takes('redrawn_mask_ratio')
  built = own.build('m', views='v', batch_size=8)
  assert built['client_training'] == tff_ssl.TrainingPlan(batch_size=8)


def test_build_takes_one_objective():
  own = spec(objective=Objective)
  assert (
    own.build('m', views='v', client_objective='L')['client_objective'] == 'L'
  )
  with pytest.raises(
    TypeError, match=r"\['threshold'\] belong to the objective"
  ):
    own.build('m', views='v', client_objective='L', threshold=0.5)


def test_over_takes_from_the_base_what_its_rounds_need():
  def check(values):
    raise ValueError(str(values))

  def keeping(model, *, views, client_state_dir, num_clients):
    return model

  base = spec(
    builder=keeping,
    models_in_state=2,
    needs=Needs(labels_at='clients', clients='all', sgd=True),
    has_gradient_diversity=False,
    server_optimizer=lambda: 'an optimizer',
    check=check,
  )
  plain = spec()
  over = dataclasses.replace(
    spec(needs=Needs(labels_at='dealt')),
    name='outer',
    bases={'base': base, 'plain': plain},
  )
  found = over.over('base')
  assert (found.name, found.needs.labels_at) == ('outer', 'dealt')
  assert found.takes('client_state_dir') and found.takes('num_clients')
  assert not over.takes('client_state_dir')
  assert found.needs.clients == 'all' and found.models_in_state == 2
  assert found.needs.sgd and not found.has_gradient_diversity
  assert found.check is check
  assert found.server_optimizer is base.server_optimizer
  assert over.over('plain') == dataclasses.replace(over, base=plain)
  with pytest.raises(KeyError):
    over.over('no_such_process')
