"""Reading the runner's flags (`experiments.flag_table`), and its help text."""

import textwrap

from absl import flags

from experiments.flag_table import GROUPS


class UsageError(ValueError):
  """A command line that cannot be run; its text is one sentence."""


_DEFINE = {
  'string': flags.DEFINE_string,
  'integer': flags.DEFINE_integer,
  'float': flags.DEFINE_float,
  'boolean': flags.DEFINE_boolean,
}


def parse(argv: list[str]) -> dict[str, object]:
  """Parses a command line.

  Args:
    argv: The command line, the program's name first. `--flagfile=PATH` reads
      flags from a file, such as a run folder's flags.txt.

  Returns:
    The values of the flags that were given, by name.

  Raises:
    UsageError: If a flag is unknown or its value is of the wrong kind, or there
      is an argument that is no flag.
  """
  values = flags.FlagValues()
  for group in GROUPS.values():
    for flag in group:
      _DEFINE[flag.kind](flag.name, None, flag.help, flag_values=values)
  flags.DEFINE_string('flagfile', '', 'File of flags.', flag_values=values)
  try:
    rest = values(argv)
  except flags.Error as error:
    raise UsageError(' '.join(str(error).split())) from error
  except UnicodeDecodeError as error:
    raise UsageError(
      f'--flagfile names a file that is not UTF-8 text ({error}): give one '
      'with a flag in each line.'
    ) from error
  if len(rest) > 1:
    raise UsageError(f'{rest[1]!r} is no flag: flags are written --name=value.')
  given = values.flag_values_dict()
  del given['flagfile']
  return {name: value for name, value in given.items() if value is not None}


def help_text() -> str:
  """Returns the text of --help."""
  lines = [
    'python -m experiments.run --process=NAME --dataset=NAME [flags]',
    '',
    'Trains a process on a data set. What is not given depends on the data',
    'set. --flagfile=PATH reads flags from a file; --list names what there is.',
  ]
  for group, members in GROUPS.items():
    lines += ['', f'{group}:']
    for flag in members:
      lines.append(f'  --{flag.name} ({flag.kind})')
      lines += textwrap.wrap(
        flag.help, 74, initial_indent=' ' * 6, subsequent_indent=' ' * 6
      )
  return '\n'.join(lines)
