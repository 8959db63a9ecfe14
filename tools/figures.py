"""Draws the designed pictures of README, docs and results from their curves.

python -m tools.figures
"""

import functools
import pathlib
from collections.abc import Mapping

from experiments.config import command_line
from tools import drawing, stored_results
from tools.drawing import Line, Panel

_ROOT = pathlib.Path(__file__).parents[1]
# Evaluations whose mean is drawn, as the table `robustness` reports them.
_LAST = 3

_Bound = functools.partial(Line, colour='grey')
_Control = functools.partial(Line, is_control=True)


def _panel(tables: str, *lines: Line, title: str = '', **limits) -> Panel:
  return Panel(tuple(tables.split()), lines, title, **limits)


_GAIN_WRITERS = _panel(
  'gain_writers',
  _Bound('ten_writers_supervised', 'all labels at the clients'),
  Line('ten_writers_defaults', '100 labels and unlabelled clients'),
  _Bound('ten_writers_server_only', 'the 100 labels alone'),
  lowest=0.7,
)
_GAIN_BALANCED = _panel(
  'gain_balanced',
  Line('robust_s2', 'grouping_robust, S = 2'),
  _Bound('server_only', 'the server alone'),
  Line('grouping_s2', 'grouping, S = 2 (one seed)', 'red'),
)
_LABEL_HUNGRY = (
  _panel(
    'label_hungry_federated label_hungry_runs',
    _Bound('fed_fsl_m00', 'FSL, all labels'),
    Line('fed_ssjo_m99_redrawn', 'SSJO'),
    _Control('fed_ssjo_weight0_m99_redrawn', 'SSJO, proxy task of weight 0'),
    Line('fed_fsl_m99_redrawn', 'FSL', 'red'),
    _Control(
      'fed_fsl_matched_m99_redrawn', 'FSL, as many steps as SSJO', 'red'
    ),
    title='99% of the labels hidden, redrawn (dashed: one seed)',
  ),
  _panel(
    'label_hungry_federated label_hungry_tuned',
    _Bound('fed_fsl_m00', 'FSL, all labels'),
    Line('ssjo_m99', 'SSJO'),
    Line('fsl_m99', 'FSL', 'red'),
    title='99% hidden, fixed, each at the rate that validation chose',
  ),
)
_FEDUL = (
  _panel(
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
  _panel(
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


def _fedlabel(title: str, tables: str, share: str) -> Panel:
  return _panel(
    tables,
    _Bound('fedavg_100', 'FedAvg, all labels'),
    Line(f'{share}_fedlabel', 'FedLabel'),
    _Control('fedlabel_local', 'FedLabel, local model alone'),
    Line(f'{share}_fedavg', 'FedAvg, the same labels', 'red'),
    Line('fedavg_uda', 'FedAvg and UDA', 'green'),
    title=title,
    lowest=0.4,
    highest=0.9,
  )


# FedAvg with all labels ran in the table of 20% alone.
_FEDLABEL_20_PERCENT = 'fedlabel_emnist47 fedlabel_300rounds'
_FEDLABEL = (
  _fedlabel(
    '20% of the labels (dashed: one seed)', _FEDLABEL_20_PERCENT, 'p20'
  ),
  _fedlabel(
    '2% of the labels',
    f'fedlabel_emnist47_2percent {_FEDLABEL_20_PERCENT}',
    'p2',
  ),
)
_GROUPING = (
  _panel(
    'balanced_small_cnn_scale0.25 balanced_small_cnn_scale0.25_seeds12',
    _Bound('server_only', 'the server alone (one seed)'),
    Line('c10_s2', '2 groups', 'red'),
    _Control('c10_control_s2', 'none, server × 2', 'red'),
    Line('c10_s5', '5 groups'),
    _Control('c10_control_s5', 'none, server × 5'),
    Line('c10_fedavg', 'FedAvg with the server', 'green'),
    title="EMNIST balanced, the paper's steps",
  ),
  _panel(
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
    lowest=0.7,
  ),
)
_COMPARISON = (
  _panel(
    'balanced_table5',
    _Bound('grouping_supervised', 'grouping, all labels'),
    _Bound('server_only', 'server alone'),
    Line('t8_overlap_sgd', 'OverlapSGD, all labels', 'green'),
    Line('t8_easgd', 'EASGD, all labels', 'red'),
    Line('t8_grouping', 'grouping, 4,700 labels'),
    _Control('t8_fedavg', 'FedAvg with the server'),
    title='Table 5, T = 8',
  ),
  _panel(
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
  return _panel(
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


def main() -> int:
  """Draws all pictures, and returns the exit code."""
  for name, panels in PICTURES.items():
    drawing.draw_curves(panels, _ROOT / name)
    print(f'{_ROOT / name} is drawn.')
  last = stored_results.last(stored_results.curves('robustness_runs'), _LAST)
  path = stored_results.RESULTS / 'robustness.png'
  drawing.draw_faults(last.unstack(), path)
  print(f'{path} is drawn.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
