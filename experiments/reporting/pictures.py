"""The pictures of a report: curves and gradient diversity.

A line is the mean over the seeds of a group, in the band of all seeds.
"""

import itertools
from collections.abc import Sequence

import pandas as pd
from cycler import cycler
from matplotlib import figure, ticker

from experiments.artifacts import pictures
from experiments.config.command_line import UsageError
from experiments.reporting.run_groups import Group

# Columns of metrics.csv drawn where a run has them -> their names on the axis.
_NAMES = {
  'accuracy': 'test accuracy',
  'mask_rate': 'mask rate',
  'pseudo_label_accuracy': 'accuracy of pseudo-labels',
  'test_proxy_loss': 'test loss of the proxy task',
}
_DIVERSITY = 'diversity'
_MAX_IN_ONE_COLUMN = 3
# Where there are more groups than colours, a colour meets another dash.
_STYLES = cycler(color=pictures.COLOURS * len(pictures.DASHES)) + cycler(
  linestyle=[
    (0, pictures.DASHES[(place + turn) % len(pictures.DASHES)])
    for turn in range(len(pictures.DASHES))
    for place in range(len(pictures.COLOURS))
  ]
)
_NUM_CLIENTS = f'{_DIVERSITY}/num_clients'
_LAST_COLUMN = {
  'accuracy': 'test accuracy',
  _NUM_CLIENTS: 'n, clients measured',
  f'{_DIVERSITY}/gradient_paper_code': (
    "gradient, authors' code:\nn times Eq. 1"
  ),
  f'{_DIVERSITY}/update_paper_code': "update, authors' code:\nn times Eq. 1",
}


def read(
  groups: Sequence[Group], curves: Sequence[str] | None = None
) -> pd.DataFrame:
  """Reads the curves of runs: `run`, `seed`, `round` and a column for each.

  By default these are test accuracy, mask rate, accuracy of pseudo-labels, the
  proxy task's test loss and gradient diversity, where runs have them.
  """
  together = read_all(groups)
  present = list(together.columns)
  if curves is None:
    curves = [column for column in _NAMES if column in present] + [
      column for column in present if column.startswith(_DIVERSITY)
    ]
  for column in curves:
    if column not in present:
      raise UsageError(
        f'--curves={column} is in no metrics.csv of these runs; there are '
        f'{", ".join(present)}.'
      )
  chosen = together[['run', 'seed', 'round', *curves]]
  return chosen.dropna(subset=curves, how='all')


def read_all(groups: Sequence[Group]) -> pd.DataFrame:
  """Reads all columns of metrics.csv that some run has a value in."""
  return pd.concat(
    [
      pd.read_csv(folder / 'metrics.csv')
      .dropna(axis='columns', how='all')
      .assign(run=group.name, seed=summary['seed'])
      for group in groups
      for folder, summary, _ in group.runs()
    ],
    ignore_index=True,
  )


def band_of(table: pd.DataFrame, run: str, column: str) -> pd.DataFrame:
  """Returns `mean`, `low` and `high` of a group over its seeds, by round.

  There is a row where all seeds that have the curve have a value.
  """
  of_run = table[table['run'] == run]
  by_seed = of_run.pivot(index='round', columns='seed', values=column)
  together = by_seed.dropna(axis='columns', how='all').dropna()
  names = ['mean', 'low', 'high']
  if together.empty:
    return pd.DataFrame(columns=names, dtype=float)
  return together.agg(['mean', 'min', 'max'], axis='columns').set_axis(
    names, axis='columns'
  )


def draw_band(axes, drawn: pd.DataFrame, **look) -> None:
  """Draws a line in a band, as `band_of` returns them."""
  (line,) = axes.plot(drawn.index, drawn['mean'], **look)
  if len(drawn):
    axes.fill_between(
      drawn.index,
      drawn['low'],
      drawn['high'],
      color=line.get_color(),
      alpha=0.15,
      linewidth=0,
    )


def _draw_lines(axes, table, column, names) -> None:
  """Draws groups by their names in the table, with those in the picture."""
  axes.set_prop_cycle(_STYLES)
  for run, name in names.items():
    # With a marker, a single round shows.
    draw_band(axes, band_of(table, run, column), label=name, marker='.')


def _add_legend(picture: figure.Figure) -> None:
  """Adds the legend of all panels, which have the same lines, below them."""
  picture.legend(
    *picture.axes[0].get_legend_handles_labels(),
    loc='outside lower center',
    fontsize='small',
    # A dash of each line is to be seen.
    handlelength=4,
  )


def of_curves(table: pd.DataFrame) -> figure.Figure:
  """Draws a panel for each curve of `read` and a line for each group."""
  columns = list(table.columns.drop(['run', 'seed', 'round']))
  runs = table['run'].unique()
  width = 1 if len(columns) <= _MAX_IN_ONE_COLUMN else 2
  height = -(-len(columns) // width)
  picture = figure.Figure(
    figsize=(6 * width, 3 * height + 0.3 + 0.2 * len(runs)),
    layout='constrained',
  )
  panels = list(picture.subplots(height, width, squeeze=False).flat)
  for axes, column in zip(panels, columns, strict=False):
    _draw_lines(axes, table, column, {run: run for run in runs})
    pictures.fit_axes(axes, _NAMES.get(column, column))
  for axes in panels[len(columns) :]:
    axes.remove()
  _add_legend(picture)
  return picture


def of_diversity(groups: Sequence[Group]) -> figure.Figure:
  """Draws all variants of gradient diversity beside accuracy and n.

  The rows are those of Zhang et al., Figures D.1 to D.4: gradients and updates,
  in the l2- and the l1-norm; the last column has what else there is to see.
  """
  if len(groups) > len(pictures.COLOURS):
    raise UsageError(
      f'--diversity shows at most {len(pictures.COLOURS)} rows, but these '
      f'runs have {len(groups)}: name fewer run folders.'
    )
  rows = _diversity_panels()
  columns = [column for titles in rows for column in titles]
  # A column may be in no run, such as those with a server that does not train.
  table = read(groups).reindex(columns=['run', 'seed', 'round', *columns])
  _check_measured(groups, table)
  names = {group.name: _with_whose(group) for group in groups}
  picture = figure.Figure(figsize=(12.8, 11), layout='constrained')
  all_axes = picture.subplots(len(rows), len(rows[0]), sharex=True)
  for row, titles in zip(all_axes, rows, strict=True):
    for axes, (column, title) in zip(row, titles.items(), strict=True):
      axes.set_title(title, fontsize='medium')
      _draw_lines(axes, table, column, names)
      axes.grid(alpha=0.3)
      if table[column].isna().all():
        axes.set_yticks([])
        axes.text(
          *(0.5, 0.5, 'in none of the runs'),
          transform=axes.transAxes,
          ha='center',
          color='0.45',
        )
      elif column == _NUM_CLIENTS:
        axes.set_ylim(0, 1 + 1.1 * table[column].max())
        axes.yaxis.set_major_locator(_whole_numbers())
  for axes in all_axes[-1]:
    axes.set_xlabel('round')
    axes.xaxis.set_major_locator(_whole_numbers())
  _add_legend(picture)
  return picture


def _diversity_panels() -> list[dict[str, str]]:
  """Returns the titles by column of metrics.csv, for each row of panels."""
  rows = []
  for (kind, norm), last in zip(
    itertools.product(('gradient', 'update'), ('l2', 'l1')),
    _LAST_COLUMN.items(),
    strict=True,
  ):
    variants = {
      f'{_DIVERSITY}/{kind}_{norm}_{power}{server}': (
        f'{kind}, {norm}, {power}\n{who}'
      )
      for server, who in (
        ('', 'clients'),
        ('_with_server', 'clients and server'),
      )
      for power in ('squared', 'plain')
    }
    rows.append(variants | dict([last]))
  return rows


def _whole_numbers() -> ticker.Locator:
  return ticker.MaxNLocator(4, integer=True, steps=[1, 2, 5, 10])


def _check_measured(groups, table) -> None:
  for group in groups:
    for folder, summary, _ in group.runs():
      own = table[
        (table['run'] == group.name) & (table['seed'] == summary['seed'])
      ]
      if own.filter(like=f'{_DIVERSITY}/').isna().all(axis=None):
        raise UsageError(
          f'{folder} has no gradient diversity, which --diversity draws: leave '
          'it out, or train it anew with --gradient_diversity_of=participants '
          'or --gradient_diversity_clients=N.'
        )


def _with_whose(group) -> str:
  """Returns the name of a group, with whose diversity was measured."""
  measured = {
    'participants'
    if flags.get('gradient_diversity_of') == 'participants'
    else f'{flags["gradient_diversity_clients"]} fixed clients'
    for flags in (summary['flags'] for summary in group.summaries)
  }
  return f'{group.name}, {" and ".join(sorted(measured))}'
