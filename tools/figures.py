"""Draws the designed pictures of README, docs and results from their curves.

python -m tools.figures

Panels stand below each other, and letters are large, so that a picture can be
read at the width of a phone.
"""

import dataclasses
import functools
import io
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure
from PIL import Image

from experiments.artifacts import pictures
from experiments.config import command_line
from experiments.reporting.pictures import band_of, draw_band
from tff_ssl.common import whole_files
from tools import stored_results

_ROOT = pathlib.Path(__file__).parents[1]
# Evaluations whose mean is drawn, as the table `robustness` reports them.
_LAST = 3
COLOURS = {
  'grey': '0.4',
  **dict(zip(('blue', 'red', 'green'), pictures.COLOURS, strict=False)),
  'orange': '#b07a00',
}
MARKERS = 'os^DvP'
_INCHES = 5
_FONT = 9
_DOTS_PER_INCH = 150

# Of the picture of faults: methods, faults with their names in the runs, and
# aggregators with the ending of their runs, colour and marker.
METHODS = {'grouping': 'grouping', 'fedlabel': 'FedLabel', 'fedul': 'FedUL'}
FAULTS = {
  'none': 'sound clients',
  'drop30': 'drop out',
  'late30': 'stragglers',
  'nan30': 'not a number',
  'exploding30': 'exploding',
  'labels30': 'flipped labels',
  'signs30': 'flipped signs',
  'stale30': 'stale',
}
AGGREGATORS = {
  'mean': ('', COLOURS['grey'], 'o'),
  'robust': ('_robust', COLOURS['blue'], 's'),
  'median': ('_median', COLOURS['red'], '^'),
}
_OFFSET = 0.22


@dataclasses.dataclass(frozen=True)
class Line:
  """A curve of a picture: the mean over seeds, with a band of all of them.

  Attributes:
    run: The value of the column `run`.
    label: Its name in the legend.
    colour: A key of `COLOURS`: 'grey' for bounds, another for each system.
    is_control: Whether it is dashed, as the control of the system of this
      colour, or one with a part changed. A dash means nothing else.
  """

  run: str
  label: str
  colour: str = 'blue'
  is_control: bool = False


class Panel:
  """Curves that share two axes."""

  def __init__(self, tables: str, *lines: Line, title='', lowest=None):
    """Takes the names in `results/NAME_curves.csv`, with spaces between them.

    A run that several have is that of the first. `lowest` is where the axis
    of accuracy begins, if not where the curves need it.
    """
    self._tables = tables.split()
    self.lines, self.title, self.lowest = lines, title, lowest

  @functools.cached_property
  def curves(self) -> pd.DataFrame:
    """The rows of the tables."""
    together = pd.concat(
      pd.read_csv(stored_results.RESULTS / f'{name}_curves.csv').assign(table=n)
      for n, name in enumerate(self._tables)
    )
    first = together.groupby(['run', 'seed'])['table'].transform('min')
    return together[together['table'] == first].drop(columns='table')


_Bound = functools.partial(Line, colour='grey')
_Control = functools.partial(Line, is_control=True)

_GAIN_WRITERS = Panel(
  'gain_writers',
  _Bound('ten_writers_supervised', 'all labels at the clients'),
  Line('ten_writers_defaults', '100 labels and unlabelled clients'),
  _Bound('ten_writers_server_only_average', 'the 100 labels alone'),
)
_GAIN_BALANCED = Panel(
  'gain_balanced',
  Line('robust_s2', 'grouping_robust, S = 2'),
  _Bound('server_only_ema', 'the server alone'),
  Line('grouping_s2', 'grouping, S = 2 (one seed)', 'red'),
)
_LABEL_HUNGRY = (
  Panel(
    'label_hungry_federated label_hungry_runs',
    _Bound('fed_fsl_m00', 'FSL, all labels'),
    Line('fed_ssjo_m99_redrawn', 'SSJO'),
    _Control(
      'fed_ssjo_weight0_m99_redrawn', 'SSJO, proxy task of weight 0 (one seed)'
    ),
    Line('fed_fsl_m99_redrawn', 'FSL', 'red'),
    _Control(
      'fed_fsl_matched_m99_redrawn',
      'FSL, as many steps as SSJO (one seed)',
      'red',
    ),
    title='99% of the labels hidden, redrawn',
  ),
  Panel(
    'label_hungry_federated label_hungry_tuned',
    _Bound('fed_fsl_m00', 'FSL, all labels'),
    Line('ssjo_m99', 'SSJO'),
    Line('fsl_m99', 'FSL', 'red'),
    title='99% hidden, fixed, each at its best rate by validation',
  ),
)
_FEDUL = (
  Panel(
    'fedul_published_network',
    Line('mnist_noniid_m10_fedul', 'FedUL, -log Q'),
    _Control(
      'mnist_noniid_m10_fedul_published_code', 'FedUL, loss of the code'
    ),
    Line(
      'mnist_noniid_fedavg10_cross_entropy', 'FedAvg, 10% of the labels', 'red'
    ),
    title="Non-IID, the paper's network (one seed)",
    lowest=0.8,
  ),
  Panel(
    'fedul_small_cnn_code',
    _Bound('noniid_fedavg100', 'FedAvg, all labels (one seed)'),
    Line('noniid_m10_fedul', 'FedUL, -log Q'),
    _Control('noniid_m10_fedul_published_code', 'FedUL, loss of the code'),
    Line('noniid_fedavg10', 'FedAvg, 10% of the labels', 'red'),
    Line('noniid_m10_fedpl', 'FedPL', 'green'),
    Line('noniid_m10_fedllp', 'FedLLP', 'orange'),
    title='Non-IID, a small network (three seeds)',
  ),
)


def _fedlabel(title: str, tables: str, share: str, seeds: str = '') -> Panel:
  return Panel(
    tables,
    _Bound('fedavg_100', 'FedAvg, all labels'),
    Line(f'{share}_fedlabel', 'FedLabel'),
    _Control('fedlabel_local', f'FedLabel, local model alone{seeds}'),
    Line(f'{share}_fedavg', 'FedAvg, the same labels', 'red'),
    Line('fedavg_uda', 'FedAvg and UDA', 'green'),
    title=title,
    lowest=0.4,
  )


# FedAvg with all labels ran in the table of 20% alone.
_FEDLABEL_20_PERCENT = 'fedlabel_emnist47 fedlabel_300rounds'
_FEDLABEL = (
  _fedlabel('20% of the labels', _FEDLABEL_20_PERCENT, 'p20', ' (one seed)'),
  _fedlabel(
    '2% of the labels',
    f'fedlabel_emnist47_2percent {_FEDLABEL_20_PERCENT}',
    'p2',
  ),
)
_GROUPING = (
  Panel(
    'balanced_small_cnn_scale0.25 balanced_small_cnn_scale0.25_seeds12',
    _Bound('server_only', 'the server alone (one seed)'),
    Line('c10_s2', '2 groups', 'red'),
    _Control('c10_control_s2', 'none, server × 2', 'red'),
    Line('c10_s5', '5 groups'),
    _Control('c10_control_s5', 'none, server × 5'),
    Line('c10_fedavg', 'FedAvg with the server', 'green'),
    title="EMNIST balanced, the paper's steps",
  ),
  Panel(
    'native_writers',
    _Bound('server_only server_examples=100', 'the server alone'),
    Line('grouping num_groups=2 server_examples=100', '2 groups', 'red'),
    _Control(
      'fedavg_ssfl server_examples=100 server_weight=2.0',
      'none, server × 2',
      'red',
    ),
    Line('grouping num_groups=5 server_examples=100', '5 groups'),
    _Control(
      'fedavg_ssfl server_examples=100 server_weight=5.0', 'none, server × 5'
    ),
    Line(
      'fedavg_ssfl server_examples=100 server_weight=1.0',
      'FedAvg with the server',
      'green',
    ),
    title='Writers, one epoch, warm-up',
  ),
)
_COMPARISON = (
  Panel(
    'balanced_table5',
    _Bound('grouping_supervised', 'grouping, all labels'),
    _Bound('server_only', 'server alone'),
    Line('t8_overlap_sgd', 'OverlapSGD, all labels', 'green'),
    Line('t8_easgd', 'EASGD, all labels', 'red'),
    Line('t8_grouping', 'grouping, 4,700 labels'),
    _Control('t8_fedavg', 'FedAvg with the server'),
    title='Table 5, T = 8',
  ),
  Panel(
    'balanced_table4',
    _Bound('grouping_supervised', 'grouping, all labels'),
    _Bound('server_only', 'server alone'),
    Line('data_sharing_b25', 'DataSharing, 25%, all labels', 'orange'),
    _Control(
      'supervised_fedavg_r1', 'FedAvg, nothing shared, all labels', 'orange'
    ),
    Line('grouping', 'grouping, 4,700 labels'),
    _Control('fedavg', 'FedAvg with the server'),
    title='Table 4, T = 32',
  ),
)


def _fedmatch(place: str, words: str, alone: str) -> Panel:
  return Panel(
    'cifar10_table3',
    _Bound('supervised', 'all labels at the clients'),
    _Bound(alone, 'the 1,200 labels alone'),
    Line(f'{place}_iid_grouping', 'grouping'),
    _Control(f'{place}_noniid_grouping', 'grouping, R = 1'),
    Line(f'{place}_iid_fedmatch', 'FedMatch', 'red'),
    _Control(f'{place}_noniid_fedmatch', 'FedMatch, R = 1', 'red'),
    title=f'1,200 labels at the {words}, one seed',
  )


PICTURES: Mapping[str, tuple[Panel, ...]] = {
  'docs/_static/gain_writers.png': (_GAIN_WRITERS,),
  'results/gain_balanced.png': (_GAIN_BALANCED,),
  'results/label_hungry.png': _LABEL_HUNGRY,
  'results/fedul.png': _FEDUL,
  'results/fedlabel.png': _FEDLABEL,
  'results/grouping.png': _GROUPING,
  'results/comparison.png': _COMPARISON,
  'results/fedmatch.png': (
    _fedmatch('server', 'server', 'server_only'),
    _fedmatch('client', 'clients', 'client_iid_fedavg'),
  ),
}


def draw_curves(panels: Sequence[Panel]) -> figure.Figure:
  """Draws test accuracy over rounds."""
  height = sum(3 + 0.2 * len(panel.lines) for panel in panels)
  picture = figure.Figure(figsize=(_INCHES, height), layout='constrained')
  for axes, panel in zip(
    picture.subplots(len(panels), squeeze=False).flat, panels, strict=True
  ):
    _draw_panel(axes, panel)
  return picture


def _draw_panel(axes: axes_lib.Axes, panel: Panel) -> None:
  ends = []
  for place, line in enumerate(panel.lines):
    drawn = band_of(panel.curves, line.run, 'accuracy')
    if drawn.empty:
      raise ValueError(f'The run {line.run} is not among the curves.')
    draw_band(
      axes,
      drawn,
      label=line.label,
      color=COLOURS[line.colour],
      linestyle='--' if line.is_control else '-',
      marker=MARKERS[place],
      markersize=5,
      # They are not at the same places of lines that lie on each other.
      markevery=(0.03 * place, 0.2),
    )
    ends.append(drawn['mean'].iloc[-1])
  pictures.fit_axes(axes, 'test accuracy')
  if panel.lowest is not None:
    label = pictures.axis_name('test accuracy', panel.lowest)
    axes.set(ylim=(panel.lowest, None), ylabel=label)
  axes.set_xlim(left=0)
  axes.set_title(panel.title, loc='left', fontsize=_FONT + 1)
  axes.spines[['top', 'right']].set_visible(False)
  # As the lines end, from the highest to the lowest.
  axes.legend(
    handles=[axes.lines[i] for i in np.argsort(ends)[::-1]],
    loc='upper left',
    # Below the name of the axis.
    bbox_to_anchor=(0, -0.19),
    frameon=False,
    handlelength=3.5,
    borderaxespad=0,
    fontsize=_FONT,
  )


def draw_faults(last: pd.DataFrame) -> figure.Figure:
  """Draws accuracy with 30% of each fault, a panel for each method.

  Each point is a mean over seeds, with a line from the lowest to the highest. A
  cross at the left stands for runs that end since no update is finite; they are
  missing in `last`, of a row for each run and a column for each seed.
  """
  picture = figure.Figure(figsize=(_INCHES, 9.5), layout='constrained')
  panels = picture.subplots(len(METHODS))
  for axes, (method, title) in zip(panels, METHODS.items(), strict=True):
    for place, name in enumerate(AGGREGATORS):
      _draw_aggregator(axes, last, method, name, (place - 1) * _OFFSET)
    if method == 'grouping':
      alone = last.loc['server_only'].mean()
      axes.axvline(alone, color='0.6', linewidth=1, label='server alone')
    begin, end = pictures.limits(*axes.dataLim.intervalx)
    axes.set(
      xlim=(begin, end), xlabel=pictures.axis_name('test accuracy', begin)
    )
    axes.set_title(title, loc='left', fontsize=_FONT + 1)
    axes.set_yticks(range(len(FAULTS)), FAULTS.values())
    axes.set_ylim(len(FAULTS) - 0.5, -0.5)
    axes.grid(axis='x', alpha=0.3)
    axes.spines[['top', 'right', 'left']].set_visible(False)
    axes.tick_params(left=False)
  keys = {}
  for axes in panels:
    for key, name in zip(*axes.get_legend_handles_labels(), strict=True):
      keys.setdefault(name, key)
  picture.legend(
    *(keys.values(), keys), loc='outside lower left', ncols=3, frameon=False
  )
  return picture


def _draw_aggregator(axes, last, method, name, offset) -> None:
  ending, colour, marker = AGGREGATORS[name]
  for row, fault in enumerate(FAULTS):
    run = f'{method}_{fault}{ending}'
    is_refused = method == 'grouping' and fault == 'labels30'
    if is_refused or (ending and fault in ('drop30', 'late30', 'nan30')):
      continue
    place = row + offset
    if run not in last.index:
      axes.plot(
        *(0.02, place, 'x'),
        color=colour,
        transform=axes.get_yaxis_transform(),
        label='the run ends',
      )
      continue
    seeds = last.loc[run].dropna()
    axes.plot(
      [seeds.min(), seeds.max()], [place] * 2, color=colour, linewidth=1
    )
    axes.plot(
      *(seeds.mean(), place, marker), markersize=5, color=colour, label=name
    )


def save(picture: figure.Figure, path: pathlib.Path) -> None:
  """Writes a picture as PNG, in a palette."""
  drawn = io.BytesIO()
  picture.savefig(drawn, format='png', dpi=_DOTS_PER_INCH)
  # A palette makes a file a third as large, and the eye sees no difference.
  small = Image.open(drawn).convert('RGB').quantize(dither=Image.Dither.NONE)
  with whole_files.replacing(path) as file:
    small.save(file, format='png', optimize=True)


def main() -> int:
  """Draws all pictures, and returns the exit code."""
  last = stored_results.last(stored_results.curves('robustness_runs'), _LAST)
  drawn = {name: draw_curves(panels) for name, panels in PICTURES.items()}
  drawn['results/robustness.png'] = draw_faults(last.unstack())
  for name, picture in drawn.items():
    save(picture, _ROOT / name)
    print(f'{_ROOT / name} is drawn.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
