"""The registry of processes: what its entries claim must be so."""

import dataclasses
import importlib
import inspect
import subprocess
import sys

import numpy as np
import pytest

from tff_ssl import algorithms, objectives, optimizers
from tff_ssl.augmentation import views

_SPECS = list(algorithms.PROCESSES.values())
_BY_NAME = pytest.mark.parametrize('spec', _SPECS, ids=lambda spec: spec.name)


def _builder(spec):
  module, function = spec.builder.split('.')
  return getattr(
    importlib.import_module(f'tff_ssl.algorithms.{module}'), function
  )


def _record_builder(spec, monkeypatch):
  """Replaces the builder by one that returns its arguments."""
  module, function = spec.builder.split('.')
  monkeypatch.setattr(
    importlib.import_module(f'tff_ssl.algorithms.{module}'),
    function,
    lambda model, **arguments: {'model': model, **arguments},
  )


def _fields_of_objective(spec):
  """Returns the names of what the spec's objective takes beside views."""
  if spec.objective is None:
    return set()
  fields = dataclasses.fields(getattr(objectives, spec.objective))
  return {field.name for field in fields} - {'views'}


def test_names_are_keys_and_the_registry_cannot_be_changed():
  for name, spec in algorithms.PROCESSES.items():
    assert spec.name == name
    assert spec.description and spec.source
  with pytest.raises(TypeError):
    algorithms.PROCESSES['mine'] = _SPECS[0]


@_BY_NAME
def test_settings_are_arguments_of_the_builder(spec):
  parameters = inspect.signature(_builder(spec)).parameters
  settings = set(spec.settings)
  assert len(settings) == len(spec.settings)
  known = set(parameters) | _fields_of_objective(spec)
  if spec.server_optimizer is not None:
    make = getattr(optimizers, spec.server_optimizer)
    known |= set(inspect.signature(make).parameters)
  assert ('num_clients' in parameters) == spec.counts_clients
  assert settings <= known
  assert set(spec.fixed) <= known
  assert ('redrawn_mask_ratio' in parameters) or not spec.redraws_masks
  assert not settings & set(spec.fixed)
  assert ('server_data' in parameters) == spec.has_server_training
  assert spec.labels_at in ('server', 'clients', 'dealt', 'sets')
  assert spec.has_server_training or spec.labels_at != 'server'


@_BY_NAME
def test_objective_exists(spec):
  if spec.objective is not None:
    assert hasattr(objectives, spec.objective)


@_BY_NAME
def test_build_passes_fixed_arguments_and_settings(spec, monkeypatch):
  _record_builder(spec, monkeypatch)
  plain = views.PlainViews()
  setting = spec.settings[-1]
  arguments = spec.build('a model', views=plain, seed=3, **{setting: 2})
  if setting in _fields_of_objective(spec):
    arguments[setting] = getattr(arguments['client_objective'], setting)
  assert arguments['model'] == 'a model'
  assert arguments['views'] is plain
  assert arguments['seed'] == 3
  assert arguments[setting] == 2
  for key, value in spec.fixed.items():
    if key in _fields_of_objective(spec):
      arguments[key] = getattr(arguments['client_objective'], key)
    assert arguments[key] == value


def test_build_makes_the_objective_with_the_threshold(monkeypatch):
  spec = algorithms.PROCESSES['self_training']
  _record_builder(spec, monkeypatch)
  plain = views.PlainViews()
  chosen = spec.build(None, views=plain, threshold=0.7)
  assert chosen['client_objective'] == objectives.SelfTraining(plain, 0.7)
  default = spec.build(None, views=plain)
  assert default['client_objective'] == objectives.SelfTraining(plain, 0.95)


def test_a_fixed_argument_cannot_be_given(monkeypatch):
  spec = algorithms.PROCESSES['fedavg_ssfl']
  _record_builder(spec, monkeypatch)
  with pytest.raises(TypeError, match='num_groups'):
    spec.build(None, views=None, num_groups=2)


def test_server_only_never_lets_clients_join():
  spec = algorithms.PROCESSES['server_only']
  # The round is counted in int32.
  assert spec.fixed['server_warmup_rounds'] == np.iinfo(np.int32).max
  assert not spec.has_client_training


def test_importing_the_registry_does_not_import_tensorflow():
  code = (
    'import sys, tff_ssl.algorithms; '
    "sys.exit('tensorflow' in sys.modules or 'absl' in sys.modules)"
  )
  assert (
    subprocess.run([sys.executable, '-c', code], timeout=60).returncode == 0
  )
