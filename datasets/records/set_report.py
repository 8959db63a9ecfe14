"""Describes and draws the sets of a partition and their class priors."""

import os

import numpy as np

from datasets.partition.built_partition import SetPartition
from tff_ssl import prior_checks, whole_files

_PANEL_INCHES = 2.4
_COLUMNS = 5


def describe(partition: SetPartition) -> dict[str, object]:
  """Describes the sets of a partition in numbers.

  Returns:
    `sets_of_each_client` (C numbers), `min_set_examples`,
    `median_set_examples`, `max_set_examples`, `different_examples` (an example
    in several sets counts once), `condition_numbers` of the clients' priors
    (`prior_checks.condition_number`), and the number of `absent_classes` of
    each client. Condition numbers leave out absent classes.
  """
  sizes = partition.set_sizes
  sizes = sizes[sizes > 0]
  is_absent = ~partition.class_priors.any(axis=1)
  return {
    'sets_of_each_client': partition.num_sets.tolist(),
    'min_set_examples': int(sizes.min()),
    'median_set_examples': float(np.median(sizes)),
    'max_set_examples': int(sizes.max()),
    'different_examples': len(np.unique(partition.examples)),
    'condition_numbers': [
      prior_checks.condition_number(own) for own in partition.class_priors
    ],
    'absent_classes': is_absent.sum(axis=1).tolist(),
  }


def lines(partition: SetPartition) -> list[str]:
  """Returns the sentences that a run prints on its sets, with warnings."""
  facts = describe(partition)
  numbers, conditions = facts['sets_of_each_client'], facts['condition_numbers']
  few, many = min(numbers), max(numbers)
  said = [
    f'{few if few == many else f"{few} to {many}"} sets at each client with '
    f'{facts["min_set_examples"]}/{facts["median_set_examples"]:g}/'
    f'{facts["max_set_examples"]} examples (min/median/max), condition numbers '
    f'of the class priors {min(conditions):.3g} to {max(conditions):.3g}.'
  ]
  worst = int(np.argmax(conditions))
  if conditions[worst] >= prior_checks.CLOSE_TO_SINGULAR:
    said.append(
      f'Warning: the class priors of {partition.client_names[worst]!r} are '
      f'close to singular (condition number {conditions[worst]:.3g}, of '
      f'{prior_checks.CLOSE_TO_SINGULAR:g} or more): small errors in them '
      'mislead the classifier; sets whose priors differ more help.'
    )
  noise = partition.arguments.get('prior_noise')
  if noise:
    said.append(
      'Note: these are condition numbers of priors with noise '
      f'(prior_noise={noise:g}). The true priors may be closer to singular.'
    )
  absent = np.argwhere(~partition.class_priors.any(axis=1))
  if len(absent):
    clients = len(np.unique(absent[:, 0]))
    said.append(
      f'Note: {clients} clients have no example of some class (the first: '
      f'{partition.client_names[absent[0, 0]]!r}, class {absent[0, 1]}). Their '
      'condition numbers leave it out; their data say nothing about it.'
    )
  return said


def plot_priors(
  partition: SetPartition, path: str | os.PathLike, title: str
) -> None:
  """Draws the class priors of each client, sets x classes, as a PNG.

  Args:
    partition: The partition.
    path: The file to write.
    title: The title, taken literally.
  """
  from matplotlib.figure import Figure

  columns = min(_COLUMNS, partition.num_clients)
  rows = -(-partition.num_clients // columns)
  figure = Figure(
    figsize=(_PANEL_INCHES * (columns + 1), _PANEL_INCHES * (rows + 0.5)),
    layout='constrained',
  )
  axes = figure.subplots(rows, columns, squeeze=False)
  highest = partition.class_priors.max()
  facts = describe(partition)
  for client, own in enumerate(partition.class_priors):
    panel = axes.flat[client]
    image = panel.imshow(
      own[: partition.num_sets[client]],
      aspect='auto',
      interpolation='nearest',
      cmap='viridis',
      vmin=0,
      vmax=highest,
    )
    # A client's name may hold a dollar sign, which would start a formula.
    absent = facts['absent_classes'][client]
    panel.set_title(
      f'{partition.client_names[client]}: '
      f'{facts["condition_numbers"][client]:.3g}'
      + (f', {absent} classes absent' if absent else ''),
      fontsize=8,
      parse_math=False,
    )
    panel.set_xlabel('class')
    panel.set_ylabel('set')
  for panel in axes.flat[partition.num_clients :]:
    panel.set_axis_off()
  figure.suptitle(
    f'{title}\nclass priors of the sets, and their condition number',
    parse_math=False,
  )
  figure.colorbar(image, ax=axes, label='share of the set')
  with whole_files.replacing(path) as file:
    figure.savefig(file, format='png', dpi=100)
