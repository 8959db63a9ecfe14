"""Objects that a command line names as module:NAME."""

import sys

import pytest

from tff_ssl.common import user_modules
from tff_ssl.common.setting import Setting

MODULE = """
from tff_ssl.common.setting import Setting

WIDTH = Setting('width', int, 'Units.', at_least=1)


def build(width):
  return width
"""


@pytest.fixture
def write_module(tmp_path, monkeypatch):
  """Writes a module where it can be imported."""
  monkeypatch.syspath_prepend(tmp_path)

  def write(name, text):
    (tmp_path / f'{name}.py').write_text(text)

  return write


def refusal(name, kind=None):
  with pytest.raises(ValueError) as caught:
    user_modules.load('process', name, kind)
  text = str(caught.value)
  assert text.startswith('process=') and text.endswith('.') and '\n' not in text
  return text


@pytest.mark.parametrize(
  'name, expected',
  [
    ('grouping', False),
    ('my_module:SPEC', True),
    ('a.b:C', True),
    ('', False),
  ],
)
def test_a_colon_makes_a_reference(name, expected):
  assert user_modules.is_reference(name) is expected


def test_loads_a_record_of_its_kind_and_a_function(write_module):
  write_module('named_parts', MODULE)
  setting = user_modules.load('process', 'named_parts:WIDTH', Setting)
  assert isinstance(setting, Setting) and setting.name == 'width'
  assert user_modules.load('model', 'named_parts:build')(3) == 3


@pytest.mark.parametrize(
  'name, words',
  [
    ('no_such_module:SPEC', "there is no module 'no_such_module'"),
    ('tff_ssl.no_such:SPEC', "there is no module 'tff_ssl.no_such'"),
    # What lies below a module that is no package.
    (
      'tff_ssl.common.setting.no_such:X',
      "there is no module 'tff_ssl.common.setting.no_such'",
    ),
    (':SPEC', "'' is no name of a module"),
    ('.relative:SPEC', "'.relative' is no name of a module"),
    ('my/file.py:SPEC', "'my/file.py' is no name of a module"),
    ('tff_ssl.common.setting:NO_SUCH', "has no 'NO_SUCH'"),
    ('tff_ssl.common.setting:', "has no ''"),
    (
      'tff_ssl.common.setting:check_arguments',
      'is no Setting, but of the type func',
    ),
  ],
)
def test_refuses_what_is_not_there_or_of_another_kind(name, words):
  text = refusal(name, Setting)
  assert repr(name) in text and words in text


def test_refuses_what_is_no_function(write_module):
  write_module('no_function', 'SIZE = 3\n')
  assert 'is no function, but of the type int' in refusal('no_function:SIZE')


@pytest.mark.parametrize(
  'name, text, words',
  [
    ('needs_more', 'import no_such_package\n', "No module named 'no_such_pac"),
    ('broken', 'X = (\n', 'SyntaxError'),
    ('fails', '\nX = undefined\n', 'NameError'),
    ('raises', "raise RuntimeError('two\\nlines')\n", 'two lines'),
  ],
)
def test_says_where_an_import_stops(name, text, words, write_module, tmp_path):
  write_module(name, text)
  message = refusal(f'{name}:SPEC')
  line = 2 if name == 'fails' else 1
  assert f'{tmp_path / name}.py:{line}' in message and words in message


@pytest.fixture
def canary(tmp_path, monkeypatch):
  """Name of a module that leaves a file where it is imported."""
  left = tmp_path / 'left'
  name = 'canary_of_user_modules'
  (tmp_path / f'{name}.py').write_text(
    f'open({str(left)!r}, "w").close()\nf = len\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  yield name, left
  sys.modules.pop(name, None)


def test_what_a_file_names_is_not_imported(canary):
  name, left = canary
  with user_modules.only_of({'other:f'}, 'say so if it is yours'):
    with pytest.raises(
      ValueError, match=f"model='{name}:f' stands in a file.*: say so if"
    ):
      user_modules.load('model', f'{name}:f')
    # Nor is a function called that is there already.
    with pytest.raises(ValueError, match="'subprocess:call' stands in a file"):
      user_modules.load('model', 'subprocess:call')
  assert not left.exists()
  with user_modules.only_of({f'{name}:f'}, 'say so if it is yours'):
    assert user_modules.load('model', f'{name}:f') is len
  assert left.exists()


def test_a_user_s_own_names_are_imported(canary):
  name, left = canary
  assert user_modules.load('model', f'{name}:f') is len
  assert left.exists()
