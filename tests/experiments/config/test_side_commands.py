"""The command lines of report, reproduce, tune, export and predict."""

import dataclasses

import pytest
import pythons

from experiments import export, predict, report, reproduce, tune
from experiments.config import side_commands
from tff_ssl.common.setting import Setting

COMMANDS = [
  module.COMMAND for module in (report, reproduce, tune, export, predict)
]
COMMAND = side_commands.Command(
  'cook',
  'Cooks a soup.',
  'POT --salt=2',
  (
    Setting('soup', str, 'Its name.'),
    Setting('salt', int, 'Grains of salt.', default=3, at_least=0),
  ),
  required=('soup',),
  arguments='POT',
)


def cook(*argv):
  """Returns the exit code and what the command was run with."""
  seen = []

  def run(values, arguments):
    seen.append((values.soup, values.salt, arguments))
    return 7

  return COMMAND.main(['cook', *argv], run), seen


def test_flags_stand_anywhere_or_in_a_file_and_have_defaults(tmp_path):
  assert cook('pot', '--soup=a') == (7, [('a', 3, ['pot'])])
  assert cook('--soup', 'a', '--salt=1', 'pot') == (7, [('a', 1, ['pot'])])
  path = tmp_path / 'flags.txt'
  path.write_text('--soup=b\n--salt=5\n')
  assert cook('pot', f'--flagfile={path}') == (7, [('b', 5, ['pot'])])


def test_each_of_several_arguments_is_asked_for(capsys):
  command = dataclasses.replace(
    COMMAND, arguments='POT SPOON...', kinds=('a pot', 'a spoon')
  )
  seen = []

  def run(values, arguments):
    del values
    seen.append(arguments)
    return 0

  for given, message in (
    ([], 'POT is missing: name a pot.'),
    (['pot'], 'SPOON is missing: name a spoon.'),
  ):
    assert command.main(['cook', '--soup=a', *given], run) == 2
    assert capsys.readouterr().err == f'error: {message}\n'
  assert command.main(['cook', '--soup=a', 'pot', 'b', 'c'], run) == 0
  assert seen == [['pot', 'b', 'c']]
  assert 'cook POT SPOON... --soup=VALUE [flags]' in command.help()


@pytest.mark.parametrize(
  'argv, message',
  [
    (['pot'], '--soup is missing: give --soup=VALUE.'),
    (['--soup=a'], 'POT is missing: name a run folder.'),
    (['pot', 'pan', '--soup=a'], "'pan' is one folder too many"),
    (['pot', '--soup=a', '--sal=1'], '--sal is no flag: did you mean --salt?'),
    (['pot', '--soup=a', '--salt=-1'], '--salt=-1 must be an integer >= 0.'),
    (['pot', '--soup=a', '--salt=x'], '--salt=x must be an integer >= 0.'),
    (['pot', '--soup'], '--soup has no value: give --soup=VALUE.'),
  ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(argv, message, capsys):
  assert cook(*argv) == (2, [])
  error = capsys.readouterr().err
  assert error.startswith(f'error: {message}') and error.count('\n') == 1


@pytest.mark.parametrize('flag', ['--help', '-h'])
def test_help_says_how_and_lists_every_flag(flag, capsys):
  assert cook(flag) == (0, [])
  assert capsys.readouterr().out == (
    'Cooks a soup.\n\n'
    '  python -m experiments.cook POT --soup=VALUE [flags]\n\n'
    'For example:\n\n'
    '  python -m experiments.cook POT --salt=2\n\n'
    'Flags:\n'
    '  --soup  (required)\n'
    '      Its name.\n'
    '  --salt=3  (default)\n'
    '      Grains of salt. An integer >= 0.\n'
    '  --help  (not given)\n'
    '      Shows this page, and ends.\n'
  )


@pytest.mark.parametrize('command', COMMANDS, ids=lambda c: c.name)
def test_help_fits_a_screen_and_its_example_can_be_read(command, capsys):
  text = command.help()
  assert max(map(len, text.splitlines())) <= 80
  (example,) = (
    part
    for part in text.split('\n\n')
    if part.startswith('  python') and '[flags]' not in part
  )
  _, _, _, *arguments = example.replace('\\\n', ' ').split()
  seen = []
  assert (
    command.main(
      [command.name, *arguments], lambda values, rest: seen.append(rest) or 0
    )
    == 0
  )
  assert len(seen) == 1


def test_help_imports_neither_tensorflow_nor_pandas():
  code = (
    'import sys\n'
    'from experiments import check_data, export, predict\n'
    'from experiments import report, reproduce, tune\n'
    'for module in (check_data, export, predict, report, reproduce, tune):\n'
    "  assert module.main(['x', '--help']) == 0\n"
    "heavy = {'tensorflow', 'pandas', 'matplotlib', 'bokeh', 'jinja2'}\n"
    'heavy &= sys.modules.keys()\n'
    'assert not heavy, heavy\n'
  )
  pythons.run('-c', code, check=True)
