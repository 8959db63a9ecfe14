"""Reading flags: one for each setting, and for each of its other names."""

import difflib
import itertools
import pathlib

from absl import flags

import tff_ssl
from experiments.config import catalogue
from experiments.config.command_line import UsageError
from tff_ssl.common.setting import Setting

# Far more than there are flags, and longer than their names. absl reads flags
# in a time that grows with the square of their number, and looks for names like
# an unknown one in depth.
_MAX_ARGUMENTS, _MAX_NAME = 10_000, 100
# What other packages call these settings, where no name here is like it.
_ELSEWHERE = {
  'alpha': 'dirichlet_alpha',
  'client_lr': 'learning_rate',
  'data': 'data_dir',
  'gpu': 'device',
  'lr': 'learning_rate',
  'num_rounds': 'total_rounds',
  'output': 'run_dir',
  'output_dir': 'run_dir',
  'server_lr': 'server_learning_rate',
}
# The flags that may name a choice of the user's own.
_CHOOSING = {
  row.setting.name: row.setting
  for row in catalogue.COMMON
  if row.setting.name in catalogue.REGISTRIES
}
_DEFINE = {
  str: flags.DEFINE_string,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  bool: flags.DEFINE_boolean,
}


def parse(argv: list[str]) -> dict[str, object]:
  """Returns the values of the flags of a run that were given, by name.

  Args:
    argv: The command line, the program's name first. `--flagfile=PATH` reads
      flags from a file, such as a run folder's flags.txt.
  """
  argv = _with_flag_files(argv)
  # Of the user's own choices first: they have settings of their own.
  choices, _ = _read(argv, _CHOOSING, known_only=True)
  given, arguments = _read(argv, catalogue.known(choices))
  if arguments:
    raise no_flag(arguments[0])
  return given


def read(
  argv: list[str], settings: dict[str, Setting]
) -> tuple[dict[str, object], list[str]]:
  """Returns the values of the flags that were given, and what is no flag.

  Raises:
    UsageError: If a flag is unknown or its value is of the wrong kind.
  """
  return _read(_with_flag_files(argv), settings)


def _read(argv, settings, known_only=False):
  """Reads a command line in which flag files are unfolded."""
  values, aliases = _define(settings)
  try:
    _, *arguments = values(argv, known_only)
  except flags.UnrecognizedFlagError as error:
    raise UsageError(_unknown(error.flagname, settings)) from error
  except flags.IllegalFlagValueError as error:
    raise UsageError(_unreadable(error, settings)) from error
  except flags.Error as error:
    raise UsageError(_without_value(error)) from error
  given = {
    name: value
    for name, value in values.flag_values_dict().items()
    if value is not None and name not in aliases
  }
  return given, arguments


def no_flag(argument: str) -> UsageError:
  """Returns the error of something on a command line that is no flag."""
  return UsageError(f'{argument!r} is no flag: flags are written --name=value.')


def _with_flag_files(argv: list[str]) -> list[str]:
  """Returns a command line with the flags of its flag files in it."""
  remedy = 'give the path of a text file with a flag in each line'
  for before, argument in itertools.pairwise(['', *argv]):
    path = argument.partition('--flagfile=')[2]
    if before == '--flagfile':
      path = argument
    if path and pathlib.Path(path).is_fifo():  # Who opens it waits for ever.
      raise UsageError(f'{argument} is a pipe: {remedy}.')
  try:
    argv = flags.FlagValues().read_flags_from_files(argv)
  except flags.CantOpenFlagFileError as error:
    cause = error.__context__  # Of the operating system.
    raise UsageError(
      f'--flagfile={cause.filename} cannot be read: {cause.strerror}; {remedy}.'
    ) from error
  except UnicodeDecodeError as error:
    raise UsageError(
      f'--flagfile names a file that is not UTF-8 text ({error}): {remedy}.'
    ) from error
  except flags.Error as error:
    raise UsageError('--flagfile has no value: give --flagfile=PATH.') from (
      error
    )
  if len(argv) > _MAX_ARGUMENTS:
    raise UsageError(
      f'--flagfile makes {len(argv):,} arguments, and {_MAX_ARGUMENTS:,} are '
      f'the most: {remedy}.'
    )
  for argument in argv:
    is_long = len(argument.partition('=')[0]) > _MAX_NAME
    if (is_long and argument.startswith('-')) or '\0' in argument:
      raise UsageError(
        f'{argument[:_MAX_NAME]!r} is no flag: flags are written --name=value, '
        'without NUL bytes.'
      )
  return argv


def _define(
  settings: dict[str, Setting],
) -> tuple[flags.FlagValues, set[str]]:
  """Returns absl's flags for the settings, and which of them are aliases."""
  values, aliases = flags.FlagValues(), set()
  # Flags may stand behind other arguments.
  values.set_gnu_getopt()
  for setting in settings.values():
    _DEFINE[setting.type](setting.name, None, setting.help, flag_values=values)
    for alias in setting.aliases:
      flags.DEFINE_alias(alias, setting.name, flag_values=values)
      aliases.add(alias)
  return values, aliases


def _unknown(name: str, settings: dict[str, Setting]) -> str:
  if name == 'version':
    return f'--version is no flag: this is tff_ssl {tff_ssl.__version__}.'
  near = difflib.get_close_matches(name, list(settings), n=1, cutoff=0.6)
  if _ELSEWHERE.get(name) in settings:
    near = [_ELSEWHERE[name]]
  hint = f'did you mean --{near[0]}?' if near else 'see --help.'
  return f'--{name} is no flag: {hint}'


def _unreadable(
  error: flags.IllegalFlagValueError, settings: dict[str, Setting]
) -> str:
  """Returns the sentence for a value that is not of the kind of its flag."""
  # absl puts the flag with its value before the error of its parser.
  text = str(error).removesuffix(f': {error.__context__}')
  given = ' '.join(text.removeprefix('flag ').split())
  setting = settings[given.removeprefix('--').partition('=')[0]]
  expected = 'true or false' if setting.type is bool else setting.expected
  return f'{given} must be {expected}.'


def _without_value(error: flags.Error) -> str:
  """Returns the sentence for a flag at the end, to which a value is missing."""
  *_, flag = str(error).split()
  name = flag.lstrip('-')
  return f'--{name} has no value: give --{name}=VALUE.'
