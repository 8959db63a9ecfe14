"""Which clients a run invites, and what goes wrong at them, by its settings."""

from datasets.records import split_manifest
from tff_ssl.plans import Corruption
from tff_ssl.simulation import client_draws
from tff_ssl.simulation.client_faults import ClientFaults


def draw(settings, data) -> client_draws.Draw:
  """Returns how clients are drawn.

  Args:
    settings: From `experiments.config.settings.make`.
    data: `RunData`.
  """
  return client_draws.build(
    settings.client_sampling or 'uniform',
    num_clients=data.partition.num_clients,
    clients_per_round=settings.clients_per_round or 0,
    seed=settings.seed,
    rounds_per_day=settings.rounds_per_day or 1,
  )


def client_faults(settings, data) -> ClientFaults:
  """Returns how often what goes wrong.

  Args:
    settings: From `experiments.config.settings.make`.
    data: `RunData`.
  """
  return ClientFaults(
    data.partition.num_clients,
    settings.seed,
    drop_out=settings.drop_out or 0.0,
    straggler=settings.straggler or 0.0,
    corrupt_share=settings.corrupt_share or 0.0,
  )


def corruption(settings, data) -> Corruption | None:
  """Returns what corrupt clients do; `None` where all are sound.

  Args:
    settings: From `experiments.config.settings.make`.
    data: `RunData`.
  """
  kind = settings.corrupt
  if kind in (None, 'none'):
    return None
  if kind != 'flipped_labels' or data.labels_at == split_manifest.IN_SETS:
    # The labels of sets are numbers of a client's own sets.
    return Corruption(kind)
  return Corruption(kind, data.source.num_classes)
