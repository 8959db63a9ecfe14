"""What the runner takes by default: of a process on some data sets.

What it takes on a data set whatever the process stands in that (`SourceSpec`).
With these values, a first run shows the point of a method on a small machine.
The papers' own are in the recipes, since they do not suit all data: 16 steps of
64 images are half an epoch for a client with 2,283 images, but 13 epochs for a
writer with 76, who then fits his own pseudo-labels.
"""

from collections.abc import Mapping

from tff_ssl.common.choice import Values

# FedUL's own data sets, whose clients have thousands of images. A few steps of
# 1e-4 per round would take hundreds of rounds on others.
_OF_FEDUL = dict.fromkeys(('cifar10', 'mnist'), {'learning_rate': 1e-4})
_OF_FEDUL_IN_MINIBATCHES = {
  name: {**values, 'batch_size': 128} for name, values in _OF_FEDUL.items()
}
# FedLabel's Table 2 hides more where the clients are hospitals.
_OF_HOSPITALS = dict.fromkeys(
  ('organamnist', 'bloodmnist'), {'mask_ratio': 0.95}
)
# FedLabel's rate suits images: an embedding's gradient is small.
_OF_TEXTS = {'tokens': {'learning_rate': None, 'momentum': None}}
_OF_LABEL_HUNGRY = {'emnist': {'clients_per_round': 100, 'total_rounds': 100}}
# By process and data set, or form of data (`datasets/sources/forms.py`), in the
# place of the process's own; `None` for the data set's.
OF_BOTH: Mapping[str, Mapping[str, Values]] = {
  **dict.fromkeys(('fedllp', 'fedllp_vat'), _OF_FEDUL),
  **dict.fromkeys(('fedul', 'fedpl'), _OF_FEDUL_IN_MINIBATCHES),
  **dict.fromkeys(('fedmatch', 'fedtrinet', 'fedavg_robust'), _OF_HOSPITALS),
  **dict.fromkeys(
    (
      *('fedlabel', 'fedavg_uda', 'fedprox_uda'),
      *('fedavg_fixmatch', 'fedprox_fixmatch'),
    ),
    {**_OF_HOSPITALS, **_OF_TEXTS},
  ),
  **dict.fromkeys(('fedavg_fixmatch_received', 'sage'), _OF_TEXTS),
  **dict.fromkeys(('sspt', 'ssjo'), _OF_LABEL_HUNGRY),
  # The paper's own rate, which few labels need on its own data alone.
  'fsl': {'emnist': {**_OF_LABEL_HUNGRY['emnist'], 'learning_rate': 1e-3}},
  # Averaging with clients damps the steps of a server. On texts, 0.01 is too
  # low for one that is alone, too.
  'server_only': {'tokens': {'learning_rate': None}},
}
# Of --setting=central, by process, in the place of these.
OF_CENTRAL = dict.fromkeys(
  ('fsl', 'sspt', 'ssjo'), {'learning_rate': 1e-4, 'total_rounds': 10}
)
