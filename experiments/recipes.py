"""Recipes: the rows of published tables as flags, with what was published.

`experiments/recipes/TABLE.csv` holds a table, one row per experiment:

    row        name of the row, which is also part of a folder's name
    flags      a command line of `experiments.run`, in full, without seed and
               folders
    published  the accuracy in print, in [0, 1]; empty where there is none
    source     where it stands in print
    seeds      seeds to run, such as 0,1,2
    note       what a reader must know to compare

`--recipe=TABLE:ROW` runs a row. TABLE is a name from that folder, or the path
of a CSV file of one's own.
"""

import csv
import dataclasses
import math
import pathlib
import re
import shlex

from experiments import defaults
from experiments import flags as flags_lib
from experiments import settings as settings_lib
from experiments.flags import UsageError

FOLDER = pathlib.Path(__file__).parent / 'recipes'
_COLUMNS = ('row', 'flags', 'published', 'source', 'seeds', 'note')
_ROW_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]*')
# What a row does not say: it belongs to the one who runs it.
_OF_THE_USER = frozenset(
  {'seed', 'seeds', 'recipe', 'recipe_scale', 'run_dir', 'list'}
)


@dataclasses.dataclass(frozen=True)
class Recipe:
  """A row of a published table.

  Attributes:
    table: Name of the table, or path of its file.
    row: Name of the row.
    flags_text: Its flags as written.
    published: Accuracy in [0, 1], or `None`.
    source: Where that is printed.
    seeds: Seeds to run.
    note: What a reader must know.
  """

  table: str
  row: str
  flags_text: str
  published: float | None
  source: str
  seeds: tuple[int, ...]
  note: str

  @property
  def name(self) -> str:
    """What `--recipe` takes."""
    return f'{self.table}:{self.row}'

  def flags(self, scale: float = 1.0) -> dict[str, object]:
    """Returns the row's flags by name, shortened by `scale`.

    A shortened run is a picture of the whole one: rounds, the schedule's clock
    and the server's warm-up rounds shrink together (of these, what the row
    gives), the warm-up to one round at least. It is evaluated ten times or
    more.

    Args:
      scale: Share of the rounds, in (0, 1].

    Raises:
      UsageError: If the flags cannot be read or the scale is out of range.
    """
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
    wrong = sorted(_OF_THE_USER & given.keys())
    if wrong or 'total_rounds' not in given:
      raise UsageError(
        f'The recipe {self.name} must give --total_rounds and none of '
        f'{", ".join(sorted(_OF_THE_USER))}.'
      )
    if scale < 1:
      given.update(_shortened(given, scale))
    return given


def _shortened(given, scale) -> dict[str, object]:
  rounds = max(1, round(given['total_rounds'] * scale))
  shorter = {'total_rounds': rounds}
  if given.get('schedule') == 'cosine':
    shorter['schedule_scale'] = given.get('schedule_scale', 1.0) * scale
  if 'server_warmup_rounds' in given:
    shorter['server_warmup_rounds'] = math.ceil(
      given['server_warmup_rounds'] * scale
    )
  if 'rounds_per_evaluation' in given:
    shorter['rounds_per_evaluation'] = max(
      1, min(given['rounds_per_evaluation'], rounds // 10)
    )
  return shorter


def tables() -> list[str]:
  """Returns the names of the tables that come with the project."""
  return sorted(path.stem for path in FOLDER.glob('*.csv'))


def load(table: str) -> dict[str, Recipe]:
  """Reads a table.

  Args:
    table: One of `tables()`, or the path of a file that ends in .csv.

  Returns:
    Its rows by name, in the order of the file.

  Raises:
    UsageError: If there is no such table or it cannot be read.
  """
  path = pathlib.Path(table)
  if path.suffix != '.csv':
    settings_lib.check_name('table', table, tables())
    path = FOLDER / f'{table}.csv'
  try:
    with path.open(newline='', encoding='utf-8') as file:
      reader = csv.DictReader(file, strict=True)
      rows = list(reader)
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise UsageError(
      f'The table of recipes {path} cannot be read: {error}.'
    ) from error
  if tuple(reader.fieldnames or ()) != _COLUMNS:
    raise UsageError(
      f'The table of recipes {path} has the columns {reader.fieldnames}: give '
      f'{", ".join(_COLUMNS)}.'
    )
  recipes = {}
  for line in rows:
    recipe = _read_row(table, line)
    if recipe.row in recipes:
      raise UsageError(
        f'The table of recipes {path} has two rows {recipe.row!r}: rename one.'
      )
    recipes[recipe.row] = recipe
  return recipes


def _read_row(table, line) -> Recipe:
  if None in line or None in line.values():
    raise UsageError(
      f'The row {line["row"]!r} of {table} has not {len(_COLUMNS)} cells: '
      'write cells that hold commas in quotes.'
    )
  if not _ROW_NAME.fullmatch(line['row']):
    raise UsageError(
      f'The row {line["row"]!r} of {table} cannot name a folder: use letters, '
      'digits, "_", "-" and ".".'
    )
  try:
    published = float(line['published']) if line['published'] else None
    if published is not None and not 0 <= published <= 1:
      raise ValueError(line['published'])
  except ValueError:
    raise UsageError(
      f'published={line["published"]!r} of {table}:{line["row"]} must be an '
      'accuracy in [0, 1], or empty.'
    ) from None
  return Recipe(
    table=table,
    row=line['row'],
    flags_text=line['flags'],
    published=published,
    source=line['source'],
    seeds=parse_seeds(line['seeds']),
    note=line['note'],
  )


def parse_seeds(text: str) -> tuple[int, ...]:
  """Returns the seeds in a text such as 0,1,2.

  Raises:
    UsageError: If it is no list of different numbers that are at least 0.
  """
  parts = text.split(',')
  if not all(re.fullmatch('[0-9]+', part) for part in parts) or len(
    set(map(int, parts))
  ) < len(parts):
    raise UsageError(
      f'--seeds={text} must be different whole numbers, such as 0,1,2.'
    )
  return tuple(map(int, parts))


def find(name: str) -> Recipe:
  """Returns the recipe TABLE:ROW.

  Raises:
    UsageError: If there is none; the nearest match is named.
  """
  table, colon, row = name.rpartition(':')
  if not colon:
    raise UsageError(
      f'--recipe={name} must be TABLE:ROW; `python -m experiments.reproduce '
      '--list` names them.'
    )
  if not table.endswith('.csv'):
    settings_lib.check_name('recipe', table, tables())
  known = {recipe.name: recipe for recipe in load(table).values()}
  settings_lib.check_name('recipe', name, known)
  return known[name]


def make(given: dict[str, object]):
  """Resolves and checks the flags of a run, with those of its recipe.

  Args:
    given: The flags that were given, by name; they win over the recipe's, of
      which those are left out that have no effect any more.

  Returns:
    What `settings.make` returns.

  Raises:
    UsageError: If the flags cannot be run.
  """
  if 'recipe' not in given:
    if 'recipe_scale' in given:
      raise UsageError(
        f'--recipe_scale={given["recipe_scale"]} has no effect: only --recipe '
        'uses it.'
      )
    return settings_lib.make(given)
  recipe = find(given['recipe'])
  base = recipe.flags(given.get('recipe_scale', 1.0))
  for name in defaults.displaced(given):
    base.pop(name, None)
  base['run_dir'] = default_run_dir(
    recipe, given.get('recipe_scale', 1.0), given.get('seed', 0)
  )
  # Beside other flags, some of the recipe's may have no effect any more.
  overrides = given.keys() - settings_lib.FREE - {'seed'}
  optional = base.keys() - given.keys() if overrides else ()
  try:
    return settings_lib.make({**base, **given}, optional)
  except UsageError as error:
    raise UsageError(
      f'{error} (The flags of --recipe={recipe.name} count as given.)'
    ) from error


def default_run_dir(
  recipe: Recipe, scale: float, seed: int, runs_dir: str = 'runs'
) -> str:
  """Returns the folder of a run of a recipe; each scale has its own."""
  scaled = '' if scale == 1 else f'_scale{scale:g}'
  table = pathlib.Path(recipe.table).stem
  return f'{runs_dir}/{table}/{recipe.row}{scaled}_seed{seed}'


def changes(settings) -> dict[str, tuple[object, object]]:
  """Returns the settings of a run in which it is not its recipe.

  Args:
    settings: From `make`.

  Returns:
    (Recipe's value, this run's value) by name, `None` where there is none. The
    seed and what `settings.FREE` names, but for the number of rounds, are no
    part of a recipe.
  """
  if settings.recipe is None:
    return {}
  recipe = find(settings.recipe)
  own = settings_lib.make(recipe.flags(settings.recipe_scale or 1.0)).used
  no_part = (settings_lib.FREE | {'seed'}) - {'total_rounds'}
  names = (own.keys() | settings.used.keys()) - no_part
  return {
    name: (own.get(name), settings.used.get(name))
    for name in sorted(names)
    if own.get(name) != settings.used.get(name)
  }


def facts(settings) -> dict[str, object]:
  """Returns what a run's summary says of its recipe: nothing without one."""
  if settings.recipe is None:
    return {}
  recipe = find(settings.recipe)
  return {
    'recipe': recipe.name,
    'published': recipe.published,
    'published_in': recipe.source,
    'recipe_rounds': recipe.flags()['total_rounds'],
    'recipe_changes': sorted(changes(settings)),
  }
