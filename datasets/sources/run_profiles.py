"""The runner's defaults that several data sets share.

With these values, a first run shows the effect of a method on a small machine.
The recipes have the papers' values. Those suit large clients: 16 steps of 64
images are half an epoch for a client with 2,283 images. For a writer with 76
images they are 13 epochs, in which the client overfits its own pseudo-labels.
"""

from collections.abc import Mapping
from typing import Any

# Clients with tens of examples each: one epoch of small minibatches, after some
# rounds in which only the server trains, so that pseudo-labels are useful.
SMALL_CLIENTS: Mapping[str, Any] = {
  'model': 'small_cnn',
  'batch_size': 20,
  'server_batch_size': 20,
  'local_epochs': 1,
  'server_examples': 100,
  'labelled_examples': 100,
  'server_warmup_rounds': 10,
}

# Clients with thousands of examples: steps and minibatch of Zhang et al.
LARGE_CLIENTS: Mapping[str, Any] = {
  'batch_size': 64,
  'server_batch_size': 64,
  'local_steps': 16,
  'server_warmup_rounds': 10,
  'partition': 'r',
  'noniid_r': 0.4,
}

PHOTOS: Mapping[str, Any] = {
  **LARGE_CLIENTS,
  'model': 'small_cnn',
  'num_clients': 10,
  'server_examples': 1000,
  'labelled_examples': 1000,
  'total_rounds': 200,
}

# Hospitals, not devices: few clients with uneven classes.
CROSS_SILO: Mapping[str, Any] = {
  **LARGE_CLIENTS,
  'model': 'small_cnn',
  'partition': 'dirichlet',
  'dirichlet_alpha': 0.1,
  'total_rounds': 200,
}

# Images of unknown content: few clients with the same class distribution.
OWN_IMAGES: Mapping[str, Any] = {
  **SMALL_CLIENTS,
  'partition': 'r',
  'num_clients': 20,
  'noniid_r': 0.0,
  'total_rounds': 100,
}

# Rows of unknown content: the same, and a network for vectors.
OWN_TABLE: Mapping[str, Any] = {
  **OWN_IMAGES,
  'model': 'dense',
  'proxy_task': 'reconstruction_of_features',
}

# Texts of unknown content: the same, and a network for words. An embedding's
# gradient is small: few texts have the word.
OWN_TEXTS: Mapping[str, Any] = {
  **OWN_IMAGES,
  'model': 'word_average',
  'learning_rate': 0.3,
  'proxy_task': 'words',
}

# FedUL, Section 4.3: five systems of hospitals, all in each round.
OWN_SETS: Mapping[str, Any] = {
  **SMALL_CLIENTS,
  'partition': 'own_sets',
  'clients_per_round': 5,
  'total_rounds': 100,
}
