"""What the label-hungry paper's processes share, and its baseline FSL.

Hegde et al., Label Hungry? Not Anymore: Self-supervision in Federated Learning.
FSL, its supervised baseline, is FedAvg on those examples that have a label;
`tff_ssl.algorithms.sspt` and `tff_ssl.algorithms.ssjo` are its methods.
"""

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.objectives.supervised import CLASS_WEIGHTS

PAPER = 'Hegde et al., Label Hungry? Not Anymore'

SETTINGS = (
  *(*shared.LOCAL, shared.CLIENT_WEIGHTING, shared.CLIENT_MOMENTUM),
  CLASS_WEIGHTS,
)


def defaults(given) -> dict[str, object]:
  """Returns Chart 1 of the paper, and batches as its code made them.

  Most labels are hidden, so that a first run shows what it is about.

  Args:
    given: What the user gave, by name.
  """
  values = {
    'model': 'dense_encoder',
    'batch_size': 20,
    'local_epochs': 10,
    'epoch_batches': 'continuous',
    'learning_rate': 1e-3,
    'momentum': 0.99,
    'nesterov': False,
    'weight_decay': 0.0,
    'mask_ratio': 0.9,
  }
  if given.get('setting') == 'central':
    values.update({'learning_rate': 1e-4, 'total_rounds': 10})
  elif given['dataset'] == 'emnist':
    values.update({'clients_per_round': 100, 'total_rounds': 100})
  return values


def _defaults_of_fsl(given) -> dict[str, object]:
  """Returns the defaults, with a rate of its own on data not the paper's.

  At the paper's, few labels teach little: validation chose 0.03 on its writers
  (`results/label_hungry.md`). A third of that, for data that nobody has tuned.
  """
  values = defaults(given)
  if given.get('setting') != 'central' and given['dataset'] != 'emnist':
    values['learning_rate'] = 0.01
  return values


SPEC = ProcessSpec(
  'fsl',
  'Supervised FedAvg on what has a label: the label-hungry baseline.',
  f'{PAPER}, Experimental Setup (FSL)',
  fed_avg.build_fed_avg,
  (*SETTINGS, shared.EPOCH_BATCHES, fed_avg.MATCH_LOCAL_STEPS),
  objective=objectives.Supervised,
  defaults=_defaults_of_fsl,
  labels_at='clients',
  redraws_masks=True,
  has_server_training=False,
  augments=False,
  has_strong_view=False,
)
