"""The command line of report, reproduce, tune, export, predict and check_data.

Their flags are records, like those of `experiments.run`, and are read, refused
and described in the same way.
"""

import dataclasses
import sys
import textwrap
import types
from collections.abc import Callable
from contextlib import nullcontext

from experiments.config import command_line, flags, help_page, run_settings
from experiments.config.command_line import UsageError
from tff_ssl.common.setting import Setting

_WIDTH = 80
_BY_NAME = {
  setting.name: setting
  for setting in (
    *run_settings.ACTIONS,
    *run_settings.SCHEDULE,
    *run_settings.PLACES,
  )
}


def like(name: str, text: str) -> Setting:
  """Returns the record of a flag of a run with another help text."""
  return dataclasses.replace(_BY_NAME[name], help=text)


# Flags that several of the commands have.
TABLE = Setting('table', str, 'Name of a table, or the path of a CSV file.')
ROWS = Setting('rows', str, 'Rows, such as c10_s2,c47_s5; by default all.')
AGAINST = Setting(
  'against',
  str,
  'Name of a row: the report adds the differences of the others to it, paired '
  'by seed.',
)
OUTPUT = Setting('output', str, 'Path to write to.')
RUNS_DIR = Setting(
  'runs_dir', str, 'Folder of the run folders and tables.', default='runs'
)
CACHE_DIR = _BY_NAME['cache_dir']
JSON = _BY_NAME['json']
HELP = like('help', 'Shows this page, and ends.')
# The folders that a command hands on to its runs.
FOLDERS = tuple(
  dataclasses.replace(_BY_NAME[name], default=None)
  for name in ('data_dir', 'cache_dir')
)


@dataclasses.dataclass(frozen=True)
class Command:
  """A command and what it can be given.

  Attributes:
    name: Name of its module in `experiments`.
    summary: What it does, in a sentence.
    example: A command line.
    flags: Its flags, beside --help.
    required: The names of those that must be given.
    arguments: What it takes beside flags, such as 'RUN_DIR', in this order;
      '...' at the end stands for several. `None` for nothing.
    kinds: What to name for each of them.
  """

  name: str
  summary: str
  example: str
  flags: tuple[Setting, ...]
  required: tuple[str, ...] = ()
  arguments: str | None = None
  kinds: tuple[str, ...] = ('a run folder',)

  def main(
    self,
    argv: list[str],
    run: Callable[[types.SimpleNamespace, list[str]], int],
  ) -> int:
    """Reads a command line and runs it, or prints the help text.

    Args:
      argv: The command line, the program's name first.
      run: Called with the flags' values by name and the other arguments.
        Returns the exit code. It puts what `--json` prints in `found`, a
        dictionary beside the values; what takes long to make, only if `json`.
    """
    try:
      given, arguments = flags.read(
        argv, {setting.name: setting for setting in (*self.flags, HELP)}
      )
      if given.get('help'):
        print(self.help())
        return 0
      self._check(given, arguments)
      values = {
        setting.name: given.get(setting.name, setting.default)
        for setting in self.flags
      }
      has_json = values.get('json', False)
      output = command_line.json_output() if has_json else nullcontext({})
      with output as found:
        return run(types.SimpleNamespace(**values, found=found), arguments)
    except UsageError as error:
      print(f'error: {command_line.sentence(error)}', file=sys.stderr)
      return command_line.REFUSED

  def help(self) -> str:
    """Returns the text of --help."""
    command = f'python -m experiments.{self.name}'
    usage = [f'  {command}']
    if self.arguments is not None:
      usage.append(self.arguments)
    usage += [f'--{name}=VALUE' for name in self.required]
    lines = [
      *textwrap.wrap(self.summary, _WIDTH),
      '',
      ' '.join([*usage, '[flags]']),
      '',
      'For example:',
      '',
      f'  {command} {self.example}',
      '',
      'Flags:',
    ]
    for setting in (*self.flags, HELP):
      is_required = setting.name in self.required
      lines += help_page.entry(
        setting, setting.default, 'required' if is_required else 'default'
      )
    return '\n'.join(lines)

  def _check(self, given, arguments) -> None:
    """Refuses bad values, and missing or surplus parts of a command line."""
    for setting in self.flags:
      value = given.get(setting.name)
      if value is not None and not setting.allows(value):
        raise UsageError(
          f'--{setting.name}={value} must be {setting.expected_for(value)}.'
        )
    for name in self.required:
      if name not in given:
        raise UsageError(f'--{name} is missing: give --{name}=VALUE.')
    if self.arguments is None:
      if arguments:
        raise flags.no_flag(arguments[0])
      return
    names = self.arguments.removesuffix('...').split()
    if len(arguments) < len(names):
      place = len(arguments)
      raise UsageError(f'{names[place]} is missing: name {self.kinds[place]}.')
    if len(arguments) > 1 and not self.arguments.endswith('...'):
      raise UsageError(
        f'{arguments[1]!r} is one folder too many: name a single run folder.'
      )
