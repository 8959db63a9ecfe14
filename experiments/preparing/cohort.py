"""How many clients take part in a round, once it is known how many there are.

Owners of examples may be held out for the server, and only the data say how
many there are. So a default that is more than the clients left means all of
them; a number that somebody gave is refused. In the same way, a process that is
defined for rounds of all clients gets all of them.
"""

import types

from datasets.partition.assignment import Partition
from experiments.config import conflicts
from experiments.config import settings as settings_lib
from experiments.config.usage import UsageError

_NAME = 'clients_per_round'


def fit(settings, partition: Partition) -> types.SimpleNamespace:
  """Returns the settings with as many clients in a round as there may be.

  `used`, which is kept with a run and compared when it is resumed, stays as it
  is.

  Args:
    settings: From `experiments.config.settings.make`.
    partition: The partition.

  Raises:
    UsageError: If `clients_per_round` is above the number of clients, or below
      it where the process needs all, and is not what it would be by default; or
      if the number of clients does not fit other settings.
  """
  asked, there = settings.clients_per_round or 0, partition.num_clients
  process = settings.parts.process
  if asked == there or (asked < there and not process.needs_all_clients):
    return settings
  if asked != settings_lib.default_of(settings, _NAME):
    check_has_clients(_NAME, asked, partition)
    conflicts.check_all_take_part(
      asked, there, f'the {there} clients of this partition', process
    )
  values = {**settings.used, _NAME: there}
  conflicts.check(values, settings.parts)
  return types.SimpleNamespace(**{**vars(settings), _NAME: there})


def check_separation(settings, partition: Partition) -> None:
  """Refuses rests of clients for which there are too few clients.

  Args:
    settings: From `fit`.
    partition: The partition.

  Raises:
    UsageError: If a round could lack clients.
  """
  rounds, count = settings.min_separation or 1, settings.clients_per_round or 0
  if rounds > 1 and rounds * count > partition.num_clients:
    raise UsageError(
      f'--min_separation={rounds} with --clients_per_round={count} takes '
      f'{rounds * count} clients, and this partition has '
      f'{partition.num_clients}: lower one of the two.'
    )


def check_has_clients(name: str, count: int | None, partition: Partition):
  """Refuses a setting that asks for more clients than there are.

  Args:
    name: The setting.
    count: Its value.
    partition: The partition.

  Raises:
    UsageError: If it is more than the partition's clients.
  """
  if count and count > partition.num_clients:
    held_out = len(partition.held_out_client_names)
    beside = f' (beside {held_out} held out for the server)' if held_out else ''
    raise UsageError(
      f'--{name}={count} is more than the {partition.num_clients} clients of '
      f'this partition{beside}: give --{name}={partition.num_clients} or less.'
    )
