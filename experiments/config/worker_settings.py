"""The settings of workers, checked before TensorFlow is imported."""

from experiments.config.usage import UsageError
from tff_ssl.setting import Scope, Setting, condition, needs_process
from tff_ssl.simulation import addresses


@condition('not --worker_addresses')
def _are_our_own(values):
  """Returns a reason where the workers run already."""
  if not values.get('worker_addresses'):
    return None
  return (
    '--worker_addresses names workers that run already (give --workers=1 to '
    'take back that of a flag file)'
  )


SETTINGS = (
  Setting(
    'workers',
    int,
    'Worker processes on this machine, which share the clients of a round. One '
    'uses all cores already: more of them are for trying this out. A run may '
    'be resumed with another number; its results may then differ in their last '
    'bits.',
    default=1,
    at_least=1,
    at_most=256,
    scope=Scope.MACHINE,
    used_when=(needs_process('has_client_training'), _are_our_own),
  ),
  Setting(
    'worker_addresses',
    str,
    "Instead of --workers: host:port,... of TFF's worker_binary, started on "
    'other machines. They must find the client store, a file in --cache_dir, '
    'at the same path as this machine. One that is lost is given up, and the '
    'others take over its clients.',
    scope=Scope.MACHINE,
  ),
  Setting(
    'worker_timeout',
    float,
    'Seconds without an answer after which a worker is given up. One of this '
    'machine is killed then, and a new one repeats the round. A worker that '
    'computes for long does answer.',
    default=60.0,
    at_least=1,
    at_most=86_400,
    scope=Scope.MACHINE,
  ),
  Setting(
    'insecure_workers',
    bool,
    'Allows --worker_addresses beyond this machine: workers know neither '
    'encryption nor passwords, and whoever reaches their ports can run '
    'programs there.',
    scope=Scope.MACHINE,
  ),
)


def without_revoked(given: dict[str, object]) -> dict[str, object]:
  """Returns the flags without those that other flags of workers revoke.

  A run may be resumed from its flag file with other workers. Then the file's
  --workers=1 does not contradict a new --worker_addresses, and an empty
  --worker_addresses revokes the file's.

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
