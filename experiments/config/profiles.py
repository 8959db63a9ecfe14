"""What the runner takes by default on each data set.

With these values, a first run shows the point of a method on a small machine.
The papers' own are in the recipes, since they do not suit all data: 16 steps of
64 images are half an epoch for a client with 2,283 images, but 13 epochs for a
writer with 76, who then fits his own pseudo-labels.
"""

from collections.abc import Mapping

from datasets.sources.emnist_writers import ONLY_DIGITS
from datasets.sources.source import SourceSpec
from tff_ssl.algorithms import ProcessSpec
from tff_ssl.common.choice import Values

# Clients with tens of examples each: one epoch of small minibatches, after some
# rounds in which only the server trains, so that pseudo-labels are useful.
_SMALL_CLIENTS = {
  'model': 'small_cnn',
  'batch_size': 20,
  'server_batch_size': 20,
  'local_epochs': 1,
  'server_examples': 100,
  'labelled_examples': 100,
  'server_warmup_rounds': 10,
}
# Clients with thousands of examples: steps and minibatch of Zhang et al.
_LARGE_CLIENTS = {
  'batch_size': 64,
  'server_batch_size': 64,
  'local_steps': 16,
  'server_warmup_rounds': 10,
  'partition': 'r',
  'noniid_r': 0.4,
}
_PHOTOS = {
  **_LARGE_CLIENTS,
  'model': 'small_cnn',
  'num_clients': 10,
  'server_examples': 1000,
  'labelled_examples': 1000,
  'total_rounds': 200,
}
# Hospitals, not devices: few clients with uneven classes.
_CROSS_SILO = {
  **_LARGE_CLIENTS,
  'model': 'small_cnn',
  'partition': 'dirichlet',
  'dirichlet_alpha': 0.1,
  'total_rounds': 200,
}
# Images of unknown content: few clients with the same class distribution.
_OWN_IMAGES = {
  **_SMALL_CLIENTS,
  'partition': 'r',
  'num_clients': 20,
  'noniid_r': 0.0,
  'total_rounds': 100,
}
# FedUL, Section 4.3: five systems of hospitals, all in each round.
_OWN_SETS = {
  **_SMALL_CLIENTS,
  'partition': 'own_sets',
  'clients_per_round': 5,
  'total_rounds': 100,
}
_OF_DATA: Mapping[str, Values] = {
  'digits': {
    **_SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 20,
    'noniid_r': 0.4,
    'total_rounds': 100,
  },
  'emnist': {
    **_SMALL_CLIENTS,
    ONLY_DIGITS.name: True,
    'partition': 'native',
    'labelled_examples': 4000,
    'total_rounds': 150,
    # One evaluation of the whole test split gives the accuracy of each client.
    'rounds_per_client_evaluation': 50,
  },
  'emnist_balanced': {
    **_LARGE_CLIENTS,
    'model': 'emnist_cnn',
    'num_clients': 47,
    'server_examples': 4700,
    'labelled_examples': 4700,
    'total_rounds': 200,
    # As many as classes.
    'sets_per_client': '47',
  },
  'mnist': {
    **_SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 600,
    'noniid_r': 0.4,
    'labelled_examples': 3000,
    'total_rounds': 150,
  },
  'cifar10': _PHOTOS,
  'cifar100': {
    **_PHOTOS,
    # As many of each class as of CIFAR-10.
    'server_examples': 10_000,
    'labelled_examples': 10_000,
    # As many as classes.
    'sets_per_client': '100',
  },
  'svhn': _PHOTOS,
  # Zhang et al., appendix I.
  'stl10': {**_PHOTOS, 'noniid_r': 0.0, 'clients_per_round': 2},
  # FedLabel, Section 5.1, as the next one.
  'organamnist': {
    **_CROSS_SILO,
    'num_clients': 10,
    'clients_per_round': 3,
    'server_examples': 1100,
    'labelled_examples': 1100,
    # As many as classes.
    'sets_per_client': '11',
  },
  'bloodmnist': {
    **_CROSS_SILO,
    'num_clients': 5,
    'clients_per_round': 5,
    'server_examples': 800,
    'labelled_examples': 800,
  },
  'npz': _OWN_IMAGES,
  'image_folder': _OWN_IMAGES,
  'npz_sets': _OWN_SETS,
  'image_sets': _OWN_SETS,
  'table': {
    **_OWN_IMAGES,
    'model': 'dense',
    'proxy_task': 'reconstruction_of_features',
  },
  'text': {
    **_OWN_IMAGES,
    'model': 'word_average',
    # An embedding's gradient is small: few texts have the word.
    'learning_rate': 0.3,
    'proxy_task': 'words',
  },
}
# 62 classes instead of 10: the same number of labels per class, and as many
# sets as classes.
_LETTERS = {
  'server_examples': 620,
  'labelled_examples': 24_800,
  'sets_per_client': '62',
}

# FedUL's own data sets, whose clients have thousands of images. A few steps of
# 1e-4 per round would take hundreds of rounds on others.
_OF_FEDUL = dict.fromkeys(('cifar10', 'mnist'), {'learning_rate': 1e-4})
_OF_FEDUL_IN_MINIBATCHES = {
  name: {**values, 'batch_size': 128} for name, values in _OF_FEDUL.items()
}
# FedLabel's Table 2 hides more where the clients are hospitals.
_OF_FEDLABEL = dict.fromkeys(
  ('organamnist', 'bloodmnist'), {'mask_ratio': 0.95}
)
_OF_LABEL_HUNGRY = {'emnist': {'clients_per_round': 100, 'total_rounds': 100}}
# By process and data set, in the place of the process's own; `None` for the
# data set's.
_OF_BOTH: Mapping[str, Mapping[str, Values]] = {
  **dict.fromkeys(('fedllp', 'fedllp_vat'), _OF_FEDUL),
  **dict.fromkeys(('fedul', 'fedpl'), _OF_FEDUL_IN_MINIBATCHES),
  **dict.fromkeys(
    (
      *('fedlabel', 'fedmatch', 'fedtrinet', 'fedavg_uda', 'fedprox_uda'),
      *('fedavg_fixmatch', 'fedprox_fixmatch'),
    ),
    _OF_FEDLABEL,
  ),
  **dict.fromkeys(('sspt', 'ssjo'), _OF_LABEL_HUNGRY),
  # The paper's own rate, which few labels need on its own data alone.
  'fsl': {'emnist': {**_OF_LABEL_HUNGRY['emnist'], 'learning_rate': 1e-3}},
  # Averaging with clients damps the steps of a server. On texts, 0.01 is too
  # low for one that is alone, too.
  'server_only': {'text': {'learning_rate': None}},
}
_CENTRAL = dict.fromkeys(
  ('fsl', 'sspt', 'ssjo'), {'learning_rate': 1e-4, 'total_rounds': 10}
)


def defaults(
  source: SourceSpec, process: ProcessSpec, given: Values
) -> tuple[Values, Values]:
  """Returns those of a data set, and those of a process on it, by name."""
  of_source = _OF_DATA.get(source.name)
  if of_source is None:  # A user's own, which may bring its defaults.
    of_source = source.defaults or ({} if source.derive else _OWN_IMAGES)
  elif ONLY_DIGITS in source.settings and not given.get(ONLY_DIGITS.name, True):
    of_source = {**of_source, **_LETTERS}
  here = _OF_BOTH.get(process.name, {}).get(given['dataset'], {})
  if given.get('setting') == 'central':
    here = _CENTRAL.get(process.name, here)
  of_process = {**process.defaults, **here}
  for name, value in here.items():
    if value is None:
      del of_process[name]
  return of_source, of_process
