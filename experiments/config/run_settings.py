"""The settings of a run itself: how long it trains, on whom, and where.

The settings of its parts, such as processes or optimizers, are declared beside
these parts.
"""

import dataclasses

from datasets.partition import assignment
from datasets.partition.partitions import PARTITIONS
from tff_ssl import plans
from tff_ssl.common.setting import (
  Scope,
  Setting,
  needs,
  needs_process,
  only_with,
  unless,
)
from tff_ssl.models import NORM
from tff_ssl.simulation import client_sampling

_CLIENTS_TRAIN = needs_process('has_client_training')
_HAS_DIVERSITY = (_CLIENTS_TRAIN, needs_process('has_gradient_diversity'))
_MEASURES_DIVERSITY = needs(
  'gradient diversity that is measured (--gradient_diversity_of=participants, '
  'or --gradient_diversity_clients above 0)',
  '--gradient_diversity_clients=0 measures nothing',
  'measures_diversity',
)
# Of --setting=central. The momentum of the one client goes on, and a round is
# an epoch.
CENTRAL = {
  'partition': 'pooled',
  'local_epochs': 1,
  'client_momentum': 'slot',
  'rounds_per_evaluation': 1,
}

CHOSEN = (
  Setting(
    'process',
    str,
    'Name of the process (--list names them), module:SPEC of your own, or '
    'recommended: the one that we recommend for where the labels are.',
  ),
  Setting(
    'dataset',
    str,
    'Name of the data set (--list names them), or module:SOURCE of your own.',
  ),
  Setting(
    'setting',
    str,
    'federated, or central: one client that holds all the data and keeps its '
    'momentum, in rounds of one epoch.',
    default='federated',
    choices=('federated', 'central'),
    used_when=(
      needs(
        'a process that can be trained centrally',
        'the process {process} does not use it, it cannot be trained centrally',
        'can_be_central',
      ),
    ),
  ),
)

SCHEDULE = (
  Setting(
    'total_rounds',
    int,
    'Rounds to train.',
    default=100,
    at_least=1,
    scope=Scope.RUN,
  ),
  Setting(
    'clients_per_round',
    int,
    'C, the number of clients that take part in a round. The default is at '
    'most the number of clients, and all of them where a process needs all.',
    default=10,
    at_least=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'rounds_per_evaluation',
    int,
    'Rounds between evaluations.',
    default=10,
    at_least=1,
    scope=Scope.RUN,
  ),
  Setting(
    'evaluation_offset',
    int,
    'Rounds before the first evaluation; 0 for as many as between others. With '
    '1, and 10 rounds between evaluations, there is one after rounds 1, 11, 21 '
    'and so on, and after the last.',
    default=0,
    at_least=0,
    scope=Scope.RUN,
  ),
  Setting(
    'gradient_diversity_clients',
    int,
    'Clients on which gradient diversity is measured, the same ones for every '
    'process and round; 0 for none.',
    default=0,
    at_least=0,
    scope=Scope.RUN,
    used_when=(
      *_HAS_DIVERSITY,
      unless(
        'gradient_diversity_of',
        'participants',
        'measures on the clients of each round',
      ),
    ),
  ),
  Setting(
    'gradient_diversity_of',
    str,
    'Whose gradient diversity is measured: of fixed_clients, as many as '
    '--gradient_diversity_clients says, with the model after a round; or of '
    'the participants of a round, with the model that they receive in it, as '
    'the paper does.',
    default='fixed_clients',
    choices=('fixed_clients', 'participants'),
    scope=Scope.RUN,
    used_when=(*_HAS_DIVERSITY, _MEASURES_DIVERSITY),
  ),
  Setting(
    'rounds_per_gradient_diversity',
    int,
    'Rounds between measurements of gradient diversity.',
    default=10,
    at_least=1,
    scope=Scope.RUN,
    used_when=(*_HAS_DIVERSITY, _MEASURES_DIVERSITY),
  ),
  Setting(
    'rounds_per_client_evaluation',
    int,
    'Rounds between evaluations on the test examples of each client, which '
    'also give the accuracy on all of them; 0 for none. One more follows the '
    'last round.',
    default=0,
    at_least=0,
    scope=Scope.RUN,
    used_when=(
      needs(
        'clients with test examples of their own',
        'only clients of a native split or of u_sets have test examples of '
        'their own (choose --partition=native and a data set whose examples '
        'have owners, or --partition=u_sets)',
        'has_tested_clients',
      ),
    ),
  ),
  Setting(
    'on_collapse',
    str,
    'What happens when most pseudo-labels are likely to be wrong: warn; stop '
    'the run after the checkpoint of that round; or rewind, which goes back to '
    'the last round that was sound and lets the server train alone until after '
    'that round. With rewind, the rounds that are evaluated decide what is '
    'trained.',
    default='warn',
    choices=('warn', 'stop', 'rewind'),
    scope=Scope.RUN,
    used_when=(
      needs_process('makes_pseudo_labels'),
      needs_process('has_server_training'),
    ),
  ),
  Setting(
    'pseudo_label_examples',
    int,
    'Unlabelled examples of the clients, drawn once, whose pseudo-labels are '
    'counted by class in each evaluation; 0 for none.',
    default=0,
    at_least=0,
    scope=Scope.RUN,
    used_when=(
      needs_process('makes_pseudo_labels'),
      needs(
        'pseudo-labels that a threshold or rule decides about',
        'no threshold decides about the pseudo-labels of the process {process}',
        'labels_by_confidence',
      ),
      unless('experts', 'truth', 'makes no pseudo-labels'),
      unless('pseudo_labels', 'sets', 'takes them from the priors of sets'),
    ),
  ),
  Setting(
    'rounds_per_checkpoint',
    int,
    'Rounds between checkpoints.',
    default=1,
    at_least=1,
    scope=Scope.RUN,
  ),
  dataclasses.replace(assignment.SEED, help='Seed of all randomness.'),
  Setting(
    'seeds',
    str,
    'Several seeds instead, such as 0,1,2: a run each, one after the other, in '
    '<run_dir>_seed<n>, and a line with mean and interval at the end.',
    scope=Scope.REPETITION,
  ),
  Setting(
    'with_lower_bound',
    bool,
    'Trains on the labels alone beside it (server_only where the server has '
    'them, else fedavg or fsl), with the same seed, in <run_dir>_<process>, '
    'and says at the end what the unlabelled examples of the clients gave.',
    scope=Scope.NAME,
    used_when=(
      needs(
        'a process that learns from examples without labels, beside labels of '
        'the server or of the same clients',
        'there is no such bound of the process {process}',
        'has_lower_bound',
      ),
      needs(
        'clients that train',
        'the process {process} is that bound',
        'has_client_training',
      ),
    ),
  ),
)

RECIPE = (
  Setting(
    'recipe',
    str,
    'TABLE:ROW, a row of a published table; flags given beside it win (python '
    '-m experiments.reproduce --list names them).',
    scope=Scope.NAME,
  ),
  Setting(
    'recipe_scale',
    float,
    "Share of the recipe's rounds, in (0, 1]: all numbers of rounds and the "
    'schedule are shortened together.',
    above=0,
    at_most=1,
    scope=Scope.NAME,
    used_when=(only_with('recipe'),),
  ),
)

PARTITION = Setting(
  'partition',
  str,
  f'How clients get data: {", ".join(PARTITIONS)}, or module:PARTITION of your '
  'own; by default native where the data say who owns each example.',
  default='r',
)

PLACES = (
  Setting(
    'run_dir',
    str,
    'Folder of the results, a new or an empty one; a run that is there is '
    'resumed. By default runs/<process>_<dataset>_seed<seed>, where the name '
    'of the data folder follows that of the data set for files of your own.',
    scope=Scope.NAME,
    aliases=('root_output_dir',),
  ),
  Setting(
    'data_dir',
    str,
    'Folder of the data files; by default TFF_SSL_DATA_DIR, or else the '
    'download folders of TFF and TFDS.',
    scope=Scope.MACHINE,
  ),
  Setting(
    'cache_dir',
    str,
    'Folder of unpacked data and client stores; by default ~/.cache/tff_ssl.',
    default='~/.cache/tff_ssl',
    scope=Scope.MACHINE,
  ),
)

ACTIONS = (
  Setting(
    'help',
    bool,
    'Lists the flags of a process on a data set, or of a recipe, each with the '
    'value that it will have, and ends.',
    scope=Scope.NAME,
    aliases=('h',),
  ),
  Setting(
    'dry_run',
    bool,
    'Prepares the data, says what would run and what it would cost, and ends; '
    'nothing keeps the few rounds that it times.',
    scope=Scope.NAME,
  ),
  Setting(
    'export_form',
    str,
    'Writes the process, as TFF computations, to this file for a platform '
    '(tff_ssl.load_process reads it), and ends without training.',
    scope=Scope.NAME,
  ),
  Setting(
    'list',
    bool,
    'Lists processes, data sets, models and aggregators, and ends.',
    scope=Scope.NAME,
  ),
  Setting(
    'json',
    bool,
    'Prints one JSON document in the place of lines for people, which go to '
    'standard error.',
    scope=Scope.NAME,
  ),
)

NETWORK = (
  Setting(
    'model',
    str,
    'Name of the network (--list names them), or module:FUNCTION of your own, '
    'called with input_shape, num_classes and norm (for texts, num_tokens, '
    'too).',
    default='small_cnn',
  ),
  NORM,
)

# Who takes part in a round, and what goes wrong with them.
TAKING_PART = (
  Setting(
    'client_sampling',
    str,
    'Who is invited to a round: --clients_per_round clients, all as likely '
    '(uniform); or each client by itself, as many on average (poisson).',
    default='uniform',
    choices=client_sampling.KINDS,
    used_when=(_CLIENTS_TRAIN,),
    needed_by='differential privacy by Poisson sampling',
  ),
  Setting(
    'min_separation',
    int,
    'The least number of rounds from one round of a client to its next one; '
    'with 1, it may take part in every round.',
    default=1,
    at_least=1,
    used_when=(_CLIENTS_TRAIN,),
    needed_by='rounds as in production (arXiv 2305.18465)',
  ),
  Setting(
    'drop_out',
    float,
    'Share of the invited clients that send nothing, drawn anew each round.',
    default=0.0,
    at_least=0,
    at_most=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'straggler',
    float,
    'Share of the invited clients, drawn anew each round, that get only a part '
    'of their local steps done: 1 to 99 percent, by chance.',
    default=0.0,
    at_least=0,
    at_most=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'corrupt',
    str,
    'What goes wrong at corrupt clients: their change of the model is no '
    'number (nan), so large that its norm is none (overflow), 1e6 times as '
    'large (exploding), or points the other way (flipped_signs); they train '
    'with the label L - 1 - y in the place of y (flipped_labels), or from the '
    'first model of the run (stale).',
    default='none',
    choices=('none', *plans.CORRUPTIONS),
    used_when=(_CLIENTS_TRAIN,),
    needed_by='comparisons of aggregators under faults',
  ),
  Setting(
    'corrupt_share',
    float,
    'Share of all clients that is corrupt, the same ones in all rounds; one of '
    'them at least.',
    default=0.1,
    above=0,
    at_most=1,
    used_when=(
      _CLIENTS_TRAIN,
      unless('corrupt', 'none', 'leaves all clients sound'),
    ),
  ),
  Setting(
    'min_completion',
    float,
    'Share of the invited clients that must complete a round: report, with '
    'finite values. With fewer, the round is given up and other clients are '
    'drawn, five times at most.',
    default=0.5,
    at_least=0,
    at_most=1,
    used_when=(_CLIENTS_TRAIN,),
    needed_by='clients that drop out (arXiv 1902.01046)',
  ),
)

IN_PROCESS, WORKER = 'in_process', 'worker'
CONTEXT = Setting(
  'context',
  str,
  "What computes: in_process, TensorFlow in the run's own process; or worker, "
  'a program of TFF beside it, on CPUs alone, which listens on all network '
  'interfaces without a password.',
  default=IN_PROCESS,
  choices=(IN_PROCESS, WORKER),
  needed_by='clients apart from the run itself',
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
    _CLIENTS_TRAIN,
    only_with('context', IN_PROCESS),
  ),
)
_ON_A_CLUSTER = only_with('cluster')

# What computes a run, and where; checked before TensorFlow is imported.
COMPUTING = (
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
)

FOLDERS = ('data_dir', 'cache_dir', 'run_dir')
# The settings of a cluster, beside --cluster itself.
OF_CLUSTERS = tuple(
  setting.name for setting in COMPUTING if _ON_A_CLUSTER in setting.used_when
)
