"""The text of `python -m experiments.run --help`.

Without a process it says how to start; with a process and a data set it lists
the flags that have an effect there, each with the value that it will have.
"""

import textwrap
from typing import Any

from datasets.sources import catalogue
from experiments.config import defaults, parts_of_run
from experiments.config.usage import UsageError
from tff_ssl import algorithms
from tff_ssl.setting import Setting

_WIDTH = 80

_START = """\
Trains a process on a data set, and writes the results into a folder.

  python -m experiments.run --process=NAME --dataset=NAME [flags]

A first run, without any download, in under a minute:

  python -m experiments.run --process=grouping --dataset=digits

The flags of a process on a data set, each with the value that it will have:

  python -m experiments.run --process=grouping --dataset=digits --help

What would run, without training: add --dry_run. All that there is, a line each:
--list. Your own: --process=my_module:SPEC, --dataset=my_module:SOURCE,
--partition=my_module:PARTITION, --model=my_module:function. The rows of
published tables: python -m experiments.reproduce --list. Flags from a file, as
each run folder holds one: --flagfile=PATH."""


def text(given: dict[str, Any]) -> str:
  """Returns the help text.

  Args:
    given: The flags beside --help, by name.

  Raises:
    UsageError: If a part of the run is unknown.
  """
  if 'process' not in given:
    return '\n'.join(
      [
        _START,
        '',
        *_names('processes', algorithms.PROCESSES),
        *_names('data sets', catalogue.SOURCES),
        '',
        'README.md says more of each.',
      ]
    )
  if 'dataset' not in given:
    raise UsageError(
      f'--help with --process={given["process"]} needs a data set, which many '
      'values depend on: add --dataset=NAME.'
    )
  resolved = defaults.resolve(defaults.with_environment(given))
  context = resolved.parts.context(resolved.values)
  lines = textwrap.wrap(
    f'Flags of --process={given["process"]} on --dataset={given["dataset"]}, '
    'with their values and where these come from. Change one with '
    '--name=value.',
    _WIDTH,
    break_long_words=False,
    break_on_hyphens=False,
  )
  for heading, settings in parts_of_run.headings_of(resolved.parts).items():
    used = [s for s in settings if s.why_unused(context) is None]
    if used:
      lines += ['', f'{heading}:']
    for setting in used:
      lines += _entry(setting, resolved)
  return '\n'.join(lines)


def _entry(setting: Setting, resolved: defaults.Resolved) -> list[str]:
  """Returns the lines of one flag."""
  head = f'  --{setting.name}'
  if setting.name in resolved.values:
    origin = resolved.origins[setting.name]
    value = resolved.values[setting.name]
    if isinstance(value, bool):
      value = str(value).lower()
    head += f'={value}  ({origin})'
  else:
    head += '  (not given)'
  described = setting.help
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
