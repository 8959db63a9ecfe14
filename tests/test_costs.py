"""Tiers and the limit of CPU seconds, on small files of tests."""

import pathlib
import re

import costs
import pytest

pytest_plugins = ('pytester',)

_ROOT = pathlib.Path(__file__).parents[1]
_TESTS = """
import costs
import pytest

@pytest.mark.parametrize('x', costs.rest_in('tables', [1, 2, (3,)]))
def test_row(x):
  assert x

@pytest.mark.parametrize(
  'x, y', costs.rest_in('runs', [(1, 2), pytest.param(3, 4, id='b')], dear=True)
)
def test_dear(x, y):
  assert x < y

@pytest.mark.contract
@pytest.mark.parametrize('process', ['one', 'two'])
def test_contract(process):
  assert process
"""


@pytest.fixture
def counted(pytester):
  """Runs files of tests in a Python of its own; a third of a second is much."""
  support = pathlib.Path(costs.__file__).parent
  pytester.makeini(f'[pytest]\npythonpath = {support}\n')
  pytester.makeconftest(
    "import costs\ncosts.LIMIT = 0.3\npytest_plugins = ('costs',)"
  )

  def run(*arguments, **files):
    pytester.makepyfile(**files)
    return pytester.runpytest_subprocess('-p', 'no:xdist', *arguments)

  return run


@pytest.mark.dear
@pytest.mark.parametrize(
  'arguments, passed',
  [
    ((), 7),
    (('--tier=test',), 2),
    (('--tier=tables',), 2),
    (('--tier=contract', '--names=two'), 1),
  ],
)
def test_each_test_is_of_one_target(counted, arguments, passed):
  found = counted(*arguments, test_them=_TESTS).parseoutcomes()
  assert found.pop('passed') == passed
  assert found.get('deselected', 0) == 7 - passed


@pytest.mark.dear
def test_shards_are_all_files_each_once(counted):
  files = {f'test_{name}': _TESTS for name in 'abcde'}
  passed = [
    counted(f'--shard={k}/2', **files).parseoutcomes()['passed'] for k in (1, 2)
  ]
  assert sum(passed) == 5 * 7
  assert all(number % 7 == 0 for number in passed)
  refused = counted('--shard=3/2', test_them=_TESTS)
  assert refused.ret == pytest.ExitCode.USAGE_ERROR
  refused.stderr.fnmatch_lines("*'3/2' is no part, such as 1/2*")


_COSTLY = """
import sys
import time
import pytest

sys.modules['tensorflow'] = sys  # As if it had been imported before.

def work():
  began = time.process_time()
  while time.process_time() - began < 0.4:
    pass

@pytest.fixture(scope='module')
def shared():
  work()

@pytest.fixture
def own():
  work()

def test_shares(shared):
  pass

def test_has_a_costly_fixture(own):
  pass

@pytest.mark.runs
def test_is_marked(own):
  pass
"""


@pytest.mark.dear
def test_what_costs_much_fails_without_a_marker(counted):
  result = counted(test_them=_COSTLY)
  result.assert_outcomes(passed=2, failed=1)
  result.stdout.re_match_lines(
    [
      r'.*test_has_a_costly_fixture',
      r'This test costs 0\.\d CPU seconds; one without a marker must',
    ]
  )


def test_each_tier_has_a_target_and_a_line():
  makefile = (_ROOT / 'Makefile').read_text()
  readme = (_ROOT / 'tests' / 'README.md').read_text()
  targets = re.findall(r'^test-(\w+): \$\(STAMP\)', makefile, re.MULTILINE)
  assert sorted(targets) == sorted(costs.TIERS)
  for tier in costs.TIERS:
    assert f'| `make test-{tier}` |' in readme
