"""The flags of workers, checked before TensorFlow is imported."""

from experiments.flags import UsageError
from tff_ssl.simulation import addresses


def without_revoked(given: dict[str, object]) -> dict[str, object]:
  """Returns the flags without those that other flags of workers take back.

  A run that was started with some workers is resumed from its flag file with
  others: the file's --workers=1 is no contradiction to --worker_addresses, and
  an empty --worker_addresses takes the file's back.

  Args:
    given: The flags that were given, by name.
  """
  named = given.get('worker_addresses')
  revoked = set()
  if named == '':
    revoked = {'worker_addresses'}
  if named and given.get('workers') == 1:
    revoked = {'workers'}
  if not named:
    revoked.add('insecure_workers')  # A permission that nothing asks for.
  return {name: v for name, v in given.items() if name not in revoked}


def unused(values: dict[str, object]) -> dict[str, str]:
  """Returns the flags of workers that these values do not use, and why.

  Args:
    values: All flags that have a value.
  """
  if values.get('worker_addresses'):
    return {
      'workers': '--worker_addresses names workers that run already (give '
      '--workers=1 to take back that of a flag file)'
    }
  return {}


def check(values: dict[str, object]) -> None:
  """Checks the flags of workers against each other.

  Args:
    values: All flags that the run uses.

  Raises:
    UsageError: If they cannot work, or their danger was not accepted.
  """
  workers = values.get('workers', 1)
  clients = values.get('clients_per_round', workers)
  if workers > clients:
    raise UsageError(
      f'--workers={workers} is more than --clients_per_round={clients}: some '
      'would be idle; lower the first.'
    )
  text = values.get('worker_addresses', '')
  if not text:
    return
  try:
    named = addresses.parse(text)
  except ValueError as error:
    raise UsageError(f'--worker_addresses={text}: {error}') from error
  far = [address for address in named if not addresses.is_loopback(address)]
  if far and not values.get('insecure_workers'):
    raise UsageError(
      f'--worker_addresses={text} goes to another machine ({far[0]}) without '
      "encryption or password, which TFF's workers do not have: in a closed "
      'network add --insecure_workers, or else use a tunnel to this machine.'
    )
