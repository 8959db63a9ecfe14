"""How private a run is, and the noise for an epsilon that it asks for."""

from __future__ import annotations

import types

from experiments.config.usage import UsageError
from tff_ssl.aggregators import recommended


def first_private_round(settings) -> int:
  """Returns the rounds before clients send anything, such as a warm-up."""
  return settings.server_warmup_rounds or 0


def fit(settings, num_clients: int) -> types.SimpleNamespace:
  """Returns the settings with a noise multiplier where a target is given.

  `used`, which is kept with a run and compared when it is resumed, stays as it
  is.

  Args:
    settings: From `experiments.config.settings.make`.
    num_clients: K, all clients of the partition.

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
    raise UsageError(
      f'--target_epsilon={settings.target_epsilon:g}: {error}'
    ) from error
  return types.SimpleNamespace(**{**vars(settings), 'noise_multiplier': noise})


def account(settings, num_clients: int):
  """Returns the `PrivacyAccount` of a run; `None` without noise.

  Args:
    settings: From `fit`.
    num_clients: K, all clients of the partition.

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
  kinds = {'uniform': 'fixed', 'poisson': 'poisson', 'daytime': 'none'}
  rests = (settings.min_separation or 1) > 1
  return {
    'clients_per_round': settings.clients_per_round,
    'num_clients': num_clients,
    # Who took part lately may not: the draws are not independent.
    'sampling': 'none' if rests else kinds[settings.client_sampling],
    'delta': settings.delta,
    'adaptive_clip': settings.clip_norm is None,
  }
