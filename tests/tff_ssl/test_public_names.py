"""What `import tff_ssl` offers, and that it is what is listed.

    python tests/tff_ssl/test_public_names.py

writes the list of names with their arguments, and the stub for type checkers. A
name or an argument that goes changes the list: so it goes on purpose, with a
line in CHANGELOG.md.
"""

import importlib
import inspect
import pathlib
import pkgutil

import pytest
import tensorflow_federated as tff

import tff_ssl

_LIST = pathlib.Path(__file__).with_name('public_names.txt')
_STUB = pathlib.Path(tff_ssl.__file__).with_suffix('.pyi')
_STALE = 'if that is meant, run python tests/tff_ssl/test_public_names.py'


class _Record:
  """Stands for a default that is no number and no text."""

  def __repr__(self):
    return '...'


def _signature(function):
  """The arguments of a function, with defaults and without types."""
  empty = inspect.Parameter.empty
  plain = (bool, int, float, str, tuple, type(None))
  parameters = []
  for parameter in inspect.signature(function).parameters.values():
    if parameter.default is not empty:
      is_plain = isinstance(parameter.default, plain)
      parameter = parameter.replace(
        default=parameter.default if is_plain else _Record()
      )
    parameters.append(parameter.replace(annotation=empty))
  return str(inspect.Signature(parameters))


def _members(cls):
  """The methods and properties that a class has of this library."""
  found = {}
  for base in reversed(cls.__mro__):
    if base.__module__.startswith('tff_ssl'):
      found |= vars(base)
  for name, value in sorted(found.items()):
    function = getattr(value, '__func__', value)
    if isinstance(value, property) and not name.startswith('_'):
      yield name
    elif inspect.isfunction(function) and not name.startswith('_'):
      yield name + _signature(function)


def _lines():
  for name in tff_ssl.__all__:
    value = getattr(tff_ssl, name)
    if not callable(value):
      yield f'{name}: {", ".join(sorted(value))}'
      continue
    yield name + _signature(value)
    if inspect.isclass(value):
      yield from (f'{name}.{member}' for member in _members(value))


def _module_of(name):
  return (
    f'tff_ssl.{tff_ssl._MODULE_OF[name]}'
    if name in tff_ssl._MODULE_OF
    else getattr(tff_ssl, name).__module__
  )


def _stub():
  imports = sorted(
    f'from {_module_of(name)} import {name} as {name}'
    for name in tff_ssl.__all__
  )
  return '\n'.join(
    [
      '# The public names, which `__init__.py` imports when they are used.',
      '# tests/tff_ssl/test_public_names.py writes this file.',
      '',
      *imports,
      '',
      '__version__: str',
      '',
    ]
  )


def test_the_list_and_the_stub_are_current():
  listed = set(_LIST.read_text(encoding='utf-8').splitlines())
  found = set(_lines())
  assert not listed - found, _STALE
  assert not found - listed, _STALE
  assert _STUB.read_text(encoding='utf-8') == _stub(), _STALE


def test_names_lead_to_what_is_called_so():
  found = {name: getattr(tff_ssl, name) for name in tff_ssl.__all__}
  called = {k: v.__name__ for k, v in found.items() if callable(v)}
  assert called == {name: name for name in called}


def test_builders_of_all_processes_are_public():
  modules = [
    importlib.import_module(f'tff_ssl.algorithms.{found.name}')
    for found in pkgutil.iter_modules(tff_ssl.algorithms.__path__)
  ]
  builders = {
    name
    for module in modules
    for name, value in vars(module).items()
    if name.startswith('build_')
    and inspect.isfunction(value)
    and value.__module__ == module.__name__
    and inspect.signature(value, eval_str=True).return_annotation
    is tff.learning.templates.LearningProcess
  }
  assert {'build_fed_avg', 'build_fedul', 'build_fedllp'} <= builders
  assert builders <= set(tff_ssl.__all__)


def test_modules_are_names_too():
  import pythons  # Of tests/support, which the command above lacks.

  # In a process of its own: here they are imported already.
  code = 'import tff_ssl; print(tff_ssl.shared_settings.EMA_DECAY.name)'
  assert pythons.run('-c', code).stdout == 'ema_decay\n'


def test_unknown_names():
  with pytest.raises(AttributeError, match="no attribute 'build_fedsgd'"):
    getattr(tff_ssl, 'build_fedsgd')  # noqa: B009


if __name__ == '__main__':
  _LIST.write_text('\n'.join(_lines()) + '\n', encoding='utf-8')
  _STUB.write_text(_stub(), encoding='utf-8')
