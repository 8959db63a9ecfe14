"""One page on finished runs for a person to read, without any other file.

Texts of users, such as names of runs and classes, reach the page through
jinja2, which escapes them, or through `page_charts`.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from datasets.partition.client_labels import REDRAWN
from datasets.records import split_manifest
from experiments.artifacts import durable_files, run_folder
from experiments.artifacts import pictures as pictures_of_run
from experiments.config import catalogue
from experiments.config.command_line import UsageError
from experiments.reporting import page_charts, pictures, summary_tables
from experiments.reporting.run_groups import Group
from experiments.tables import measures

_TEMPLATE = 'run_page.html.jinja'
# Of the title.
_MOST_NAMES = 4
_MOST_SYSTEMS = len(pictures_of_run.COLOURS)
# Points of all lines together, and of one: the page stays below 3 MB.
_POINTS = 40_000
_MOST_POINTS, _LEAST_POINTS = 500, 50
# Columns of a heat map over rounds, and rows of one over clients.
_MOST_ROUNDS, _MOST_CLIENTS = 100, 400
# Rows of the table below a chart.
_ROWS = 12
# Columns of metrics.csv over rounds -> their names.
_RESULTS = {'accuracy': 'test accuracy', 'test_loss': 'test loss'}
_PSEUDO_LABELS = {
  'pseudo_label_accuracy': 'accuracy of pseudo-labels',
  'server_pseudo_label_accuracy': "the same on the server's labels",
  'mask_rate': 'mask rate',
}
# What versions.json says beside the versions of packages.
_NO_PACKAGES = (
  *('commit', 'uncommitted_changes', 'no_commit_because', 'code', 'platform'),
)


def write(
  groups: Sequence[Group], path: pathlib.Path, against: str | None = None
) -> None:
  """Writes the page; the group `against` is the control, if there is one."""
  durable_files.write(path, _Page(groups, against).render().encode())


class _Page:
  """The content of the page; `render` makes the charts that it names."""

  def __init__(self, groups: Sequence[Group], against: str | None):
    self._groups = groups
    self._against = against
    self._charts = {}
    self._panels = _panels(groups, against)

  def render(self) -> str:
    """Returns the HTML."""
    environment = jinja2.Environment(
      loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
      autoescape=True,
      undefined=jinja2.StrictUndefined,
      trim_blocks=True,
      lstrip_blocks=True,
    )
    content = {
      'groups': self._groups,
      'title': _title(self._groups),
      'headline': self._headline(),
      'notes': summary_tables.notes(self._groups),
      'data': _data(self._groups),
      'curves': self._curves(_RESULTS),
      'pseudo_labels': self._curves(_PSEUDO_LABELS),
      'pseudo_labels_by_class': self._pseudo_labels_by_class(),
      'splits': self._splits(),
      'confusions': self._confusions(),
      'clients': self._clients(),
      'versions': _versions(self._groups),
    }
    return environment.get_template(_TEMPLATE).render(
      **content, **page_charts.embedded(self._charts)
    )

  def _add(self, chart) -> str:
    name = f'chart{len(self._charts)}'
    self._charts[name] = chart
    return name

  def _headline(self) -> dict[str, Any]:
    """Returns the means of the last evaluations, and the differences."""
    # As many as all runs have, up to 5; nothing is published for it.
    measure, _ = measures.of_last_evaluations(
      (folder, summary['flags'])
      for group in self._groups
      for folder, summary, _ in group.runs()
    )
    groups = [
      dataclasses.replace(group, measure=measure, published=None)
      for group in self._groups
    ]
    differences = None
    if self._against is not None:
      differences = _records(summary_tables.differences(groups, self._against))
    return {
      'evaluations': measure.argument,
      'rows': _records(summary_tables.of_groups(groups)),
      'by_seed': [group.by_seed() for group in groups],
      'against': self._against,
      'differences': differences,
      'published': _published(self._groups),
    }

  def _curves(self, columns) -> list[dict[str, Any]]:
    """Returns the charts over rounds, at most six systems in each."""
    table = pictures.read_all(self._groups)
    present = [column for column in columns if column in table]
    lines = len(self._groups) * (len(_RESULTS) + len(_PSEUDO_LABELS))
    most = int(np.clip(_POINTS // lines, _LEAST_POINTS, _MOST_POINTS))
    found = []
    for panel in self._panels:
      phases = _phases(panel)
      ends = [(name, end) for name, end, _ in phases]
      charts, drawn = [], set()
      for column in present:
        bands = {
          group.name: _thinned(
            pictures.band_of(table, group.name, column), most
          )
          for group in panel
        }
        if any(map(len, bands.values())):
          chart = page_charts.curves(bands, columns[column], ends)
          charts.append((columns[column], self._add(chart), _figures_of(bands)))
          drawn |= {name for name, band in bands.items() if len(band)}
      if charts:
        systems = _legend(panel, drawn)
        found.append({'systems': systems, 'charts': charts, 'phases': phases})
    return found

  def _pseudo_labels_by_class(self) -> list[dict[str, Any]]:
    """Returns the charts of systems that count them, sums over seeds."""
    found = []
    for group in self._groups:
      # Only the header, where a run ended before an evaluation.
      tables = [
        table
        for table in _tables(
          group,
          run_folder.PSEUDO_LABELS,
          dtype={'name': str},
          # A class may be called NA, a sum may be nan.
          keep_default_na=False,
          na_values=dict.fromkeys(('labelled', 'right', 'named'), ['nan']),
        )
        if not table.empty
      ]
      if not tables:
        continue
      charts = []
      if len([entry for entry in found if entry['charts']]) < _MOST_SYSTEMS:
        summed = pd.concat(tables).pivot_table(
          index=['class', 'name'], columns='round', aggfunc='sum'
        )
        summed.index = summed.index.get_level_values('name')
        examples, labelled, right = (
          _thinned(summed[column].T, _MOST_ROUNDS).T
          for column in ('examples', 'labelled', 'right')
        )
        for label, shares, of in (
          ('share with a pseudo-label', labelled / examples, examples),
          ('share of these that is right', right / labelled, labelled),
        ):
          name = self._add(page_charts.heat_map(shares, of, ('round', 'class')))
          charts.append((f'{group.name}: {label}', name))
      found.append({'name': group.name, 'charts': charts})
    return found

  def _splits(self) -> list[dict[str, Any]]:
    """Returns the different splits, with charts of the first of each system."""
    found, drawn = {}, 0
    for group in self._groups:
      for folder, summary, name in group.runs():
        partition, key, labelled = _split_of(folder)
        if key not in found:
          found[key] = {
            'users': [],
            'partition': partition,
            'summary': summary,
            'charts': [],
          }
          if folder == group.folders[0] and drawn < _MOST_SYSTEMS:
            found[key]['charts'] = self._charts_of_split(labelled, folder)
            drawn += 1
        found[key]['users'].append(name)
    return list(found.values())

  def _charts_of_split(self, labelled, folder) -> list[tuple[str, str]]:
    charts = []
    if labelled is not None:
      chart = page_charts.client_sizes(*labelled)
      charts.append(('examples of each client', self._add(chart)))
    if (folder / run_folder.PARTITION).exists():
      counts = pd.read_csv(
        folder / run_folder.PARTITION,
        index_col=0,
        dtype={'client': str},
        keep_default_na=False,
      )
      counts = _thinned(counts, _MOST_CLIENTS)
      most = counts.to_numpy().max()
      chart = page_charts.heat_map(counts, counts, ('class', 'client'), most)
      charts.append(('examples of each client and class', self._add(chart)))
    return charts

  def _confusions(self) -> list[dict[str, Any]]:
    """Returns the confusion matrices on the test split, sums over seeds."""
    found = []
    for group in self._groups:
      tables = _tables(
        group, run_folder.CONFUSION, index_col=0, keep_default_na=False
      )
      entry = {'name': group.name, 'chart': None, 'weakest': []}
      if not tables:
        entry['missing'] = 'not recorded; a run of this version writes it'
      elif len(found) >= _MOST_SYSTEMS:
        entry['missing'] = (
          f'not drawn; see {run_folder.CONFUSION} in its folders'
        )
      else:
        counts = sum(tables[1:], tables[0])
        examples = counts.sum(axis='columns').clip(lower=1)
        chart = page_charts.heat_map(
          counts.div(examples, axis='index'),
          counts,
          ('predicted class', 'true class'),
        )
        entry['chart'] = self._add(chart)
        entry['weakest'] = _weakest(counts)
      found.append(entry)
    return found

  def _clients(self) -> dict[str, list[dict[str, Any]]]:
    """Returns the histograms over clients, at most six systems in each."""
    accuracies, invited = {}, {}
    for group in self._groups:
      accuracies[group.name] = _joined(
        table.loc[table['round'] == table['round'].max(), 'accuracy']
        for table in _tables(group, run_folder.CLIENTS)
      )
      invited[group.name] = _joined(
        table['invited'] for table in _tables(group, run_folder.PARTICIPATION)
      )
    most = max((int(v.max()) for v in invited.values() if v.size), default=0)
    return {
      'accuracy': self._histograms(
        accuracies, 'accuracy of a client on its test examples', (0.0, 1.0)
      ),
      'rounds': self._histograms(invited, 'rounds of a client', (0, most)),
    }

  def _histograms(self, values, label, limits) -> list[dict[str, Any]]:
    found = []
    for panel in self._panels:
      shown = {g.name: values[g.name] for g in panel}
      missing = [name for name, figures in shown.items() if not figures.size]
      if len(missing) < len(shown):
        chart = page_charts.histogram(shown, label, limits)
        found.append(
          {
            'systems': _legend(panel, shown.keys() - missing),
            'chart': self._add(chart),
            'figures': _html(
              pd.DataFrame(
                {k: pd.Series(v).describe() for k, v in shown.items()}
              )
            ),
            'missing': missing,
          }
        )
    return found


def _split_of(folder) -> tuple[str | None, Any, tuple | None]:
  """Returns the name of a run's partition, what tells the split from others.

  And how many examples of each client, `int64 [K]`, have a label in one pass,
  and how many have none. Without a sound record, it is nothing but the folder.
  """
  try:
    partition, description = split_manifest.load(
      folder / 'split.json', folder / 'split.npz'
    )
  except (OSError, ValueError):
    return None, folder, None
  labels = description['labels']
  is_redrawn = labels.get('mask') == REDRAWN
  # Equal splits may show other labels to another process.
  seen = labels['labels_at'], labels['mask_ratio'] if is_redrawn else None
  labelled = split_manifest.labels_per_client(partition, *seen)
  return (
    partition.name,
    (description['sha256'], *seen),
    (labelled, partition.client_sizes - labelled),
  )


def _tables(group, name: str, **how) -> list[pd.DataFrame]:
  return [
    pd.read_csv(folder / name, **how)
    for folder in group.folders
    if (folder / name).exists()
  ]


def _joined(columns: Iterable[pd.Series]) -> np.ndarray:
  return np.concatenate([np.zeros(0), *columns])


def _title(groups) -> str:
  names = [group.name for group in groups]
  if len(names) > _MOST_NAMES:
    names[_MOST_NAMES:] = [f'{len(names) - _MOST_NAMES} more']
  return ', '.join(names)


def _panels(groups, against) -> list[list[Group]]:
  """Returns the groups of each panel: at most six, the control in each."""
  control = [group for group in groups if group.name == against]
  others = [group for group in groups if group.name != against]
  each = _MOST_SYSTEMS - len(control)
  return [
    control + others[start : start + each]
    for start in range(0, max(len(others), 1), each)
  ]


def _legend(panel, names) -> list[dict[str, str]]:
  """Returns how those groups of a panel look that are in its charts."""
  return [
    {'name': group.name, 'colour': colour, 'dash': ' '.join(map(str, dash))}
    for group, colour, dash in zip(
      panel, pictures_of_run.COLOURS, pictures_of_run.DASHES, strict=False
    )
    if group.name in names
  ]


def _figures_of(bands) -> str:
  """Returns the table below a chart: means over seeds, in some rounds."""
  means = pd.DataFrame({name: band['mean'] for name, band in bands.items()})
  return _html(_thinned(means.dropna(how='all'), _ROWS))


def _html(table: pd.DataFrame) -> str:
  """Returns a table whose names are escaped."""
  return table.to_html(border=0, na_rep='–', float_format='%.4g')


def _published(groups) -> list[dict[str, Any]]:
  table = summary_tables.of_groups(groups)
  measured = [str(group.measure) for group in groups]
  rows = _records(table.assign(measure=measured))
  return [row for row in rows if row['published'] is not None]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
  """Returns the rows, with `None` for what is missing."""
  return table.astype(object).where(table.notna(), None).to_dict('records')


def _data(groups) -> dict[str, list[str]]:
  found = {}
  for group in groups:
    found.setdefault(group.summaries[0]['data'], []).append(group.name)
  return found


def _phases(panel) -> list[tuple[str, int, list[str]]]:
  """Returns name and end of each phase, and the systems that have it."""
  found = {}
  for group in panel:
    try:
      phases = catalogue.phases_of(group.summaries[0]['flags'])
    except UsageError:
      continue  # A part of the user's own that is not importable here.
    for phase in phases:
      found.setdefault(phase, []).append(group.name)
  ordered = sorted(found.items(), key=lambda item: item[0][1])
  return [(name, end, systems) for (name, end), systems in ordered]


def _thinned(drawn: pd.DataFrame, most: int) -> pd.DataFrame:
  """Returns at most so many rows, at even distances."""
  if len(drawn) <= most:
    return drawn
  return drawn.iloc[np.linspace(0, len(drawn) - 1, most).round().astype(int)]


def _weakest(counts: pd.DataFrame) -> list[tuple[str, float]]:
  """Returns up to three classes with the lowest recall, and their recall."""
  examples = counts.sum(axis='columns')
  right = pd.Series(np.diag(counts), counts.index)
  recall = (right / examples)[examples > 0].sort_values(kind='stable')
  return [(str(name), float(value)) for name, value in recall.head(3).items()]


def _versions(groups) -> list[dict[str, Any]]:
  """Returns what each versions.json says, those that say the same together."""
  found = {}
  for group in groups:
    for folder, _, name in group.runs():
      try:
        versions = json.loads((folder / run_folder.VERSIONS).read_text())
      except (OSError, ValueError):
        versions = {}
      packages = {k: v for k, v in versions.items() if k not in _NO_PACKAGES}
      entry = found.setdefault(
        json.dumps(versions, sort_keys=True),
        {'users': [], 'versions': versions, 'packages': packages},
      )
      entry['users'].append(name)
  return list(found.values())
