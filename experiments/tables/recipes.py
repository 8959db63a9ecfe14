"""Recipes: rows of published tables, as flags and the published figure.

`experiments/recipes/TABLE.csv` holds a table, one row per experiment:

    row        name of the row, which is also part of a folder's name
    flags      a command line of `experiments.run`, without seed and folders;
               it is complete with the flags of the row `common`
    published  the published figure: an accuracy in [0, 1] or a number of
               rounds; empty where there is none
    measure    the number of a run that is compared with it (`measures`); the
               final accuracy if empty or without this column
    source     where the figure was published
    seeds      seeds to run, such as 0,1,2
    note       what a reader must know to compare

A first row named `common` is no experiment. It has flags and nothing else,
each written --NAME=VALUE, and every row below it has these flags, too. A row
that writes --NAME=OTHER has that value instead, and one that writes --NAME=
with nothing behind it has no such flag:

    common,--process=grouping --dataset=digits --num_groups=2 --total_rounds=60
    two,
    five,--num_groups=5
    alone,--process=fedavg_ssfl --num_groups=

A row with the flags `same_as=TABLE:ROW` reads another measure of the run of
that row. It has no run of its own, and the same seeds unless it gives others.
Common flags are not for it. With flags behind it, it has a run of its own: with
the flags of that row and these, written as beside a row `common`:

    mine,same_as=fedlabel_emnist47:fedavg --process=my_module:SPEC

`--recipe=TABLE:ROW` runs a row. TABLE is a name from that folder, or the path
of a user's own CSV file.
"""

import collections
import csv
import dataclasses
import functools
import math
import pathlib
import re
import shlex
import types
from collections.abc import Mapping
from typing import Any

from experiments.config import catalogue, command_line, recommended
from experiments.config import flags as flags_lib
from experiments.config import settings as settings_lib
from experiments.config.command_line import UsageError
from experiments.preparing import data
from experiments.tables import measures

FOLDER = pathlib.Path(__file__).parents[1] / 'recipes'
_COLUMNS = ('row', 'flags', 'published', 'source', 'seeds', 'note')
_COLUMNS_WITH_MEASURE = (*_COLUMNS[:3], 'measure', *_COLUMNS[3:])
_SAME_AS = 'same_as='
_COMMON = 'common'
_LONGEST_CELL = 10_000
_FLAG = re.compile(r'--(\w+)=(.*)', re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Recipe:
  """A row of a published table; most fields are its columns.

  Attributes:
    table: Name of the table, or path of its file.
    flags_text: The flags of its run, those of the table's row `common` first.
    same_as: TABLE:ROW of the row whose run it reads; `None` if that is its own.
  """

  table: str
  row: str
  flags_text: str
  published: float | None
  source: str
  seeds: tuple[int, ...]
  note: str
  measure: measures.Measure = measures.ACCURACY
  same_as: str | None = None

  @property
  def name(self) -> str:
    """What `--recipe` takes."""
    return f'{self.table}:{self.row}'

  @property
  def run_name(self) -> str:
    """TABLE:ROW of the row whose run it reads, its own or another's."""
    return self.same_as or self.name

  def flags(self, scale: float = 1.0) -> dict[str, object]:
    """Returns the row's flags by name, with a share of the rounds."""
    if not 0 < scale <= 1:
      raise UsageError(
        f'--recipe_scale={scale} must be above 0 and at most 1: it is the '
        'share of the rounds.'
      )
    try:
      given = flags_lib.parse(['recipe', *shlex.split(self.flags_text)])
    except ValueError as error:
      raise UsageError(f'The recipe {self.name} cannot be read: {error}') from (
        error
      )
    # Whoever runs the row chooses those apart.
    if settings_lib.APART & given.keys() or 'total_rounds' not in given:
      raise UsageError(
        f'The recipe {self.name} must give --total_rounds and none of '
        f'{", ".join(sorted(settings_lib.APART))}.'
      )
    return given | shorten(given, scale) if scale < 1 else given


def shorten(given: Mapping[str, object], scale: float) -> dict[str, object]:
  """Returns the flags of a run that change when it is shortened.

  A shortened run is a picture of the whole one: all settings that count rounds
  shrink together, each as its record says (`Setting.rounds`), and so does the
  schedule of the learning rate. It is evaluated ten times or more, or after
  each round.
  """
  settings = catalogue.known(given)
  counting: dict[str | None, list[str]] = collections.defaultdict(list)
  for name in given:
    counting[settings[name].rounds].append(name)
  rounds = max(1, round(given['total_rounds'] * scale))
  shorter = {}
  for name in counting['phase']:
    least = 1 if given[name] else 0
    shorter[name] = max(least, round(given[name] * scale))
    rounds = max(rounds, shorter[name] + 1)
  for name in counting['head']:
    shorter[name] = min(round(given[name] * scale), rounds - 1)
  for name in counting['share']:
    shorter[name] = math.ceil(given[name] * scale)
  shorter['total_rounds'] = rounds
  if 'schedule' in given:
    schedule = catalogue.find('schedule', given['schedule'])
    shorter |= schedule.shorten(given, scale)
  if 'rounds_per_evaluation' in given:
    interval = max(1, min(given['rounds_per_evaluation'], rounds // 10))
    shorter['rounds_per_evaluation'] = interval
    if 'evaluation_offset' in given:
      # The same rounds as with the whole offset, and below the interval.
      shorter['evaluation_offset'] = given['evaluation_offset'] % interval
  return shorter


def tables() -> list[str]:
  """Returns the names of the tables that come with the project."""
  return sorted(path.stem for path in FOLDER.glob('*.csv'))


def load(table: str) -> dict[str, Recipe]:
  """Reads the rows of a table by name, in their order.

  Args:
    table: One of `tables()`, or the path of a file that ends in .csv.
  """
  read = functools.cache(_read)  # Many rows may name one other table.
  return {
    name: recipe if recipe.same_as is None else _resolved(recipe, read)
    for name, recipe in read(table).items()
  }


def load_with(table: str, add_rows: str | None) -> dict[str, Recipe]:
  """Returns the rows of a table, and behind them those of a file of one's own.

  Args:
    add_rows: The path of a table of recipes, each of them on the data of a row
      of `table`; `None` for no such file.
  """
  known = load(table)
  if add_rows is None:
    return known
  given = f'--add_rows={add_rows}'
  if not add_rows.endswith('.csv'):
    raise UsageError(f'{given} must be the path of a CSV file.')
  try:
    added = load(add_rows)
    data_of = {_data(recipe) for recipe in known.values()}
    strange = [row for row in added if _data(added[row]) not in data_of]
  except UsageError as error:
    raise UsageError(f'{given}: {error}') from error
  if taken := sorted(known.keys() & added.keys()):
    raise UsageError(
      f'{given}: {table} has a row {taken[0]!r} of its own: rename yours.'
    )
  if strange:
    raise UsageError(
      f'{given}: no row of {table} has the data and the labels of '
      f'{strange[0]!r}: begin its flags with {_SAME_AS}{table}:ROW.'
    )
  return known | added


def _data(recipe) -> frozenset[tuple[str, object]]:
  """Returns the flags that say who has which examples and labels."""
  given = recipe.flags()
  rows = catalogue.first_rows(given)
  return frozenset(
    (name, value)
    for name, value in given.items()
    if rows[name].heading in ('data', 'partition') and name != 'process'
  )


def read_csv(
  path: pathlib.Path, what: str
) -> tuple[tuple[str, ...], list[dict[str | None, Any]]]:
  """Returns the columns and the rows of a file; `what` it is, for messages."""
  try:
    if path.exists() and not path.is_file():
      raise OSError('no file')  # Who opens a pipe waits for ever.
    with path.open(newline='', encoding='utf-8') as file:
      reader = csv.DictReader(file, strict=True)
      # An empty file has none; once it is closed, they cannot be asked for.
      return tuple(reader.fieldnames or ()), list(reader)
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise UsageError(f'{what} cannot be read: {error}.') from error


def _read(table) -> dict[str, Recipe]:
  """Returns the rows of a table, with its common flags."""
  path = pathlib.Path(table)
  if path.suffix != '.csv':
    command_line.check_name('table', table, tables())
    path = FOLDER / f'{table}.csv'
  columns, rows = read_csv(path, f'The table of recipes {path}')
  if columns not in (_COLUMNS, _COLUMNS_WITH_MEASURE):
    raise UsageError(
      f'The table of recipes {path} has the columns {list(columns)}: give '
      f'{", ".join(_COLUMNS)}, and measure behind published if it has one.'
    )
  recipes = {}
  common = None
  for place, line in enumerate(rows):
    _check_cells(table, line, len(columns))
    if line['row'] == _COMMON:
      common = _read_common(table, line, is_first=place == 0)
      continue
    recipe = _read_row(table, line, common)
    if recipe.row in recipes:
      raise UsageError(
        f'The table of recipes {path} has two rows {recipe.row!r}: rename one.'
      )
    recipes[recipe.row] = recipe
  return recipes


def _check_cells(table, line, columns) -> None:
  if None in line or None in line.values():
    raise UsageError(
      f'The row {line["row"]!r} of {table} has not {columns} cells: '
      'write cells that hold commas in quotes.'
    )
  # Flags are taken apart in a time that grows with the square of their length.
  if max(map(len, line.values())) > _LONGEST_CELL:
    raise UsageError(
      f'The row {line["row"]!r} of {table} has a cell of more than '
      f'{_LONGEST_CELL:,} characters: shorten it.'
    )


def _read_common(table, line, is_first) -> dict[str, str]:
  """Returns the arguments that all rows have, by name of the flag."""
  if not is_first:
    raise UsageError(
      f'The row {_COMMON!r} of {table} must be the first: it holds the flags '
      'that all rows have.'
    )
  other = [name for name in line if line[name] and name not in ('row', 'flags')]
  if other:
    raise UsageError(
      f'The row {_COMMON!r} of {table} has {", ".join(other)}: it holds the '
      'flags that all rows have and nothing else. Leave these cells empty, or '
      'give an experiment another name.'
    )
  return _by_name(f'{table}:{_COMMON}', line['flags'])


def _by_name(name, text) -> dict[str, str]:
  """Returns the arguments that other rows take, by name of the flag."""
  arguments = {}
  for argument in _split(name, text):
    flag = _FLAG.fullmatch(argument)
    if flag is None or not flag[2] or flag[1] in arguments:
      raise UsageError(
        f'{name}: {argument!r} must be --NAME=VALUE, each NAME once.'
      )
    arguments[flag[1]] = argument
  return arguments


def _with_common(name, text, common) -> str:
  """Returns the flags of a row together with those that all rows have."""
  arguments, own = dict(common), []
  for argument in _split(name, text):
    flag = _FLAG.fullmatch(argument)
    shared = flag is not None and flag[1] in common
    if shared:
      arguments.pop(flag[1], None)
    if not shared or flag[2]:
      own.append(argument)
  return shlex.join([*arguments.values(), *own])


def _split(name, text) -> list[str]:
  try:
    return shlex.split(text)
  except ValueError as error:
    raise UsageError(f'The recipe {name} cannot be read: {error}') from error


def _read_row(table, line, common) -> Recipe:
  if not catalogue.FOLDER_NAME.fullmatch(line['row']):
    raise UsageError(
      f'The row {line["row"]!r} of {table} cannot name a folder: use letters, '
      'digits, "_", "-" and ".".'
    )
  cell = 'measure'
  try:
    measure = measures.parse(line.get('measure', ''))
    cell = 'published'
    published = line['published'] and measure.published(line['published'])
  except ValueError as error:
    raise UsageError(f'{table}:{line["row"]}: {cell}={error}.') from None
  text, other = line['flags'], None
  if text.startswith(_SAME_AS):
    # Common flags are not for it: those of the other row are.
    other, _, text = text.removeprefix(_SAME_AS).partition(' ')
  elif common is not None:
    text = _with_common(f'{table}:{line["row"]}', text, common)
  return Recipe(
    table=table,
    row=line['row'],
    flags_text=text,
    published=None if published == '' else published,
    source=line['source'],
    # No seeds of its own: those of the other row.
    seeds=parse_seeds(line['seeds']) if line['seeds'] or other is None else (),
    note=line['note'],
    measure=measure,
    same_as=other,
  )


def _resolved(recipe, read) -> Recipe:
  """Returns a row that names another, with what it has from that."""
  table, _, row = recipe.same_as.rpartition(':')
  given = f'{recipe.name}: flags={_SAME_AS + recipe.same_as!r}'
  if not table or not catalogue.FOLDER_NAME.fullmatch(row):
    raise UsageError(
      f'{given} must be {_SAME_AS}TABLE:ROW, and behind it nothing or flags.'
    )
  if table.endswith('.csv'):
    # Relative to the table that names it, from wherever that is read.
    folder = pathlib.Path(recipe.table).parent
    table = str(folder / table)
  try:
    known = {other.name: other for other in read(table).values()}
    command_line.check_name('recipe', f'{table}:{row}', known)
  except UsageError as error:
    raise UsageError(f'{given} names no row: {error}') from error
  other = known[f'{table}:{row}']
  if other.same_as is not None:
    raise UsageError(
      f'{given} names a row that is {_SAME_AS}{other.same_as} itself: name '
      'that one.'
    )
  own, text = recipe.flags_text, other.flags_text
  if own:
    by_name = _by_name(f'{given}, {other.name}', text)
    text = _with_common(recipe.name, own, by_name)
  return dataclasses.replace(
    recipe,
    flags_text=text,
    seeds=recipe.seeds or other.seeds,
    same_as=None if own else other.name,
  )


def parse_seeds(text: str) -> tuple[int, ...]:
  """Returns the seeds in a text such as 0,1,2, which are different."""
  parts = text.split(',')
  if not all(re.fullmatch('[0-9]+', part) for part in parts) or len(
    set(map(int, parts))
  ) < len(parts):
    raise UsageError(
      f'--seeds={text} must be different whole numbers, such as 0,1,2.'
    )
  return tuple(map(int, parts))


def find(name: str) -> Recipe:
  """Returns the recipe TABLE:ROW; a `UsageError` names the nearest match."""
  table, colon, row = name.rpartition(':')
  if not colon:
    raise UsageError(
      f'--recipe={name} must be TABLE:ROW; `python -m experiments.reproduce '
      '--list` names them.'
    )
  if not table.endswith('.csv'):
    command_line.check_name('recipe', table, tables())
  known = {recipe.name: recipe for recipe in load(table).values()}
  command_line.check_name('recipe', name, known)
  return known[name]


def make(given: dict[str, object]):
  """Returns the settings (`settings.make`) of a run, maybe by a recipe.

  Args:
    given: The flags that were given, by name. They replace those of the recipe;
      flags of the recipe that then have no effect are left out.
  """
  if 'recipe' not in given:
    if 'recipe_scale' in given:
      raise UsageError(
        f'--recipe_scale={given["recipe_scale"]} has no effect: only --recipe '
        'uses it.'
      )
    return _make(given)
  recipe = find(given['recipe'])
  scale = given.get('recipe_scale', 1.0)
  base = recipe.flags(scale)
  settings = catalogue.known({**base, **given})
  for name in settings_lib.displaced(given, settings):
    base.pop(name, None)
  base['run_dir'] = default_run_dir(recipe, scale, given.get('seed', 0))
  # Beside other flags, some of the recipe's may have no effect any more.
  overrides = given.keys() - settings_lib.APART
  optional = base.keys() - given.keys() if overrides else ()
  origins = dict.fromkeys(base.keys() - given.keys(), f'recipe {recipe.name}')
  try:
    return _make({**base, **given}, optional, origins)
  except UsageError as error:
    raise UsageError(
      f'{error} (The flags of --recipe={recipe.name} count as given.)'
    ) from error


def _make(given, *arguments):
  """Returns what `settings.make` does, once the labels are read if they decide.

  Only --help does without them.
  """
  settings = settings_lib.make(given, *arguments)
  if not settings.labels_decide or given.get('help'):
    return settings
  found = data.find_labels(settings)
  return settings_lib.make(given, *arguments, found=found)


def default_run_dir(
  recipe: Recipe,
  scale: float,
  seed: int,
  runs_dir: str = 'runs',
  changed: Mapping[str, object] = types.MappingProxyType({}),
) -> str:
  """Returns the folder of a run of a recipe.

  Each scale, and each set of flags that differs from the recipe, has another.
  """
  scaled = '' if scale == 1 else f'_scale{scale:g}'
  other = ''.join(f'_{name}={value}' for name, value in changed.items())
  table, _, row = recipe.run_name.rpartition(':')
  stem = pathlib.Path(table).stem
  return f'{runs_dir}/{stem}/{row}{other}{scaled}_seed{seed}'


def changes(settings) -> dict[str, tuple[object, object]]:
  """Returns where a run differs: its recipe's value and its own, by name.

  The seed and what `settings.FREE` names, but for the number of rounds, are no
  part of a recipe.
  """
  if settings.recipe is None:
    return {}
  recipe = find(settings.recipe)
  flags = recipe.flags(settings.recipe_scale or 1.0)
  if recommended.is_same(settings.process, flags.get('process')):
    flags['process'] = settings.process
  own = settings_lib.make(flags).used
  no_part = (settings_lib.FREE | settings_lib.REPETITION) - {'total_rounds'}
  if recipe.measure != measures.ACCURACY:
    # What is evaluated decides what is read.
    no_part -= {'rounds_per_evaluation', 'evaluation_offset'}
  names = (own.keys() | settings.used.keys()) - no_part
  return {
    name: (own.get(name), settings.used.get(name))
    for name in sorted(names)
    if own.get(name) != settings.used.get(name)
  }


def facts(settings) -> dict[str, object]:
  """Returns what a run's summary says of its recipe; nothing without one.

  Where several rows read the run, it is the row that the run belongs to.
  """
  if settings.recipe is None:
    return {}
  recipe = find(find(settings.recipe).run_name)
  has_measure = recipe.measure != measures.ACCURACY
  return {
    **({'measure': str(recipe.measure)} if has_measure else {}),
    'recipe': recipe.name,
    'published': recipe.published,
    'published_in': recipe.source,
    'recipe_rounds': recipe.flags()['total_rounds'],
    'recipe_changes': sorted(changes(settings)),
  }
