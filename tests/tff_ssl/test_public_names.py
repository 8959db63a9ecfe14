"""What `import tff_ssl` offers."""

import importlib
import inspect
import pathlib

import pytest
import tensorflow_federated as tff

import tff_ssl


def test_names_lead_to_what_is_called_so():
  found = {name: getattr(tff_ssl, name) for name in tff_ssl.__all__}
  called = {k: v.__name__ for k, v in found.items() if callable(v)}
  assert called == {name: name for name in called}


def test_builders_of_all_processes_are_public():
  folder = pathlib.Path(tff_ssl.__file__).parent / 'algorithms'
  builders = {
    name
    for path in folder.glob('*.py')
    for name, value in vars(
      importlib.import_module(f'tff_ssl.algorithms.{path.stem}')
    ).items()
    if name.startswith('build_')
    and inspect.isfunction(value)
    and value.__module__ == f'tff_ssl.algorithms.{path.stem}'
    and inspect.signature(value, eval_str=True).return_annotation
    is tff.learning.templates.LearningProcess
  }
  assert {'build_fed_avg', 'build_fedul', 'build_fedllp'} <= builders
  assert builders <= set(tff_ssl.__all__)


def test_unknown_names():
  with pytest.raises(AttributeError, match="no attribute 'build_fedsgd'"):
    getattr(tff_ssl, 'build_fedsgd')  # noqa: B009
