"""Who takes part in a round, what goes wrong there, and how private it is.

Owners of examples may be held out for the server, and only the data say how
many clients there are. So a default that is more than the clients left means
all of them; a number that somebody gave is refused. In the same way, a process
that is defined for rounds of all clients gets all of them.

What is fitted to the data is not in `used`, which is kept with a run and
compared when it is resumed.
"""

from __future__ import annotations

import types

from datasets.partition.assignment import Partition
from datasets.records import split_manifest
from experiments.config import checks
from experiments.config.command_line import UsageError
from tff_ssl.aggregators import recommended
from tff_ssl.plans import Corruption
from tff_ssl.simulation.client_faults import ClientFaults
from tff_ssl.simulation.client_sampling import Draw

_NAME = 'clients_per_round'


def fit(settings, partition: Partition) -> types.SimpleNamespace:
  """Returns the settings with as many clients in a round as there may be.

  Raises:
    ValueError: If `clients_per_round` is above the number of clients, or below
      it where the process needs all, and is not what it would be by default; or
      if the number of clients does not fit other settings.
  """
  asked, there = settings.clients_per_round or 0, partition.num_clients
  process = settings.chosen['process']
  if asked == there or (asked < there and process.needs.clients != 'all'):
    return settings
  if asked != settings.defaults[_NAME]:
    check_has_clients(_NAME, asked, partition)
    checks.check_all_take_part(
      asked, there, f'the {there} clients of this partition', process
    )
  checks.check({**settings.used, _NAME: there}, settings.chosen)
  return types.SimpleNamespace(**{**vars(settings), _NAME: there})


def check_separation(settings, partition: Partition) -> None:
  """Refuses rests of clients for which there are too few clients."""
  rounds, count = settings.min_separation or 1, settings.clients_per_round or 0
  if rounds > 1 and rounds * count > partition.num_clients:
    raise UsageError(
      f'--min_separation={rounds} with --clients_per_round={count} takes '
      f'{rounds * count} clients, and this partition has '
      f'{partition.num_clients}: lower one of the two.'
    )


def check_has_clients(
  name: str, count: int | None, partition: Partition
) -> None:
  """Refuses a setting that asks for more clients than there are."""
  if count and count > partition.num_clients:
    held_out = len(partition.held_out_client_names)
    beside = f' (beside {held_out} held out for the server)' if held_out else ''
    raise UsageError(
      f'--{name}={count} is more than the {partition.num_clients} clients of '
      f'this partition{beside}: give --{name}={partition.num_clients} or less.'
    )


def draw(settings, data) -> Draw:
  """Returns how clients are drawn."""
  return Draw(
    settings.client_sampling or 'uniform',
    num_clients=data.partition.num_clients,
    clients_per_round=settings.clients_per_round or 0,
  )


def client_faults(settings, data) -> ClientFaults:
  """Returns how often what goes wrong."""
  return ClientFaults(
    data.partition.num_clients,
    settings.seed,
    drop_out=settings.drop_out or 0.0,
    straggler=settings.straggler or 0.0,
    corrupt_share=settings.corrupt_share or 0.0,
  )


def corruption(settings, data) -> Corruption | None:
  """Returns what corrupt clients do; `None` where all are sound."""
  kind = settings.corrupt
  if kind in (None, 'none'):
    return None
  if kind != 'flipped_labels' or data.labels_at == split_manifest.IN_SETS:
    # The labels of sets are numbers of a client's own sets.
    return Corruption(kind)
  return Corruption(kind, data.source.num_classes)


def first_private_round(settings) -> int:
  """Returns the rounds before clients send anything, such as a warm-up."""
  return settings.server_warmup_rounds or 0


def fit_noise(settings, num_clients: int) -> types.SimpleNamespace:
  """Returns the settings with a noise multiplier where a target is given.

  Raises:
    UsageError: If no noise fits.
  """
  if settings.target_epsilon is None:
    return settings
  from tff_ssl import privacy

  rounds = settings.total_rounds - first_private_round(settings)
  if rounds < 1:
    # Clients send nothing, and no noise is ever drawn.
    return types.SimpleNamespace(**{**vars(settings), 'noise_multiplier': 1.0})
  try:
    noise = privacy.noise_multiplier_for(
      settings.target_epsilon, rounds, **_assumptions(settings, num_clients)
    )
  except ValueError as error:
    target = f'--target_epsilon={settings.target_epsilon:g}'
    raise UsageError(f'{target}: {error}') from error
  return types.SimpleNamespace(**{**vars(settings), 'noise_multiplier': noise})


def account(settings, num_clients: int):
  """Returns the `PrivacyAccount` of a run; `None` without noise.

  Raises:
    UsageError: If its values do not fit each other.
  """
  name = settings.aggregator
  if name is None or not recommended.AGGREGATORS[name].is_private:
    return None
  from tff_ssl import privacy

  try:
    return privacy.PrivacyAccount(
      noise_multiplier=settings.noise_multiplier,
      **_assumptions(settings, num_clients),
    )
  except ValueError as error:
    raise UsageError(f'--aggregator={name}: {error}') from error


def _assumptions(settings, num_clients):
  """Returns the fields of the account, all but the noise."""
  kinds = {'uniform': 'fixed', 'poisson': 'poisson'}
  rests = (settings.min_separation or 1) > 1
  return {
    'clients_per_round': settings.clients_per_round,
    'num_clients': num_clients,
    # Who took part lately may not: the draws are not independent.
    'sampling': 'none' if rests else kinds[settings.client_sampling],
    'delta': settings.delta,
    'adaptive_clip': settings.clip_norm is None,
  }
