"""Tiers of tests, and what each test costs in CPU seconds.

`tests/README.md` has the rule. Seconds are those of the process and of all that
it has started: on a busy machine wall time says nothing. What several tests
share, such as the fixture of a module, is booked apart, so that it does not
matter which of them comes first.
"""

import argparse
import collections
import contextlib
import functools
import os
import re
import sys
import zlib

import psutil
import pytest

# Where a test belongs that is not part of `make test`, by its marker.
TIERS = {
  'cases': "TFF's own test cases with our builders",
  'contract': 'the contract suite, all checks of all processes',
  'notebooks': 'tutorials and examples, executed',
  'parts': 'matrices and enumerations of single parts',
  'ray': 'what needs Ray: clusters and their context',
  'runs': 'whole runs and commands, beyond one of each kind',
  'tables': 'every row of every recipe table',
}
# What `make test` keeps by decision although it costs more than `AIM`.
DEAR = 'dear'

AIM = 0.5
LIMIT = 3.0

_PARTS = ('all', 'start', 'shared', 'marked', 'unmarked')
# Tests without a marker that are listed at the end, where they cost much.
_SHOWN = 10
_BEGAN = pytest.StashKey[float]()

_seconds = collections.Counter()
_unmarked = {}
_processes = {}
_is_apart = False


def cpu_seconds():
  """CPU seconds of this process and its descendants, those that ended too."""
  own = os.getpid()
  total = 0.0
  for pid in psutil.pids():
    with contextlib.suppress(psutil.Error):
      if pid not in _processes:
        process = psutil.Process(pid)
        is_ours = pid == own or own in (each.pid for each in process.parents())
        _processes[pid] = process if is_ours else None
      if _processes[pid]:
        total += sum(_processes[pid].cpu_times()[:4])
  return total


@contextlib.contextmanager
def booked_apart():
  """Books what happens meanwhile as shared, not as of the test that asks."""
  global _is_apart
  if _is_apart:
    yield
    return
  _is_apart, before = True, cpu_seconds()
  try:
    yield
  finally:
    _is_apart = False
    _seconds['shared'] += cpu_seconds() - before


def shared(build):
  """Like `functools.cache`; what is built is booked apart."""

  @functools.cache
  @functools.wraps(build)
  def build_once(*args, **kwargs):
    with booked_apart():
      return build(*args, **kwargs)

  return build_once


def tier_of(item):
  """Returns the marker that decides; None for a test without one.

  The nearest one does: a value of `parametrize`, the test, its class or module.
  """
  own = item.callspec.marks if hasattr(item, 'callspec') else ()
  names = (marker.name for marker in (*own, *item.iter_markers()))
  return next((name for name in names if name in (*TIERS, DEAR)), None)


def _is_of(item, tier):
  if tier == 'test':
    return tier_of(item) in (None, DEAR)
  # A dear test may be of a further tier, too.
  return item.get_closest_marker(tier) is not None


def _process_of(item):
  """Returns the process that a test of the contract suite checks."""
  return getattr(item, 'callspec', None) and item.callspec.params.get('process')


def rest_in(tier, values, keep=1, dear=False):
  """Values of `parametrize`: all but the first few belong to a further tier.

  Args:
    tier: A key of `TIERS`.
    values: What a test is parametrized with.
    keep: How many stay in `make test`.
    dear: Whether these cost much.
  """
  kept = [pytest.mark.dear] if dear else []
  rest = [getattr(pytest.mark, tier)]
  return [
    _marked(value, kept if index < keep else rest)
    for index, value in enumerate(values)
  ]


def _marked(value, marks):
  if isinstance(value, type(pytest.param())):
    return pytest.param(
      *value.values, marks=[*value.marks, *marks], id=value.id
    )
  return pytest.param(
    *(value if type(value) is tuple else (value,)), marks=marks
  )


def _group_of(item):
  """Tests that share fixtures, which stay together."""
  marker = item.get_closest_marker('xdist_group')
  return marker.args[0] if marker else item.nodeid.partition('::')[0]


def _part_of(text):
  """Returns K and N of K/N, as argparse's `type`."""
  found = re.fullmatch(r'([1-9]\d*)/([1-9]\d*)', text)
  part, parts = map(int, found.groups()) if found else (1, 0)
  if part > parts:
    raise argparse.ArgumentTypeError(f'{text!r} is no part, such as 1/2 or 2/2')
  return part, parts


def pytest_addoption(parser):
  group = parser.getgroup('tiers')
  group.addoption(
    '--tier',
    choices=('test', *TIERS),
    help='which tests to run: those of `make test`, or of one further tier; '
    'all where it is not given',
  )
  group.addoption(
    '--names',
    metavar='A,B',
    help='of tests for each process, those of these processes',
  )
  group.addoption(
    '--shard',
    type=_part_of,
    metavar='K/N',
    help='run the K-th of N parts of the tests, from 1',
  )


def pytest_configure(config):
  config.addinivalue_line('markers', f'{DEAR}: costs much, stays in make test')
  for name, text in TIERS.items():
    config.addinivalue_line('markers', f'{name}: {text}')


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
  result = yield
  _seconds['start'] = cpu_seconds()
  return result


def pytest_collection_modifyitems(config, items):
  tier, names, shard = map(config.getoption, ('tier', 'names', 'shard'))
  kept = items
  if tier:
    kept = [item for item in kept if _is_of(item, tier)]
  if names:
    wanted = names.split(',')
    kept = [item for item in kept if _process_of(item) in wanted]
  if shard:
    part, parts = shard
    kept = [
      item
      for item in kept
      if zlib.crc32(_group_of(item).encode()) % parts == part - 1
    ]
  if kept is not items:
    left_out = set(items) - set(kept)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
  if fixturedef.scope == 'function':
    return (yield)
  with booked_apart():
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
  item.stash[_BEGAN] = cpu_seconds() - _seconds['shared']
  return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
  # The first to import TensorFlow pays for all.
  had_tensorflow = 'tensorflow' in sys.modules
  result = yield
  cost = _cost_of(item)
  if tier_of(item) is None and had_tensorflow and cost > LIMIT:
    pytest.fail(
      f'This test costs {cost:.1f} CPU seconds; one without a marker must cost '
      f'less than {LIMIT:g}, and should cost less than {AIM:g}. Let it share '
      'what others build, or give it a marker (tests/README.md).',
      pytrace=False,
    )
  return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
  result = yield
  cost = _cost_of(item)
  _seconds['marked' if tier_of(item) else 'unmarked'] += cost
  if not tier_of(item):
    _unmarked[item.nodeid] = cost
  return result


def _cost_of(item):
  return cpu_seconds() - _seconds['shared'] - item.stash[_BEGAN]


def pytest_sessionfinish(session):
  if _seconds['all']:
    # Those of the processes of pytest-xdist are in it.
    _seconds['all'] += sum(psutil.Process().cpu_times()[:2])
  else:
    _seconds['all'] = cpu_seconds()
  output = getattr(session.config, 'workeroutput', None)
  if output is not None:
    output['seconds'] = dict(_seconds)
    output['unmarked'] = dict(_unmarked)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
  output = getattr(node, 'workeroutput', {})
  _seconds.update(output.get('seconds', {}))
  _unmarked.update(output.get('unmarked', {}))


def pytest_terminal_summary(terminalreporter):
  spent = {name: f'{_seconds[name]:.0f}' for name in _PARTS}
  terminalreporter.write_line(
    f'CPU seconds: {spent["all"]}, of which {spent["start"]} to start, '
    f'{spent["shared"]} for what tests share, {spent["marked"]} for tests with '
    f'a marker and {spent["unmarked"]} for those without.'
  )
  for test, cost in collections.Counter(_unmarked).most_common(_SHOWN):
    if cost > AIM:
      terminalreporter.write_line(f'  {cost:.1f} {test}')
