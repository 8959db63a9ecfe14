"""The shape of the source tree: what may import, call and draw what."""

import ast
import functools
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).parents[1]

# What each part of the tree may import of the others. The product stands alone,
# data sets know no process, only what is common to all (`tff_ssl.common`), and
# experiments join the two.
_MAY_IMPORT = {
  'tff_ssl': set(),
  'datasets': {'tff_ssl'},
  'experiments': {'tff_ssl', 'datasets'},
  'tools': {'tff_ssl', 'datasets', 'experiments'},
}
_OWN_PACKAGES = {*_MAY_IMPORT, 'benchmarks', 'examples', 'tutorials', 'tests'}

# Within the product: what a part knows nothing of. Algorithms stand on
# templates, objectives and aggregators, never the other way round, and only
# simulations know simulations.
_MUST_NOT_IMPORT = {
  'tff_ssl.algorithms': {'tff_ssl.simulation', 'tff_ssl.testing'},
  'tff_ssl.templates': {'tff_ssl.algorithms', 'tff_ssl.simulation'},
  'tff_ssl.objectives': {
    'tff_ssl.algorithms',
    'tff_ssl.templates',
    'tff_ssl.simulation',
  },
  'tff_ssl.aggregators': {
    'tff_ssl.algorithms',
    'tff_ssl.templates',
    'tff_ssl.simulation',
  },
  'tff_ssl.metrics': {'tff_ssl.algorithms', 'tff_ssl.simulation'},
  'tff_ssl.models': {'tff_ssl.algorithms', 'tff_ssl.templates'},
  'tff_ssl.augmentation': {'tff_ssl.algorithms', 'tff_ssl.templates'},
  'tff_ssl.plans': {'tff_ssl.algorithms', 'tff_ssl.templates'},
}

# The rooms of the other two: which of their own package they may import. The
# commands and the catalogue of a package may import all of it.
_ROOMS = {
  'datasets.files': set(),
  'datasets.sources': {'files'},
  'datasets.sources.own': {'files', 'sources'},
  'datasets.partition': {'sources'},
  'datasets.records': {'files', 'sources', 'partition'},
  'datasets.store': {'files', 'sources', 'partition', 'records'},
  'experiments.parts': set(),
  'experiments.config': {'parts'},
  'experiments.artifacts': {'config', 'parts'},
  'experiments.measuring': {'parts', 'config', 'artifacts'},
  'experiments.preparing': {'parts', 'config', 'artifacts'},
  'experiments.running': {
    'parts',
    'config',
    'artifacts',
    'measuring',
    'preparing',
  },
  'experiments.tables': {'config', 'artifacts', 'preparing'},
  'experiments.reporting': {'config', 'artifacts', 'tables'},
}


def _modules(folder):
  """The files of a folder, or that of a module."""
  module = _ROOT / f'{folder}.py'
  return [module] if module.exists() else sorted((_ROOT / folder).rglob('*.py'))


def _name(path):
  return path.relative_to(_ROOT).as_posix()


def _package(path):
  """Dotted name of the package that a file lies in."""
  return '.'.join(path.relative_to(_ROOT).parent.parts)


@functools.cache
def _imports(path):
  """Dotted names of all that a file imports, in functions too."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{_name(path)} has a relative import.'
      names.update(f'{node.module}.{alias.name}' for alias in node.names)
  return names


def _lies_in(name, package):
  return name == package or name.startswith(f'{package}.')


def _wrong_imports(folder, is_wrong):
  """Pairs of a file in a folder and a name that it must not import."""
  modules = _modules(folder)
  assert modules, folder
  return {
    (_name(path), name)
    for path in modules
    for name in _imports(path)
    if is_wrong(name)
  }


@pytest.mark.parametrize('package', sorted(_MAY_IMPORT))
def test_directions_between_packages(package):
  forbidden = _OWN_PACKAGES - _MAY_IMPORT[package] - {package}
  assert not _wrong_imports(
    package, lambda name: name.partition('.')[0] in forbidden
  )


def _is_of_the_product(name):
  """Whether it is of the product, but not of what is common to all."""
  common = ('tff_ssl.common', 'tff_ssl.compat')
  return _lies_in(name, 'tff_ssl') and not any(
    _lies_in(name, package) for package in common
  )


def test_data_sets_know_no_process():
  assert not _wrong_imports('datasets', _is_of_the_product)


def test_what_is_common_stands_alone():
  assert not _wrong_imports(
    'tff_ssl/common',
    lambda name: (
      _is_of_the_product(name)
      or name.partition('.')[0] in ('tensorflow', 'tensorflow_federated')
    ),
  )


@pytest.mark.parametrize('package', sorted(_MUST_NOT_IMPORT))
def test_directions_within_the_product(package):
  others = _MUST_NOT_IMPORT[package]
  assert not _wrong_imports(
    package.replace('.', '/'),
    lambda name: any(_lies_in(name, other) for other in others),
  )


@pytest.mark.parametrize('room', _ROOMS)
def test_directions_between_rooms(room):
  package = room.partition('.')[0]
  allowed = {room, *(f'{package}.{other}' for other in _ROOMS[room])}
  assert not _wrong_imports(
    room.replace('.', '/'),
    lambda name: (
      _lies_in(name, package)
      and not any(_lies_in(name, other) for other in allowed)
    ),
  )


@pytest.mark.parametrize('package', ['datasets', 'experiments'])
def test_every_module_is_in_a_room(package):
  rooms = {_package(path) for path in _modules(package)} - {package}
  assert rooms == {room for room in _ROOMS if room.startswith(package)}


def test_a_room_says_what_it_may_import():
  said = {}
  for room in _ROOMS:
    package = room.partition('.')[0]
    init = _ROOT / room.replace('.', '/') / '__init__.py'
    text = ast.get_docstring(ast.parse(init.read_text()))
    said[room] = {
      other.partition('.')[2]
      for other in _ROOMS
      if other.startswith(package) and f'`{other}`' in text
    }
  assert said == _ROOMS


@pytest.mark.dear
def test_only_the_page_of_runs_needs_its_libraries():
  """They are installed for it, and other commands start without them."""
  for library, user in (('bokeh', 'page_charts'), ('jinja2', 'run_page')):
    users = {
      path
      for package in _MAY_IMPORT
      for path, _ in _wrong_imports(
        package, functools.partial(_lies_in, package=library)
      )
    }
    assert users == {f'experiments/reporting/{user}.py'}


def test_process_composition_has_one_caller():
  callers = {
    _name(path)
    for path in _modules('tff_ssl')
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Attribute)
    and node.attr == 'compose_learning_process'
  }
  assert callers == {'tff_ssl/templates/composition.py'}


# The public names of TFF's main branch of August 2026 (commit 63f73da).
_NEXT_TFF = set(
  (_ROOT / 'tests/tff_ssl/names_of_next_tff.txt').read_text().split()
)


def _is_in_the_next_tff(name):
  """Whether the next TFF has what a dotted name means."""
  packages = {listed.rpartition('.')[0] for listed in _NEXT_TFF}
  parts = name.split('.')
  for length in range(2, len(parts) + 1):
    start = '.'.join(parts[:length])
    if start not in packages:
      return start in _NEXT_TFF
  return True


def _dotted_names(path):
  """The dotted names in a file, such as `tff.learning.models`."""
  return {
    ast.unparse(node)
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Attribute)
  }


def test_one_module_names_what_the_next_tff_has_no_longer():
  users = {
    _name(path)
    for package in [*_MAY_IMPORT, 'benchmarks']
    for path in _modules(package)
    for name in _dotted_names(path)
    if name.startswith('tff.') and not _is_in_the_next_tff(name)
  }
  assert users == {'tff_ssl/compat.py'}


@pytest.mark.dear
def test_no_module_draws_from_a_global_random_generator():
  """Everything random derives from an explicit seed."""
  stateful = {'uniform', 'normal', 'shuffle', 'gamma', 'categorical'}
  found = []
  for package in _MAY_IMPORT:
    for path in _modules(package):
      tree = ast.parse(path.read_text())
      for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ''
        owner, _, function = text.rpartition('.')
        is_tensorflow = owner == 'tf.random' and function in stateful
        is_numpy = owner == 'np.random' and function not in (
          'default_rng',
          'Generator',
          'SeedSequence',
          'PCG64',
          'Philox',
        )
        if is_tensorflow or is_numpy:
          found.append((_name(path), text))
      if 'random' in _imports(path):
        found.append((_name(path), 'import random'))
  assert not found
