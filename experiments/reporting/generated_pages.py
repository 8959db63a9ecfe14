"""Pages of the documentation that are made from records and result files."""

import collections
import csv
import pathlib
from collections.abc import Mapping

from experiments.config import reference_page
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES

COMMAND = reference_page.COMMAND

_ROOT = pathlib.Path(__file__).parents[2]
_RESULTS = _ROOT / 'results'

# Where the labels are that training sees (`ProcessSpec.labels_at`).
_LABELS = {
  'server': 'The server has labels',
  'dealt': 'A few labels are dealt to the clients',
  'clients': 'Clients have labels, of some or of all of their examples',
  'sets': 'Nobody has labels, but class priors of sets are known',
}


def pages() -> Mapping[str, str]:
  """Returns the text of each page by its path below `docs/`."""
  return {
    'reference/settings.md': reference_page.text(),
    'reference/processes.md': processes(),
    'reference/recipes.md': all_recipes(),
  }


def processes() -> str:
  """Returns the page of all processes, by who has the labels."""
  of_labels = collections.defaultdict(list)
  for spec in PROCESSES.values():
    of_labels[spec.labels_at].append(spec)
  lines = [
    '# Processes',
    '',
    f'`{COMMAND}` writes this page from the records in the code. '
    '`--process=recommended` is the one of them that we recommend for where '
    'the labels are.',
  ]
  for labels_at, title in _LABELS.items():
    lines += ['', f'## {title}', '', '| `--process` | what it is | source |']
    lines += ['|---|---|---|']
    lines += [
      f'| `{spec.name}` | {_cell(spec.description)} | {_cell(spec.source)} |'
      for spec in of_labels[labels_at]
    ]
  return '\n'.join(lines) + '\n'


def all_recipes() -> str:
  """Returns the page of all recipes, with published figures and ours."""
  lines = [
    '# Recipes',
    '',
    f'`{COMMAND}` writes this page from `experiments/recipes/` and '
    '`results/`. A row runs with `python -m experiments.run '
    '--recipe=TABLE:ROW`, a table with `python -m experiments.reproduce '
    '--table=TABLE`. "Ours" is the mean over n seeds; "at" says in which share '
    'of the rounds it was run, and where it stands.',
  ]
  for table in recipes.tables():
    own = _own_figures(table)
    lines += ['', f'## {table}', '']
    lines += ['| row | where | published | ours (n, at) |', '|---|---|---|---|']
    for name, recipe in recipes.load(table).items():
      published = '' if recipe.published is None else f'{recipe.published:.4f}'
      lines.append(
        f'| `{name}` | {_cell(recipe.source)} | {published} | '
        f'{"; ".join(own[name])} |'
      )
  return '\n'.join(lines) + '\n'


def _own_figures(table: str) -> Mapping[str, list[str]]:
  """Returns our figures of each row, in words."""
  figures = collections.defaultdict(list)
  others = [name for name in recipes.tables() if name.startswith(f'{table}_')]
  for path in sorted(_RESULTS.glob(f'{table}*.csv')):
    if path.stem.endswith('_curves') or any(
      path.stem == name or path.stem.startswith(f'{name}_') for name in others
    ):
      continue
    with path.open(encoding='utf-8') as file:
      for row in csv.DictReader(file):
        if row.get('name') and row.get('mean'):
          scale = row.get('scale') or '1.0'
          figures[row['name']].append(
            f'{float(row["mean"]):.4f} ({row["n"]}, {float(scale):g} in '
            f'`results/{path.name}`)'
          )
  return figures


def _cell(text: str) -> str:
  return text.replace('|', '\\|')
