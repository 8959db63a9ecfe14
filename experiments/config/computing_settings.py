"""What computes a run, and where; checked before TensorFlow is imported."""

from tff_ssl.common.setting import Scope, Setting, needs_process, only_with

IN_PROCESS, WORKER = 'in_process', 'worker'
CONTEXT = Setting(
  'context',
  str,
  "What computes: in_process, TensorFlow in the run's own process; or worker, "
  'a program of TFF beside it, on CPUs alone, which listens on all network '
  'interfaces without a password.',
  default=IN_PROCESS,
  choices=(IN_PROCESS, WORKER),
)
DEVICE = Setting(
  'device',
  str,
  'Where TensorFlow computes: auto takes a GPU where TensorFlow sees one; a '
  'worker has none.',
  default='auto',
  choices=('auto', 'cpu', 'gpu'),
  scope=Scope.MACHINE,
)
CLUSTER = Setting(
  'cluster',
  str,
  'Computes the clients of a round on a Ray cluster: local starts one on this '
  'machine, auto takes the one that runs here, HOST:PORT another. Needs Ray '
  '(make ray). A run may be resumed with or without.',
  scope=Scope.MACHINE,
  used_when=(
    needs_process('has_client_training'),
    only_with('context', IN_PROCESS),
  ),
)
_ON_A_CLUSTER = only_with('cluster')

SETTINGS = (
  CONTEXT,
  DEVICE,
  CLUSTER,
  Setting(
    'cluster_parts',
    int,
    'Into how many parts a round is cut, in order; as many as it has clients, '
    'if that is less. Take more than processes fit on the cluster, so that '
    'slow machines compute fewer. Results with another number may differ in '
    'their last bits; who computes what makes no difference.',
    default=8,
    at_least=1,
    at_most=100_000,
    scope=Scope.MACHINE,
    used_when=(_ON_A_CLUSTER,),
  ),
  Setting(
    'cluster_cores',
    int,
    'Cores that a process of the cluster reserves; it computes as many clients '
    'side by side.',
    default=1,
    at_least=1,
    at_most=1024,
    scope=Scope.MACHINE,
    used_when=(_ON_A_CLUSTER,),
  ),
  Setting(
    'part_timeout',
    float,
    'Seconds after which a part of a round is given to another process, and '
    'its own is ended. More than a part ever takes, compilation included.',
    default=600.0,
    at_least=1,
    at_most=86_400,
    scope=Scope.MACHINE,
    used_when=(_ON_A_CLUSTER,),
  ),
  Setting(
    'shared_disk',
    bool,
    'Whether all machines find the client store, and the states of clients, at '
    'the same path. If false, each machine is sent the store once, and states '
    'travel with the parts of a round.',
    default=True,
    scope=Scope.MACHINE,
    used_when=(_ON_A_CLUSTER,),
  ),
)


def without_revoked(given: dict[str, object]) -> dict[str, object]:
  """Returns the flags without those of a cluster, if there is to be none.

  So a run that began on a cluster can be resumed from its flag file without
  one: an empty --cluster revokes the file's.

  Args:
    given: The flags that were given, by name.
  """
  if given.get('cluster') != '':
    return given
  of_clusters = {
    setting.name
    for setting in SETTINGS
    if setting is CLUSTER or _ON_A_CLUSTER in setting.used_when
  }
  return {name: v for name, v in given.items() if name not in of_clusters}
