"""Writes the pages of `docs/reference/` that are made from records.

python -m tools.settings_reference

The pages have no text of their own. To change them, change a record, the
signature of a builder, a table of defaults or a recipe.
"""

import collections
import csv
import pathlib
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from experiments.config import catalogue, command_line
from experiments.config import settings as settings_lib
from experiments.config.catalogue import REGISTRIES, Row
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES
from tff_ssl.common.setting import Scope, Setting
from tools import stored_results

COMMAND = 'python -m tools.settings_reference'
DOCS = pathlib.Path(__file__).parents[1] / 'docs' / 'reference'

# A field that `docs/_static/filter.js` shows, and the entries of a page follow.
_FILTER = (
  '<input class="filter" type="search" hidden aria-label="filter" '
  'placeholder="Filter: words that an entry has">'
)
_SETTINGS = f"""\
# Settings

Each setting is a flag of `python -m experiments.run`, written `--name=value`.
`python -m experiments.run --process=NAME --dataset=NAME --help` lists those
that have an effect there, each with the one value that it will have.

How to read an entry:

- A setting that names no processes, data sets or the like belongs to every run.
- Of several defaults the last one in the list that applies counts. A flag
  counts more than any default. "0.01 or 0.001" depends on the data set or on
  other flags: `--help` with your flags shows which.
- A resumed run must have the same settings as before, but for those whose entry
  says that they may change.

`{COMMAND}` writes these pages from the records in the code.
"""
_RECIPES = f"""\
# Recipes

A row runs with `python -m experiments.run --recipe=TABLE:ROW`, a table with
`python -m experiments.reproduce --table=TABLE`
([what the tables are](../how_to/reproduce.md#what-the-tables-are)).

A page has a column for each file of results: "ours" is
`results/TABLE.csv`, "ours scale0.25" is `results/TABLE_scale0.25.csv`, of runs
with a quarter of the rounds. A figure is the mean over the seeds, whose number
stands in brackets. This page counts the rows that have a published figure, and
those that were run here.

`{COMMAND}` writes these pages from `experiments/recipes/` and `results/`.
"""
# The pages of recipes, by how the names of their tables begin.
_FAMILIES = {
  'ssfl': 'Recipes: grouping (Zhang et al.)',
  'fedlabel': 'Recipes: FedLabel',
  'label_hungry': 'Recipes: SSPT and SSJO',
  'fedul': 'Recipes: FedUL',
}
# What a setting may do on resuming (`Setting.scope`), where it may change.
_FREE = {
  Scope.RUN: 'May change when a run is resumed.',
  Scope.MACHINE: 'May change when a run is resumed: it says where to compute.',
  Scope.NAME: 'May change when a run is resumed: it is about the command.',
}

# What flags choose among. Defaults of the later replace those of the earlier.
_PLURALS = {
  'dataset': 'data sets',
  'process': 'processes',
  'partition': 'partitions',
  'client_optimizer': 'optimizers',
  'schedule': 'schedules',
  'aggregator': 'aggregators',
}
# A default with more values than these follows from a name, such as a folder's.
_MOST_VALUES = 8
# Where the labels are that training sees (`Needs.labels_at`).
_LABELS = {
  'server': 'The server has labels',
  'dealt': 'A few labels are dealt to the clients',
  'clients': 'Clients have labels, of some or of all of their examples',
  'sets': 'Nobody has labels, but class priors of sets are known',
}


# By the flag and its value that bring a default, all values that come with it.
_Chosen: TypeAlias = dict[tuple[str, str], list[Any]]


def settings() -> dict[str, str]:
  """Returns the pages of settings: an index, and one for each heading."""
  declared: dict[str, list[Row]] = {}
  for row in catalogue.every_row():
    declared.setdefault(row.setting.name, []).append(row)
  chosen = _chosen_by_tables()
  pages, index = {}, []
  heads = ('flag', 'what')
  rows = catalogue.first_rows().values()
  for heading, group in catalogue.by_heading(rows).items():
    page = f'settings/{heading.replace(" ", "_")}.md'
    lines = [f'# Settings: {heading}', '', _FILTER, '']
    listed = []
    for setting, *_ in group:
      name = setting.name
      lines += _entry(setting, declared[name], chosen.get(name, {}))
      link = f'[`--{name}`]({page}#--{name})'
      listed.append((link, _cell(_markdown(setting.help))))
    pages[page] = '\n'.join(lines).rstrip() + '\n'
    summary = f'{heading.capitalize()}: {len(listed)} settings'
    table = stored_results.table(heads, listed)
    # With blank lines about it, the table is Markdown.
    index += [
      f'<details><summary>{summary}</summary>',
      '',
      table,
      '',
      '</details>',
    ]
  return {'settings.md': _index(_SETTINGS, pages, index)} | pages


def _index(start: str, pages: Iterable[str], lines: Sequence[str]) -> str:
  """Returns a page that leads to others, with lines on all their entries."""
  tree = ['```{toctree}', ':hidden:', *(page[:-3] for page in pages), '```']
  return '\n'.join([start, _FILTER, '', *lines, '', *tree]) + '\n'


def _chosen_by_tables() -> Mapping[str, _Chosen]:
  """Returns the defaults of processes and other alternatives by setting."""
  found: dict[str, _Chosen] = collections.defaultdict(dict)

  def add(name, flag, alternative, value):
    values = found[name].setdefault((flag, alternative), [])
    if value not in values:
      values.append(value)

  runs = [
    {'process': process, 'dataset': source}
    for process in PROCESSES
    for source in REGISTRIES['dataset']
  ]
  runs += [runs[0] | {'partition': name} for name in REGISTRIES['partition']]
  for given in runs:
    # The flag that a default of an origin depends on.
    flags = {'data set': 'dataset', 'process': 'process'}
    if 'partition' in given:
      flags = {'partition': 'partition'}
    resolved = settings_lib.resolve(given)
    for name, origin in resolved.origins.items():
      if origin in flags and name in resolved.values:
        flag = flags[origin]
        add(name, flag, given[flag], resolved.values[name])
  for flag in ('client_optimizer', 'schedule', 'aggregator'):
    for choice in REGISTRIES[flag].values():
      for name, value in choice.defaults.items():
        add(name, flag, choice.name, value)
  return found


def _entry(
  setting: Setting,
  declared: list[Row],
  chosen: _Chosen,
) -> list[str]:
  lines = [f'## `--{setting.name}`', '', _markdown(setting.help), '']
  lines.append(f'- Value: {_value(setting)}.')
  default = _defaults(setting, declared, chosen)
  if len(default) == 1:
    lines[-1] += f' Default: {default[0]}.'
  elif default:
    lines.append('- Default:')
    lines += [f'  - {line}' for line in default]
  if all(d.flag for d in declared):
    lines.append(f'- Belongs to {_users(declared)}.')
  if conditions := _conditions(declared):
    lines.append(f'- Needs: {_markdown(conditions)}.')
  if setting.instead_of:
    lines.append(f'- In the place of `--{setting.instead_of}`.')
  if setting.needed_by:
    lines.append(f'- Needed by {setting.needed_by}.')
  if setting.scope in _FREE:
    lines.append(f'- {_FREE[setting.scope]}')
  if setting.aliases:
    aliases = ', '.join(f'`--{alias}`' for alias in setting.aliases)
    lines.append(f'- Also called {aliases}.')
  return [*lines, '']


def _value(setting: Setting) -> str:
  if setting.choices:
    return ' or '.join(f'`{choice}`' for choice in setting.choices)
  return setting.expected.replace('True or False', '`true` or `false`')


def _defaults(
  setting: Setting,
  declared: list[Row],
  chosen: _Chosen,
) -> list[str]:
  """Returns a text for each default and who brings it."""
  common = [d.setting.default for d in declared if d.flag is None]
  common = [default for default in common if default is not None]
  lines = [_literal(default) for default in common]
  own = {(d.flag, d.choice.name): _own_default(d) for d in declared if d.flag}
  for flag in _PLURALS:
    values = {
      name: value
      for (other, name), value in own.items()
      if other == flag
      # A process's defaults always replace those of its builder.
      and not (flag == 'process' and (flag, name) in chosen)
    }
    lines += _by_value(flag, values, is_shared=not common and len(values) > 1)
  for flag in _PLURALS:
    values = {
      name: found[0] if len(found) == 1 else tuple(found)
      for (other, name), found in chosen.items()
      if other == flag
      # Of a record, it is among the former; those of processes are not.
      and not (flag != 'process' and found == [own.get((flag, name))])
    }
    if flag == 'dataset' and len(lines) == len(common):
      # Says again what holds anyway.
      values = {k: v for k, v in values.items() if v not in common}
    lines += _by_value(flag, values)
  if setting.like:
    lines.append(f'{"else " if lines else ""}that of `--{setting.like}`')
  if setting.if_none is not None:
    lines.append(_literal(setting.if_none))
  return lines


def _own_default(declared: Row) -> Any:
  """Returns the default of a builder, or of the record."""
  if declared.flag == 'process':
    value = declared.choice.default_of(declared.setting.name)
    if value is not None:
      return value
  return declared.setting.default


def _by_value(
  flag: str, values: Mapping[str, Hashable], is_shared: bool = False
) -> list[str]:
  """Returns a text for each value, with the alternatives that bring it.

  They need no naming where they agree, if it `is_shared`.
  """
  names: dict[Hashable, list[str]] = {}
  for name, value in values.items():
    if value is not None:
      names.setdefault(value, []).append(name)
  if is_shared and len(names) == 1 and None not in values.values():
    return [_literal(value) for value in names]
  return [
    f'{_literal(value)} with {_listed(flag, alternatives)}'
    for value, alternatives in names.items()
  ]


def _literal(value: Any) -> str:
  """Returns a value, or several of which one holds, as flags have them."""
  if isinstance(value, tuple):
    if len(value) > _MOST_VALUES:
      return 'a name that follows from other settings'
    return ' or '.join(map(_literal, value))
  if isinstance(value, bool):
    return f'`{str(value).lower()}`'
  return f'`{value}`'


def _users(declared: list[Row]) -> str:
  names: dict[str, list[str]] = {}
  for one in declared:
    names.setdefault(one.flag, []).append(one.choice.name)
  return '; '.join(_listed(flag, found) for flag, found in names.items())


def _listed(flag: str, names: Iterable[str]) -> str:
  """Returns names of alternatives behind the flag that chooses among them."""
  names, everyone = list(names), list(REGISTRIES[flag])
  if set(names) == set(everyone):
    return f'all {_PLURALS[flag]}'
  first, *others = names
  return ', '.join([f'`--{flag}={first}`', *(f'`{name}`' for name in others)])


def _conditions(declared: list[Row]) -> str:
  """Returns what must hold for the setting to have an effect."""
  texts = [
    ' and '.join(str(condition) for condition in one.setting.used_when)
    for one in declared
  ]
  if not all(texts):
    return ''
  return '; or '.join(dict.fromkeys(texts)).replace('not `', 'no `')


def _markdown(sentence: str) -> str:
  """Returns a text with flags set as code."""
  text = command_line.with_flags(sentence)
  escaped = text.replace('<', '&lt;').replace('>', '&gt;')
  return re.sub(r'--[a-z_]+(=[\w,.:]*\w)?', r'`\g<0>`', escaped)


def processes() -> dict[str, str]:
  """Returns the page of all processes, by who has the labels."""
  lines = [
    '# Processes',
    '',
    f'`{COMMAND}` writes this page from the records in the code. '
    '`--process=recommended` takes the one that we recommend for where the '
    'labels are.',
  ]
  for labels_at, title in _LABELS.items():
    rows = [
      (
        f'`{spec.name}`',
        _cell(spec.description),
        f'`{spec.builder.__name__}`',
        re.sub(
          r'arXiv (\d{4}\.\d{5})',
          r'[arXiv \1](https://arxiv.org/abs/\1)',
          _cell(spec.source),
        ),
      )
      for spec in PROCESSES.values()
      if spec.needs.labels_at == labels_at
    ]
    heads = ('`--process`', 'what it is', 'builder', 'source')
    lines += ['', f'## {title}', '', stored_results.table(heads, rows)]
  return {'processes.md': '\n'.join(lines) + '\n'}


def all_recipes() -> dict[str, str]:
  """Returns the pages of recipes: an index, and one for each family."""
  families = collections.defaultdict(list)
  index = []
  for name in recipes.tables():
    family = next(filter(name.startswith, _FAMILIES), 'others')
    rows = recipes.load(name)
    own = _own_figures(name)
    families[family] += ['', f'## {name}', '', _recipe_table(rows, own)]
    published = sum(recipe.published is not None for recipe in rows.values())
    run = len(rows.keys() & set().union(*own.values()))
    link = f'[{name}](recipes/{family}.md#{name})'
    index.append((link, len(rows), published or '', run or ''))
  pages = {
    f'recipes/{family}.md': '\n'.join(
      [f'# {title}', '', _FILTER, *families[family]]
    )
    + '\n'
    for family, title in (
      _FAMILIES | {'others': 'Recipes: gain, groups, faults, costs'}
    ).items()
  }
  heads = ('table', 'rows', 'published', 'run here')
  table = stored_results.table(heads, index)
  return {'recipes.md': _index(_RECIPES, pages, [table])} | pages


def _recipe_table(
  rows: Mapping[str, recipes.Recipe], own: Mapping[str, Mapping[str, str]]
) -> str:
  """Returns the table of some recipes; columns without a value are left out."""
  columns = {
    'row': [f'`{name}`' for name in rows],
    'where': [_cell(recipe.source) for recipe in rows.values()],
    'published': [
      '' if recipe.published is None else f'{recipe.published:.4f}'
      for recipe in rows.values()
    ],
  } | {
    head: [found.get(name, '') for name in rows] for head, found in own.items()
  }
  shown = {head: column for head, column in columns.items() if any(column)}
  return stored_results.table([*shown], zip(*shown.values(), strict=True))


def _own_figures(table: str) -> Mapping[str, Mapping[str, str]]:
  """Returns our figures by row, for the head of each column."""
  figures: dict[str, dict[str, str]] = {}
  others = [name for name in recipes.tables() if name.startswith(f'{table}_')]
  for path in sorted(stored_results.RESULTS.glob(f'{table}*.csv')):
    if path.stem.endswith('_curves') or any(
      path.stem == name or path.stem.startswith(f'{name}_') for name in others
    ):
      continue
    with path.open(encoding='utf-8') as file:
      for row in csv.DictReader(file):
        if row.get('name') and row.get('mean'):
          head = f'ours{path.stem.removeprefix(table).replace("_", " ")}'
          figures.setdefault(head, {})[row['name']] = (
            f'{float(row["mean"]):.4f} ({row["n"]})'
          )
  return figures


def _cell(text: str) -> str:
  return text.replace('|', '\\|')


def pages() -> dict[str, str]:
  """Returns the text of each page, by its path in `docs/reference/`."""
  return settings() | processes() | all_recipes()


def main() -> int:
  """Writes the pages, and returns the exit code."""
  for name, text in pages().items():
    path = DOCS / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding='utf-8')
    print(f'{path} is written.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
