"""What a run takes on a data set by default, where several sets share it.

The values make a first run show the point of a method on a small machine. The
papers' own values are those of the recipes: 16 steps of 64 images are half an
epoch for a client with 2,283 images. For a writer with 76 they are 13 epochs,
in which he fits his own pseudo-labels.
"""

from collections.abc import Mapping
from typing import Any

# Clients with tens of examples each: one pass in small minibatches, and rounds
# in which the server alone learns enough to give pseudo-labels.
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

# Images of which nothing is known: few clients, all alike.
OWN_IMAGES: Mapping[str, Any] = {
  **SMALL_CLIENTS,
  'partition': 'r',
  'num_clients': 20,
  'noniid_r': 0.0,
  'total_rounds': 100,
}

# FedUL, Section 4.3: five systems of hospitals, all in each round.
OWN_SETS: Mapping[str, Any] = {
  **SMALL_CLIENTS,
  'partition': 'own_sets',
  'clients_per_round': 5,
  'total_rounds': 100,
}
