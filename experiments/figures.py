"""Draws the designed pictures of README, docs and results from their curves.

python -m experiments.figures
"""

import pathlib
from collections.abc import Mapping

import pandas as pd

from experiments.config import command_line
from experiments.reporting import curve_figures, fault_figures

_ROOT = pathlib.Path(__file__).parents[1]
_RESULTS = _ROOT / 'results'
_LINE = curve_figures.Line
_PANEL = curve_figures.Panel
# Evaluations whose mean is drawn, as the table `robustness` reports them.
_LAST = 3


def _curves(*names: str) -> pd.DataFrame:
  """Reads curves of tables; a run that several have is that of the first."""
  together = pd.concat(
    pd.read_csv(_RESULTS / f'{name}_curves.csv').assign(table=number)
    for number, name in enumerate(names)
  )
  first = together.groupby(['run', 'seed'])['table'].transform('min')
  return together[together['table'] == first].drop(columns='table')


def pictures() -> Mapping[pathlib.Path, tuple[curve_figures.Panel, ...]]:
  """Returns the panels of each picture of curves by its PNG file."""
  return {
    _ROOT / 'docs' / '_static' / 'gain_writers.png': (
      _PANEL(
        _curves('gain_writers'),
        (
          _LINE('ten_writers_supervised', 'all labels at the clients', 'grey'),
          _LINE('ten_writers_defaults', '100 labels and unlabelled clients'),
          _LINE('ten_writers_server_only', 'the 100 labels alone', 'grey'),
        ),
        lowest=0.7,
      ),
    ),
    _RESULTS / 'gain_balanced.png': (
      _PANEL(
        _curves('gain_balanced'),
        (
          _LINE('robust_s2', 'grouping_robust, S = 2'),
          _LINE('server_only', 'the server alone', 'grey'),
          _LINE('grouping_s2', 'grouping, S = 2 (one seed)', 'red'),
        ),
      ),
    ),
    _RESULTS / 'label_hungry.png': (
      _PANEL(
        _curves('label_hungry_federated', 'label_hungry_runs'),
        (
          _LINE('fed_fsl_m00', 'FSL, all labels', 'grey'),
          _LINE('fed_ssjo_m99_redrawn', 'SSJO'),
          _LINE(
            'fed_ssjo_weight0_m99_redrawn',
            'SSJO, proxy task of weight 0',
            is_control=True,
          ),
          _LINE('fed_fsl_m99_redrawn', 'FSL', 'red'),
          _LINE(
            'fed_fsl_matched_m99_redrawn',
            'FSL, as many steps as SSJO',
            'red',
            is_control=True,
          ),
        ),
        title='99% of the labels hidden, redrawn (dashed: one seed)',
      ),
      _PANEL(
        _curves('label_hungry_federated', 'label_hungry_tuned'),
        (
          _LINE('fed_fsl_m00', 'FSL, all labels', 'grey'),
          _LINE('ssjo_m99', 'SSJO'),
          _LINE('fsl_m99', 'FSL', 'red'),
        ),
        title='99% hidden, fixed, each at the rate that validation chose',
      ),
    ),
    _RESULTS / 'fedul.png': (
      _PANEL(
        _curves('fedul_published_network'),
        (
          _LINE('mnist_noniid_m10_fedul', 'FedUL, -log Q'),
          _LINE(
            'mnist_noniid_m10_fedul_published_code',
            'FedUL, loss of the code',
            is_control=True,
          ),
          _LINE(
            'mnist_noniid_fedavg10_cross_entropy',
            'FedAvg, 10% of the labels',
            'red',
          ),
        ),
        lowest=0.8,
        title="Non-IID, the paper's network (one seed)",
      ),
      _PANEL(
        _curves('fedul_small_cnn_code'),
        (
          _LINE('noniid_fedavg100', 'FedAvg, all labels (one seed)', 'grey'),
          _LINE('noniid_m10_fedul', 'FedUL, -log Q'),
          _LINE(
            'noniid_m10_fedul_published_code',
            'FedUL, loss of the code',
            is_control=True,
          ),
          _LINE('noniid_fedavg10', 'FedAvg, 10% of the labels', 'red'),
          _LINE('noniid_m10_fedpl', 'FedPL', 'green'),
          _LINE('noniid_m10_fedllp', 'FedLLP', 'orange'),
        ),
        title='Non-IID, a small network (three seeds)',
      ),
    ),
    _RESULTS / 'fedlabel.png': tuple(
      _PANEL(
        # FedAvg with all labels ran in the table of 20% alone.
        _curves(*tables),
        (
          _LINE('fedavg_100', 'FedAvg, all labels', 'grey'),
          _LINE(f'{share}_fedlabel', 'FedLabel'),
          _LINE(
            'fedlabel_local',
            'FedLabel, local model alone',
            is_control=True,
          ),
          _LINE(f'{share}_fedavg', 'FedAvg, the same labels', 'red'),
          _LINE('fedavg_uda', 'FedAvg and UDA', 'green'),
        ),
        lowest=0.4,
        highest=0.9,
        title=title,
      )
      for title, tables, share in (
        (
          '20% of the labels (dashed: one seed)',
          ('fedlabel_emnist47', 'fedlabel_300rounds'),
          'p20',
        ),
        (
          '2% of the labels',
          (
            'fedlabel_emnist47_2percent',
            'fedlabel_emnist47',
            'fedlabel_300rounds',
          ),
          'p2',
        ),
      )
    ),
    _RESULTS / 'grouping.png': (
      _PANEL(
        _curves(
          'balanced_small_cnn_scale0.25', 'balanced_small_cnn_scale0.25_seeds12'
        ),
        _grouping_lines(
          _LINE('server_only', 'the server alone (one seed)', 'grey'),
          'c10_fedavg',
          (('c10_s2', 'c10_control_s2'), ('c10_s5', 'c10_control_s5')),
        ),
        title="EMNIST balanced, the paper's steps",
      ),
      _PANEL(
        _curves('native_writers'),
        _grouping_lines(
          _LINE('server_only server_examples=100', 'the server alone', 'grey'),
          'fedavg_ssfl server_examples=100 server_weight=1.0',
          tuple(
            (
              f'grouping num_groups={groups} server_examples=100',
              f'fedavg_ssfl server_examples=100 server_weight={groups}.0',
            )
            for groups in (2, 5)
          ),
        ),
        lowest=0.7,
        title='Writers, one epoch, warm-up',
      ),
    ),
    _RESULTS / 'comparison.png': (
      _PANEL(
        _curves('balanced_table5'),
        (
          _LINE('grouping_supervised', 'grouping, all labels', 'grey'),
          _LINE('server_only', 'server alone', 'grey'),
          _LINE('t8_overlap_sgd', 'OverlapSGD, all labels', 'green'),
          _LINE('t8_easgd', 'EASGD, all labels', 'red'),
          _LINE('t8_grouping', 'grouping, 4,700 labels'),
          _LINE('t8_fedavg', 'FedAvg with the server', is_control=True),
        ),
        title='Table 5, T = 8',
      ),
      _PANEL(
        _curves('balanced_table4'),
        (
          _LINE('grouping_supervised', 'grouping, all labels', 'grey'),
          _LINE('server_only', 'server alone', 'grey'),
          _LINE('data_sharing_b25', 'DataSharing, 25%, all labels', 'orange'),
          _LINE(
            'supervised_fedavg_r1',
            'FedAvg, nothing shared, all labels',
            'orange',
            is_control=True,
          ),
          _LINE('grouping', 'grouping, 4,700 labels'),
          _LINE('fedavg', 'FedAvg with the server', is_control=True),
        ),
        title='Table 4, T = 32',
      ),
    ),
    _RESULTS / 'fedmatch.png': tuple(
      _PANEL(
        _curves('cifar10_table3'),
        (
          _LINE('supervised', 'all labels at the clients', 'grey'),
          _LINE(alone, 'the 1,200 labels alone', 'grey'),
          _LINE(f'{place}_iid_grouping', 'grouping'),
          _LINE(f'{place}_noniid_grouping', 'grouping, R = 1', is_control=True),
          _LINE(f'{place}_iid_fedmatch', 'FedMatch', 'red'),
          _LINE(
            f'{place}_noniid_fedmatch',
            'FedMatch, R = 1',
            'red',
            is_control=True,
          ),
        ),
        title=f'1,200 labels at the {words}, one seed',
      )
      for place, words, alone in (
        ('server', 'server', 'server_only'),
        ('client', 'clients', 'client_iid_fedavg'),
      )
    ),
  }


def _grouping_lines(alone, fedavg, groups) -> tuple[curve_figures.Line, ...]:
  """Returns the curves of a panel: groups, each with its control."""
  lines = [alone]
  for colour, number, (own, control) in zip(
    ('red', 'blue'), (2, 5), groups, strict=True
  ):
    lines += [
      _LINE(own, f'{number} groups', colour),
      _LINE(control, f'none, server × {number}', colour, is_control=True),
    ]
  return (*lines, _LINE(fedavg, 'FedAvg with the server', 'green'))


def main() -> int:
  """Draws all pictures.

  Returns:
    The exit code.
  """
  for path, panels in pictures().items():
    curve_figures.draw(panels, path)
    print(f'{path} is drawn.')
  curves = pd.read_csv(_RESULTS / 'robustness_runs_curves.csv')
  last = (
    curves.dropna(subset='accuracy')
    .groupby(['run', 'seed'])['accuracy']
    .apply(lambda values: values.tail(_LAST).mean())
    .unstack()
  )
  fault_figures.draw(last, _RESULTS / 'robustness.png')
  print(f'{_RESULTS / "robustness.png"} is drawn.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
