"""A picture of gradient diversity: all variants beside accuracy and n.

The rows are those of Zhang et al., Figures D.1 to D.4: gradients and updates,
in the l2- and the l1-norm. The last column has the accuracy, the number of
clients that were measured, and what the authors' code computes.
"""

import itertools
from collections.abc import Sequence

from cycler import cycler
from matplotlib import colormaps, figure, ticker

from experiments.config.usage import UsageError
from experiments.reporting import mean_curves
from experiments.reporting.run_groups import Group

_PREFIX = 'diversity/'
_INCHES = (12.8, 10)
# Line styles differ, too, so that a line shows below another. With a marker, a
# single round shows.
_STYLES = (
  cycler(color=colormaps['tab10'].colors[:6])
  + cycler(
    linestyle=['-', '--', '-.', ':', (0, (6, 1)), (0, (3, 1, 1, 1, 1, 1))]
  )
) * cycler(marker=['.'])
_WHO = {'': 'clients', '_with_server': 'clients and server'}
_NUM_CLIENTS = f'{_PREFIX}num_clients'
_LAST_COLUMN = {
  'accuracy': 'test accuracy',
  _NUM_CLIENTS: 'n, clients measured',
  f'{_PREFIX}gradient_paper_code': "gradient, authors' code:\nn times Eq. 1",
  f'{_PREFIX}update_paper_code': "update, authors' code:\nn times Eq. 1",
}


def _panels() -> list[dict[str, str]]:
  """Returns the titles by column of metrics.csv, for each row of panels."""
  rows = []
  for (kind, norm), (last, title) in zip(
    itertools.product(('gradient', 'update'), ('l2', 'l1')),
    _LAST_COLUMN.items(),
    strict=True,
  ):
    variants = {
      f'{_PREFIX}{kind}_{norm}_{power}{server}': (
        f'{kind}, {norm}, {power}\n{who}'
      )
      for server, who in _WHO.items()
      for power in ('squared', 'plain')
    }
    rows.append({**variants, last: title})
  return rows


def draw(groups: Sequence[Group]) -> figure.Figure:
  """Draws four rows of five panels, with a line for each group of seeds.

  Args:
    groups: From `run_groups.by_run`.

  Returns:
    The picture. The name of a line says whose diversity it is.

  Raises:
    UsageError: If there are more groups than lines in a panel, or a run has no
      gradient diversity.
  """
  if len(groups) > len(_STYLES):
    raise UsageError(
      f'--diversity shows at most {len(_STYLES)} rows, but these runs '
      f'have {len(groups)}: name fewer run folders.'
    )
  rows = _panels()
  columns = [column for titles in rows for column in titles]
  # A column may be in no run, such as those with a server that does not train.
  table = mean_curves.read(groups).reindex(
    columns=['run', 'seed', 'round', *columns]
  )
  _check_measured(groups, table)
  names = [_name(group) for group in groups]
  picture = figure.Figure(figsize=_INCHES, layout='constrained')
  all_axes = picture.subplots(len(rows), len(rows[0]), sharex=True)
  for row, titles in zip(all_axes, rows, strict=True):
    for axes, (column, title) in zip(row, titles.items(), strict=True):
      axes.set_prop_cycle(_STYLES)
      axes.set_title(title, fontsize='medium')
      for group, name in zip(groups, names, strict=True):
        own = table[table['run'] == group.name]
        mean_curves.draw_line(
          axes, name, own.pivot(index='round', columns='seed', values=column)
        )
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
  mean_curves.add_legend(
    picture, mean_curves.columns_of_legend(names, _INCHES[0])
  )
  return picture


def _whole_numbers() -> ticker.Locator:
  return ticker.MaxNLocator(4, integer=True, steps=[1, 2, 5, 10])


def _check_measured(groups, table) -> None:
  for group in groups:
    for folder, summary in zip(group.folders, group.summaries, strict=True):
      own = table[
        (table['run'] == group.name) & (table['seed'] == summary['seed'])
      ]
      if own.filter(like=_PREFIX).isna().all(axis=None):
        raise UsageError(
          f'{folder} has no gradient diversity, which --diversity draws: leave '
          'it out, or train it anew with --gradient_diversity_of=participants '
          'or --gradient_diversity_clients=N.'
        )


def _name(group) -> str:
  """Returns the name of a group, with whose diversity was measured."""
  measured = {_measured_of(summary['flags']) for summary in group.summaries}
  return f'{group.name}, {" and ".join(sorted(measured))}'


def _measured_of(flags) -> str:
  if flags.get('gradient_diversity_of') == 'participants':
    return 'participants'
  return f'{flags["gradient_diversity_clients"]} fixed clients'
