"""`python -m tff_ssl.testing my_module:SPEC`."""

import pathlib
import re
import subprocess
import sys

import pytest

from tff_ssl.simulation import contexts
from tff_ssl.testing import CHECKS
from tff_ssl.testing import __main__ as command

_ROOT = pathlib.Path(__file__).parents[3]
# Neither trains a model.
_CHEAP = ('refuses_bad_arguments', 'documented')
_MODULE = """
import dataclasses

from tff_ssl.algorithms import fed_avg

GOOD = fed_avg.SPECS[0]
EXCEPTED = dataclasses.replace(
  GOOD,
  builder=lambda model, **arguments: fed_avg.build_fed_avg(model, **arguments),
  exceptions={'documented': 'a function without a name'},
)
UNDOCUMENTED = dataclasses.replace(EXCEPTED, exceptions={})
OUTDATED = dataclasses.replace(GOOD, exceptions={'documented': 'once'})
MISTAKEN = dataclasses.replace(GOOD, exceptions={'no_such_check': 'once'})
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
  (tmp_path / 'checked_module.py').write_text(_MODULE)
  monkeypatch.syspath_prepend(tmp_path)
  yield
  # The next test finds its own.
  sys.modules.pop('checked_module', None)


def main(*arguments):
  return command.main(['tff_ssl.testing', *arguments])


@pytest.mark.dear
def test_says_of_each_check_how_it_ended(capsys):
  # In the order of the suite.
  assert main('checked_module:GOOD', '--checks=documented,learns') == 0
  first, *lines, last = capsys.readouterr().out.splitlines()
  assert first == 'Checking checked_module:GOOD ...'
  assert [line.split()[0] for line in lines] == ['learns', 'documented']
  assert all(re.fullmatch(r'\w+ +[\d.]+ s  ok', line) for line in lines)
  assert re.fullmatch(r'fedavg: 2 of 2 promises kept, 0 broken, .*', last)


def test_says_what_is_broken_and_goes_on(capsys):
  chosen = f'--checks={",".join(_CHEAP)}'
  assert main('checked_module:UNDOCUMENTED', chosen) == 1
  _, first, second, last = capsys.readouterr().out.splitlines()
  assert re.fullmatch(r'refuses_bad_arguments +[\d.]+ s  ok', first)
  assert re.match(r'documented +[\d.]+ s  FAILED: The Args of <lambda>', second)
  assert '1 of 2 promises kept, 1 broken' in last


def test_an_exception_holds_while_its_check_fails(capsys):
  assert main('checked_module:EXCEPTED', '--checks=documented') == 0
  out = capsys.readouterr().out
  assert 'fails, as its spec says: a function without a name' in out
  assert main('checked_module:OUTDATED', '--checks=documented') == 1
  assert 'FAILED: fedavg passes documented' in capsys.readouterr().out


@pytest.mark.parametrize(
  'arguments, message',
  [
    ((), 'give a process, as my_module:SPEC'),
    (('a:B', 'c:D'), 'unrecognized arguments: c:D'),
    (('no_such_process',), 'process=no_such_process is unknown'),
    (('no_such_module:SPEC',), "no module 'no_such_module'"),
    (('checked_module:NOTHING',), "has no 'NOTHING'"),
    (('checked_module:fed_avg',), 'is no ProcessSpec'),
    (('checked_module:MISTAKEN',), 'no_such_check'),
    (('checked_module:GOOD', '--checks=learn'), 'did you mean learns?'),
    (('checked_module:GOOD', '--checks=x'), '--list names them'),
    (('checked_module:GOOD', '--checks='), '--checks= is not known'),
    (
      ('checked_module:GOOD', '--chekcs=learns'),
      'unrecognized arguments: --chekcs=learns',
    ),
  ],
)
def test_refusals(arguments, message, capsys, monkeypatch):
  def refuse(*unused):
    raise AssertionError('A context was installed.')

  monkeypatch.setattr(contexts, 'install_context', refuse)
  with pytest.raises(SystemExit) as ended:
    main(*arguments)
  assert ended.value.code == 2
  *_, error = capsys.readouterr().err.splitlines()
  assert error.startswith('python -m tff_ssl.testing: error: ')
  assert message in error


def test_list_and_help(capsys):
  assert main('--list') == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == list(CHECKS)
  assert all(len(line.split()) > 3 for line in lines)
  with pytest.raises(SystemExit) as ended:
    main('--help')
  assert not ended.value.code
  assert 'python -m tff_ssl.testing my_module:SPEC' in capsys.readouterr().out


def test_refuses_and_lists_without_tensorflow():
  code = """
import sys
from tff_ssl.testing import __main__ as command
command.main(['', '--list'])
try:
  command.main(['', 'tff_ssl.algorithms.fed_avg:SPEC'])
except SystemExit as ended:
  sys.exit('imported' if 'tensorflow' in sys.modules else ended.code)
"""
  finished = subprocess.run(
    [sys.executable, '-c', code],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert finished.returncode == 2, finished.stderr
  # It is called SPECS there.
  assert "has no 'SPEC'" in finished.stderr
