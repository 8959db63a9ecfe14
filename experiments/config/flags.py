"""Reading flags: one for each setting, and for each of its other names."""

import difflib

from absl import flags

from experiments.config import parts_of_run
from experiments.config.usage import UsageError
from tff_ssl.setting import Setting

_DEFINE = {
  str: flags.DEFINE_string,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  bool: flags.DEFINE_boolean,
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
  try:
    # Unfolded first: what a user brings has flags of its own.
    argv = flags.FlagValues().read_flags_from_files(argv)
  except flags.Error as error:
    raise UsageError(' '.join(str(error).split())) from error
  except UnicodeDecodeError as error:
    raise UsageError(
      f'--flagfile names a file that is not UTF-8 text ({error}): give one '
      'with a flag in each line.'
    ) from error
  settings = parts_of_run.all_settings(
    parts_of_run.offers_of_user(_named_parts(argv))
  )
  values, aliases = _define(settings)
  try:
    rest = values(argv)
  except flags.UnrecognizedFlagError as error:
    raise UsageError(_unknown(error.flagname, settings)) from error
  except flags.Error as error:
    raise UsageError(' '.join(str(error).split())) from error
  if len(rest) > 1:
    raise UsageError(f'{rest[1]!r} is no flag: flags are written --name=value.')
  return {
    name: value
    for name, value in values.flag_values_dict().items()
    if value is not None and name not in aliases
  }


def _define(
  settings: dict[str, Setting],
) -> tuple[flags.FlagValues, set[str]]:
  """Returns absl's flags for the settings, and which of them are aliases."""
  values, aliases = flags.FlagValues(), set()
  for setting in settings.values():
    _DEFINE[setting.type](setting.name, None, setting.help, flag_values=values)
    for alias in setting.aliases:
      flags.DEFINE_alias(alias, setting.name, flag_values=values)
      aliases.add(alias)
  return values, aliases


def _named_parts(argv: list[str]) -> dict[str, str]:
  """Returns the flags that may name a user's own part, as far as given."""
  values = flags.FlagValues()
  for name in parts_of_run.OF_USERS:
    flags.DEFINE_string(name, None, '', flag_values=values)
  try:
    values(argv, known_only=True)
  except flags.Error as error:
    raise UsageError(' '.join(str(error).split())) from error
  return {k: v for k, v in values.flag_values_dict().items() if v is not None}


def _unknown(name: str, settings: dict[str, Setting]) -> str:
  """Returns the sentence for a flag that there is not."""
  near = difflib.get_close_matches(name, list(settings), n=1, cutoff=0.6)
  hint = f'did you mean --{near[0]}?' if near else 'see --help.'
  return f'--{name} is no flag: {hint}'
