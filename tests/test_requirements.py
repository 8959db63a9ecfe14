"""What is imported is declared, what is declared is pinned and used."""

import ast
import importlib.metadata
import pathlib
import re
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_OWN = {
  *('tff_ssl', 'datasets', 'experiments', 'tools'),
  *('benchmarks', 'tests', 'examples', 'tutorials'),
}
# Declared, and imported by no file of ours: for other packages, or commands.
_NOT_IMPORTED = {
  'importlib-resources',
  'pytest-timeout',
  'pytest-xdist',
  'ruff',
  'tensorflow-metadata',
  'wheel',
}
# What tutorials.colab has from the notebook that it is imported in.
_OF_NOTEBOOKS = {'IPython', 'jupyter_client', 'zmq'}


def _normal(name):
  """A name of a distribution as package registries compare it."""
  return re.sub('[-_.]+', '-', name).lower()


def _names_in(file):
  """Names of distributions in a file of requirements."""
  lines = (_ROOT / 'requirements' / file).read_text().splitlines()
  found = [re.match(r'[A-Za-z0-9][\w.-]*', line) for line in lines]
  return {_normal(match[0]) for match in found if match}


def _imported_by(path):
  """Top-level names of what a file imports, in functions too."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from (alias.name.partition('.')[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
      yield node.module.partition('.')[0]


@pytest.fixture(scope='module')
def imported():
  """Distributions that are imported, with a file that does so."""
  distributions = importlib.metadata.packages_distributions()
  files = [_ROOT / 'setup.py']
  for folder in _OWN:
    files += (_ROOT / folder).rglob('*.py')
  support = {path.stem for path in (_ROOT / 'tests/support').glob('*.py')}
  ours = _OWN | support | _OF_NOTEBOOKS | sys.stdlib_module_names
  return {
    _normal(distribution): path.relative_to(_ROOT).as_posix()
    for path in files
    for name in _imported_by(path)
    if name not in ours
    # What is not installed, such as Ray, has the name that is imported.
    for distribution in distributions.get(name, [name])
  }


@pytest.mark.dear
def test_what_is_imported_is_declared(imported):
  declared = _names_in('runtime.in') | _names_in('ray.in')
  missing = {k: v for k, v in imported.items() if k not in declared}
  assert not missing, 'add these to requirements/runtime.in'


def test_what_is_declared_is_imported_or_has_another_use(imported):
  assert _names_in('runtime.in') - imported.keys() == _NOT_IMPORTED


def test_s5_what_is_declared_is_pinned():
  assert _names_in('runtime.in') <= _names_in('runtime.txt')


@pytest.mark.parametrize('name', ['notebooks', 'docs', 'ray'])
def test_further_pins_go_over_the_others(name):
  """They are installed without a resolver."""
  assert _names_in(f'{name}.in') <= _names_in(f'{name}.txt')
  pins, further = (
    dict(
      line.split('==')
      for line in (_ROOT / 'requirements' / file).read_text().splitlines()
      if '==' in line
    )
    for file in ('runtime.txt', f'{name}.txt')
  )
  shared = pins.keys() & further.keys()
  assert shared
  assert {name: pins[name] for name in shared} == {
    name: further[name] for name in shared
  }
