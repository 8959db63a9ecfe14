"""The text of `python -m experiments.run --help`.

Without a process it says how to start; with a process and a data set it lists
the flags that have an effect there, each with the value that it will have.
"""

import textwrap
import types

from experiments.config import catalogue, command_line
from tff_ssl.common.setting import Setting

_WIDTH = 80

_START = """\
Trains a process on a data set, and writes the results into a folder.

  python -m experiments.run --process=NAME --dataset=NAME [flags]

A first run, without any download, in under a minute:

  python -m experiments.run --process=grouping --dataset=digits

The flags of a process on a data set, each with the value that it will have:

  python -m experiments.run --process=grouping --dataset=digits --help

What we recommend for where your labels are, with what it gives beyond the
server's labels alone:

  python -m experiments.run --process=recommended --dataset=digits \\
    --with_lower_bound

What would run, without training: add --dry_run. All that there is, a line each:
--list. Your own: --process=my_module:SPEC, --dataset=my_module:SOURCE,
--partition=my_module:PARTITION, --model=my_module:function. The rows of
published tables: python -m experiments.reproduce --list. Flags from a file, as
each run folder holds one: --flagfile=PATH."""


def start() -> str:
  """Returns the help text where no process was named."""
  return '\n'.join(
    [
      _START,
      '',
      *_names('processes', catalogue.REGISTRIES['process']),
      *_names('data sets', catalogue.REGISTRIES['dataset']),
      '',
      'docs/reference/ says more of each.',
    ]
  )


def of_run(settings: types.SimpleNamespace) -> str:
  """Returns the help text of a run: its settings, with their values."""
  recipe = f' by --recipe={settings.recipe}' if settings.recipe else ''
  lines = textwrap.wrap(
    f'Flags of --process={settings.process} on --dataset={settings.dataset}'
    f'{recipe}, with their values and where these come from. Change one with '
    '--name=value.',
    _WIDTH,
    break_long_words=False,
    break_on_hyphens=False,
  )
  if settings.recommendation:
    lines += ['', *textwrap.wrap(settings.recommendation, _WIDTH)]
  # A flag that gave its value to the one that it stands for.
  passed_on = set(settings.origins.values())
  rows = catalogue.of_run(settings.chosen).values()
  for heading, group in catalogue.by_heading(rows).items():
    used = [
      setting
      for setting, *_ in group
      if setting.name in settings.effective
      and not (setting.instead_of and f'--{setting.name}' in passed_on)
    ]
    if used:
      lines += ['', f'{heading}:']
    for setting in used:
      name = setting.name
      # Those in `used` are as written, without the home folder in them.
      value = settings.used.get(name, getattr(settings, name))
      if value is None:
        value = setting.if_none
      lines += entry(setting, value, settings.origins.get(name, 'default'))
  return '\n'.join(lines)


def entry(setting: Setting, value: object, origin: str) -> list[str]:
  """Returns the lines of one flag, with its value and where that comes from."""
  head = f'  --{setting.name}'
  if value is not None:
    text = str(value).lower() if isinstance(value, bool) else value
    head += f'={text}  ({origin})'
  elif origin == 'required':
    head += '  (required)'
  else:
    head += '  (not given)'
  described = command_line.with_flags(setting.help)
  if setting.choices:
    described += f' One of {", ".join(setting.choices)}.'
  elif setting.type in (int, float):
    described += f' {setting.expected.capitalize()}.'
  return [
    head,
    *textwrap.wrap(
      described,
      _WIDTH - 6,
      initial_indent=' ' * 6,
      subsequent_indent=' ' * 6,
    ),
  ]


def _names(title: str, names) -> list[str]:
  return textwrap.wrap(
    f'{title}: {", ".join(names)}', _WIDTH, subsequent_indent='  '
  )
