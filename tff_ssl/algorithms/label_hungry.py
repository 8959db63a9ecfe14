"""What the label-hungry paper's processes share, and its baseline FSL.

Hegde et al., Label Hungry? Not Anymore: Self-supervision in Federated Learning.
FSL, its supervised baseline, is FedAvg on those examples that have a label;
`tff_ssl.algorithms.sspt` and `tff_ssl.algorithms.ssjo` are its methods.
"""

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.objectives.supervised import CLASS_WEIGHTS

PAPER = 'Hegde et al., Label Hungry? Not Anymore'

SETTINGS = (
  *(*shared.LOCAL, shared.CLIENT_WEIGHTING, shared.CLIENT_MOMENTUM),
  CLASS_WEIGHTS,
)


# Chart 1 of the paper, and batches as its code made them. Most labels are
# hidden, so that a first run shows what it is about.
DEFAULTS = {
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

SPEC = ProcessSpec(
  'fsl',
  'Supervised FedAvg on what has a label: the label-hungry baseline.',
  fed_avg.build_fed_avg,
  (*SETTINGS, shared.EPOCH_BATCHES, fed_avg.MATCH_LOCAL_STEPS),
  source=f'{PAPER}, Experimental Setup (FSL)',
  needs=Needs(labels_at='clients', views='none'),
  objective=objectives.Supervised,
  # At the paper's rate, few labels teach little: validation chose 0.03 on its
  # writers. A third of that, for data that nobody has tuned.
  defaults={**DEFAULTS, 'learning_rate': 0.01},
)
