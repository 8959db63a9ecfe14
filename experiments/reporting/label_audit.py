"""Which labels trained runs, and which labels chose between them.

All that is said stands in the run folders: split.json says who has labels, the
record of the process who trains, the flags who decided. What they do not hold
is called not recorded.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from datasets.partition.assignment import Partition
from datasets.partition.client_labels import REDRAWN
from datasets.records import split_manifest
from experiments.config import catalogue
from experiments.config.command_line import UsageError
from experiments.reporting.run_groups import Group
from tff_ssl.common import user_modules
from tff_ssl.objectives.two_experts import TRUTH

NOT_RECORDED = 'not recorded'
# Column of metrics.csv -> the labels that it was measured with.
_MEASURED = {
  'accuracy': 'test labels (accuracy, loss)',
  'validation_accuracy': 'validation labels',
  'pseudo_label_accuracy': (
    "the clients' hidden labels, which the simulation has (accuracy of "
    'pseudo-labels)'
  ),
  'pseudo_label_classes': "the clients' hidden labels (pseudo-labels by class)",
  'server_pseudo_label_accuracy': (
    "the server's labels (estimated accuracy of pseudo-labels)"
  ),
}
# Measures that read a figure off by labels -> what they do with which labels.
_CHOSEN_BY_TEST = {
  'best_accuracy': 'the best evaluation was taken, by test labels',
  'rounds_to': 'the round was chosen in which test accuracy first sufficed',
}
_CHOSEN_BY_VALIDATION = 'accuracy_at_best_validation'


@dataclasses.dataclass(frozen=True)
class Audit:
  """What labels may have been used for, and which were; what test labels chose.

  The latter are names of lines, as far as it is recorded; mostly none.
  """

  lines: Mapping[str, str]
  chosen_by_test: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
  """Who had which examples and labels in a run; `description` is split.json."""

  partition: Partition
  description: Mapping[str, Any]

  @property
  def labels_at(self) -> str:
    """Whose labels training sees, as in `ProcessSpec`."""
    return self.description['labels']['labels_at']

  @property
  def redrawn_ratio(self) -> float | None:
    """The share of labels that is hidden anew in each pass, if it is."""
    labels = self.description['labels']
    return labels['mask_ratio'] if labels.get('mask') == REDRAWN else None

  @property
  def labelled(self) -> np.ndarray:
    """`int64 [K]`, the labels that each client sees in some pass."""
    return split_manifest.labels_per_client(self.partition, self.labels_at)

  @property
  def labelled_in_a_pass(self) -> np.ndarray:
    """`int64 [K]`, the labels that each client sees in one pass."""
    return split_manifest.labels_per_client(
      self.partition, self.labels_at, self.redrawn_ratio
    )


def split_of(folder: pathlib.Path) -> Split | None:
  """Returns the split of a run; `None` where no sound one is recorded."""
  try:
    loaded = split_manifest.load(folder / 'split.json', folder / 'split.npz')
  except (OSError, ValueError):
    return None
  return Split(*loaded)


def of_group(group: Group) -> Audit:
  """Returns the audit of runs that differ only by seed."""
  splits = [split for folder in group.folders if (split := split_of(folder))]
  flags = group.summaries[0]['flags']
  try:
    process = catalogue.find('process', flags['process'])
  except (UsageError, KeyError):
    process = None  # It is not to be had here.
  lines = {'Training': f'{NOT_RECORDED}: split.json is missing or damaged'}
  if splits:
    lines = {
      'Labels at the server': _at_server(splits, process),
      'Labels at clients': _at_clients(splits, process),
      'Unlabelled examples at clients': _unlabelled(splits, process, flags),
      'Who gets which example': _dealt(splits[0]),
    }
  if process is None and user_modules.is_reference(flags.get('process', '')):
    lines['Process'] = (
      f"{flags['process']} is a user's own; no module is imported for a report"
    )
  if flags.get('class_weights') == 'balanced':
    lines['Class weights'] = 'the numbers of the labels in training'
  lines['Measured, not trained on'] = _measured(group, flags)
  selection, measure = 'Selection of the round', group.measure
  lines[selection] = _selected_by(measure)
  stops = flags.get('on_collapse', 'warn')
  lines['Early stopping'] = (
    'none: all rounds were trained'
    if stops == 'warn'
    else f"the server's labels (--on_collapse={stops}); no test label"
  )
  lines['Tuning'] = _tuned_by(group)
  return Audit(lines, (selection,) if measure.kind in _CHOSEN_BY_TEST else ())


def _used(count: str, process, how: str) -> str:
  """Returns how many labels or examples there are, and what used them."""
  if count == '0':
    return 'none'
  if process is None:
    return f'{count}; {NOT_RECORDED} what used them'
  return f'{count}: {how or "nobody trains on them"}'


def _at_server(splits, process) -> str:
  count = _range(len(split.partition.server_indices) for split in splits)
  how = ''
  if process and process.takes('server_data'):
    how = 'the server trains on them'
  elif process and process.needs.shared_examples:
    how = 'clients share them, and train on them'
  return _used(count, process, how)


def _at_clients(splits, process) -> str:
  first = splits[0]
  if first.labels_at == split_manifest.IN_SETS:
    return 'none; clients know the shares of the classes in each of their sets'
  count = _range(int(split.labelled.sum()) for split in splits)
  trains = process and process.needs.clients != 'none'
  text = _used(count, process, 'clients train on them' if trains else '')
  if count != '0' and first.redrawn_ratio is not None:
    seen = _range(int(split.labelled_in_a_pass.sum()) for split in splits)
    text += f'; {seen} of them in each pass, others in the next one'
  return text


def _unlabelled(splits, process, flags) -> str:
  count = _range(split.description['labels']['unlabelled'] for split in splits)
  first = splits[0]
  if first.redrawn_ratio is not None:
    count = 'all but the labelled ones of a pass'
  # Where clients have some labels, a process may train on these alone.
  has_some = first.labels_at in (
    split_manifest.DEALT,
    split_manifest.AT_CLIENTS,
  )
  how = ''
  if (
    process
    and process.needs.clients != 'none'
    and (process.needs.unlabelled or not has_some)
  ):
    how = 'clients train on them without their labels'
    if flags.get('experts') == TRUTH:
      how = (
        'clients train on them with the labels that the simulation hides '
        '(--experts=truth)'
      )
    elif process.makes_pseudo_labels:
      how += ', with pseudo-labels'
  return _used(count, process, how)


def _dealt(split) -> str:
  name = split.partition.name
  try:
    partition = catalogue.find('partition', name)
  except UsageError:
    return f'{NOT_RECORDED} for the partition {name}'
  if partition.needs_labels(split.partition.arguments):
    return (
      'the simulation dealt them by the classes of all of them (partition '
      f'{name})'
    )
  return f'no label decided (partition {name})'


def _measured(group: Group, flags) -> str:
  found = set()
  for folder in group.folders:
    table = pd.read_csv(folder / 'metrics.csv')
    found |= set(table.columns[table.notna().any()])
  if flags.get('experts') == TRUTH:
    found.discard('pseudo_label_accuracy')  # Trained on.
  return '; '.join(v for k, v in _MEASURED.items() if k in found)


def _selected_by(measure) -> str:
  if measure.kind in _CHOSEN_BY_TEST:
    return (
      f'test labels, for the measure {measure}: '
      f'{_CHOSEN_BY_TEST[measure.kind]}. The headline takes the last '
      'evaluations instead'
    )
  if measure.kind == _CHOSEN_BY_VALIDATION:
    return f'validation labels, for the measure {measure}'
  return 'none: rounds were fixed beforehand'


def _tuned_by(group: Group) -> str:
  validation = [
    summary.get('validation_examples') for summary in group.summaries
  ]
  text = (
    f'{NOT_RECORDED}: a run folder does not say how its flags were chosen. '
  )
  if all(validation):
    text += (
      f'There are {_range(validation)} validation labels, by which '
      'experiments.tune chooses'
    )
  else:
    text += (
      'There is no validation split, so whoever chose flags by the accuracy of '
      'such runs chose by test labels (--split=80_5_15 gives one, or '
      '--split=90_10_per_client)'
    )
  if recipe := group.summaries[0].get('recipe'):
    text += f'. Flags are those of the recipe {recipe}'
    if group.changed:
      text += f', but for {", ".join(group.changed)}'
  return text


def _range(numbers: Iterable[int]) -> str:
  """Returns a number, or the least and the greatest of several."""
  found = sorted(set(numbers))
  if len(found) == 1:
    return f'{found[0]:,}'
  return f'{found[0]:,} to {found[-1]:,}'
