"""The registry of processes: what its entries claim must be so."""

import dataclasses
import functools
import inspect
import subprocess
import sys

import numpy as np
import pytest

from tff_ssl import algorithms, objectives, shared_settings, testing
from tff_ssl.augmentation import views
from tff_ssl.common.setting import Setting
from tff_ssl.testing import tiny_problems

_SPECS = list(algorithms.PROCESSES.values())
_BY_NAME = pytest.mark.parametrize('spec', _SPECS, ids=lambda spec: spec.name)


def _recording(spec):
  """Returns the entry with a builder that returns its arguments."""

  @functools.wraps(spec.builder)
  def record(model, **arguments):
    return {'model': model, **arguments}

  return dataclasses.replace(spec, builder=record)


def _fields_of_objective(spec):
  """Returns the names of what the spec's objective takes beside views."""
  if spec.objective is None:
    return set()
  return set(inspect.signature(spec.objective).parameters) - {'views'}


def _records(spec):
  """Returns the records that the builder takes, as they are by default."""
  found = inspect.signature(spec.builder).parameters.items()
  return {
    name: parameter.default
    for name, parameter in found
    if dataclasses.is_dataclass(parameter.default)
  }


def test_no_two_records_have_one_name():
  assert len(list(algorithms._all_records())) == len(_SPECS)


def test_names_are_keys_and_the_registry_cannot_be_changed():
  for name, spec in algorithms.PROCESSES.items():
    assert spec.name == name
    assert spec.description and spec.source
  with pytest.raises(TypeError):
    algorithms.PROCESSES['mine'] = _SPECS[0]


def test_finds_entries_also_of_a_user():
  find = algorithms.PROCESSES.find
  assert find('fedavg') is algorithms.PROCESSES['fedavg']
  own = find('tff_ssl.algorithms.fednova:SPEC')
  assert own is algorithms.PROCESSES['fednova']
  with pytest.raises(ValueError, match="unknown.*Did you mean 'fednova'"):
    find('fednov')
  with pytest.raises(ValueError, match="no module 'no_such_module'"):
    find('no_such_module:SPEC')


@_BY_NAME
def test_settings_are_arguments_of_the_builder(spec):
  parameters = inspect.signature(spec.builder).parameters
  assert all(isinstance(setting, Setting) for setting in spec.settings)
  settings = set(spec.setting_names)
  assert len(settings) == len(spec.settings)
  known = set(parameters) | _fields_of_objective(spec)
  known.update(*map(vars, _records(spec).values()))
  if spec.server_optimizer is not None:
    known.update(inspect.signature(spec.server_optimizer).parameters)
  if 'server' in _records(spec):  # Where a spec fixes it.
    known.add('server_warmup_rounds')
  for setting in spec.settings:
    if setting.argument is not None:
      record, _, field = setting.argument.partition('.')
      assert field in vars(_records(spec)[record])
      known.add(setting.name)
  for base in spec.bases.values():  # The builder passes these on.
    known.update(base.setting_names)
  assert settings <= known
  assert set(spec.fixed) <= known
  assert not settings & set(spec.fixed)
  assert spec.needs.labels_at in ('server', 'clients', 'dealt', 'sets')
  assert spec.takes('server_data') or spec.needs.labels_at != 'server'


@_BY_NAME
def test_build_passes_fixed_arguments_and_settings(spec):
  plain = views.PlainViews()
  wired = (shared_settings.EMA_DECAY, shared_settings.MAX_CLIENT_WEIGHT)
  own = [s for s in spec.settings if s not in wired]
  setting = [s for s in own if s.parse is None][-1]
  name = setting.name
  value = next(v for v in (2, 0.5, True, *setting.choices) if setting.allows(v))
  arguments = _recording(spec).build(
    'a model', views=plain, seed=3, **{name: value}
  )
  if name in _fields_of_objective(spec):
    arguments[name] = getattr(arguments['client_objective'], name)
  if setting.argument is not None:
    record, _, field = setting.argument.partition('.')
    arguments[name] = getattr(arguments[record], field)
  assert arguments['model'] == 'a model'
  assert arguments['views'] is plain
  assert arguments['wiring'].seed == 3
  assert arguments[name] == value
  for key, value in spec.fixed.items():
    if key in _fields_of_objective(spec):
      arguments[key] = getattr(arguments['client_objective'], key)
    if key == 'server_warmup_rounds':
      arguments[key] = arguments['server'].warmup_rounds
    if key == 'redrawn_mask_ratio':
      arguments[key] = arguments['client_training'].redrawn_mask_ratio
    assert arguments[key] == value


def test_the_average_is_the_builders_or_of_the_wiring():
  spec = algorithms.PROCESSES['fedavg']
  found = _recording(spec).build(None, views=None, ema_decay=0.5)
  assert found['wiring'].ema_decay == 0.5
  own = dataclasses.replace(
    spec,
    builder=lambda model, *, ema_decay, wiring=None, **more: (
      ema_decay,
      wiring,
    ),
  )
  assert own.build(None, views=None, ema_decay=0.5) == (0.5, None)


def test_build_makes_the_objective_with_the_threshold():
  spec = _recording(algorithms.PROCESSES['self_training'])
  plain = views.PlainViews()
  chosen = spec.build(None, views=plain, threshold=0.7)
  assert chosen['client_objective'] == objectives.SelfTraining(plain, 0.7)
  default = spec.build(None, views=plain)
  assert default['client_objective'] == objectives.SelfTraining(plain, 0.95)


def test_a_fixed_argument_cannot_be_given():
  spec = _recording(algorithms.PROCESSES['fedavg_ssfl'])
  with pytest.raises(TypeError, match='num_groups'):
    spec.build(None, views=None, num_groups=2)


def _what_is_missing():
  for spec in _SPECS:
    if spec.takes('client_state_dir'):
      folder = {'client_state_dir': 'states'}
      yield spec.name, folder, "client_state_dir='states'.*absolute"


@pytest.mark.parametrize('name, changes, message', _what_is_missing())
def test_where_clients_keep_something_is_checked(name, changes, message):
  with pytest.raises(ValueError, match=message):
    testing.TinyProblem(algorithms.PROCESSES[name]).build(**changes)


@pytest.mark.parametrize(
  'name', ['scaffold', 'easgd', 'fedmatch', 'fedmatch_server']
)
def test_how_many_clients_there_are_is_asked_for(name):
  problem = testing.TinyProblem(algorithms.PROCESSES[name])
  known = problem.data_spec()
  with pytest.raises(ValueError, match='num_clients must be .* but is 0'):
    dataclasses.replace(known, num_clients=0)
  unknown = dataclasses.replace(known, num_clients=None)
  with pytest.raises(ValueError, match='num_clients must be .* but is None'):
    problem.build(data_spec=unknown)


@pytest.mark.parametrize(
  'spec', [s for s in _SPECS if s.needs.encoder], ids=str
)
def test_a_model_without_an_encoder_is_refused(spec):
  problem = testing.TinyProblem(spec)
  with pytest.raises(TypeError, match='without an encoder'):
    problem.build(model=tiny_problems.build_model())


def test_server_only_never_lets_clients_join():
  spec = algorithms.PROCESSES['server_only']
  # The round is counted in int32.
  assert spec.fixed['server_warmup_rounds'] == np.iinfo(np.int32).max
  assert spec.needs.clients == 'none'


@pytest.mark.parametrize('module', ['algorithms', 'protocols'])
def test_importing_it_does_not_import_tensorflow(module):
  code = (
    f'import sys, tff_ssl.{module}; '
    "sys.exit('tensorflow' in sys.modules or 'absl' in sys.modules)"
  )
  done = subprocess.run([sys.executable, '-c', code], timeout=60)
  assert done.returncode == 0
