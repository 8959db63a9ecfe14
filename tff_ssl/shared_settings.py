"""Settings that the builders of several algorithms have.

A setting of one algorithm stands in the algorithm's own file, one of an
objective beside the objective.
"""

from tff_ssl.common.setting import Setting, only_with, unless

# A minibatch, or the passes of a round, multiply a number of examples, and
# TensorFlow counts in int32.
_LARGEST_FACTOR = 10**6

_CLIENTS = 'client training'
_SERVER = 'server training'

BATCH_SIZE = Setting(
  'batch_size',
  int,
  'B, examples in a minibatch.',
  at_least=1,
  at_most=_LARGEST_FACTOR,
  argument='client_training.batch_size',
  group=_CLIENTS,
  aliases=('client_batch_size',),
)
LABELLED_BATCH_SIZE = Setting(
  'labelled_batch_size',
  int,
  'Labelled examples beside the minibatch; by default `batch_size`.',
  at_least=1,
  at_most=_LARGEST_FACTOR,
  optional=True,
  like='batch_size',
  argument='client_training.labelled_batch_size',
  group=_CLIENTS,
)
LOCAL_STEPS = Setting(
  'local_steps',
  int,
  'T, steps of a client in a round.',
  at_least=1,
  optional=True,
  instead_of='local_epochs',
  argument='client_training.steps',
  group=_CLIENTS,
)
LOCAL_EPOCHS = Setting(
  'local_epochs',
  int,
  "Passes over a client's examples in a round, instead of `local_steps`.",
  at_least=1,
  at_most=_LARGEST_FACTOR,
  optional=True,
  instead_of='local_steps',
  argument='client_training.epochs',
  group=_CLIENTS,
  aliases=('client_epochs_per_round',),
)
EPOCH_BATCHES = Setting(
  'epoch_batches',
  str,
  'Passes of `local_epochs`: separate (the last minibatch of each may be '
  'smaller) or continuous (only the very last one).',
  choices=('separate', 'continuous'),
  used_when=(
    only_with('local_epochs'),
    unless('match_local_steps', True, 'leaves no passes'),
  ),
  argument='client_training.epoch_batches',
  group=_CLIENTS,
  needed_by='passes apart, which the code of SSPT joins',
)
CLIENT_WEIGHTING = Setting(
  'client_weighting',
  str,
  'Weights of clients: examples or uniform.',
  choices=('examples', 'uniform'),
)
MAX_CLIENT_WEIGHT = Setting(
  'max_client_weight',
  float,
  'Largest weight of a client in the mean, in examples that it processed; by '
  'default there is none.',
  above=0,
  optional=True,
  used_when=(only_with('client_weighting', 'examples'),),
  needed_by='clients that claim too many examples',
)
CLIENT_MOMENTUM = Setting(
  'client_momentum',
  str,
  "The clients' momentum: reset every round, kept with the slot, or the mean "
  'of what the clients of the round before left.',
  choices=('reset', 'slot', 'mean'),
  used_when=(unless('momentum', 0, 'leaves nothing to keep'),),
  argument='client_training.client_momentum',
)
# Condition of settings that tell groups apart.
GROUPED = unless('num_groups', 1, 'leaves nothing to choose')

EMA_DECAY = Setting(
  'ema_decay',
  float,
  "Decay per round of the moving average of the global model's weights, which "
  'is then what is evaluated, and what labels with `teacher=received`; 0 for '
  'none.',
  default=0.0,
  at_least=0,
  below=1,
)
GLOBAL_MOMENTUM = Setting(
  'global_momentum',
  float,
  "beta_g, momentum of the clients' averaged change, in [0, 0.999].",
  at_least=0,
  # At 1 the velocity never fades.
  at_most=0.999,
  used_when=(
    unless('server_order', 'beside', 'averages the server model with theirs'),
  ),
  argument='server.global_momentum',
  needed_by='SemiFL',
)
NUM_GROUPS = Setting('num_groups', int, 'S, number of groups.', at_least=1)
START_MODEL = Setting(
  'start_model',
  str,
  'The model from which a client starts: that of its present group, or that of '
  'its previous one (slot), at first that of its position in the round.',
  choices=('group', 'slot'),
  used_when=(GROUPED,),
  needed_by='the text of Zhang et al., where their code differs',
)
# Not a flag: the runner's sampler deals clients to groups.
GROUP_ASSIGNMENT = Setting(
  'group_assignment',
  str,
  'Who assigns groups: the sampler, or the process by chance.',
  choices=('sampler', 'in_process'),
)
NUM_HELPERS = Setting(
  'num_helpers', int, 'H, helpers of a client.', at_least=1, refused=(2**31,)
)
HELPER_INTERVAL = Setting(
  'helper_interval',
  int,
  'Rounds from one choice of helpers to the next.',
  at_least=1,
  rounds='share',
)
SERVER_STEPS = Setting(
  'server_steps',
  int,
  'Labelled steps of the server in a round.',
  at_least=1,
  argument='server.steps',
  group=_SERVER,
)
SERVER_BATCH_SIZE = Setting(
  'server_batch_size',
  int,
  "Examples in the server's minibatch.",
  at_least=1,
  at_most=_LARGEST_FACTOR,
  optional=True,
  argument='server.batch_size',
  group=_SERVER,
)
SERVER_WARMUP_ROUNDS = Setting(
  'server_warmup_rounds',
  int,
  'First rounds, in which only the server trains.',
  at_least=0,
  rounds='share',
  phase='server warm-up',
  argument='server.warmup_rounds',
  group=_SERVER,
)
SERVER_ORDER = Setting(
  'server_order',
  str,
  'When the server trains: beside the clients (its model is averaged with '
  'theirs), or after them, on their average.',
  choices=('beside', 'after'),
  argument='server.order',
)
SERVER_WEIGHT = Setting(
  'server_weight',
  float,
  'Weight of the server model in each average.',
  above=0,
  below=1e9,
  argument='server.weight',
)
SERVER_REPLICAS = Setting(
  'server_replicas',
  str,
  'Server models in each round: one, or one per_group.',
  choices=('one', 'per_group'),
  used_when=(GROUPED,),
  argument='server.replicas',
)
BN_STATISTICS = Setting(
  'bn_statistics',
  str,
  "Batch normalisation's moving statistics: averaged, or the server's own "
  '(local).',
  choices=('averaged', 'local'),
  used_when=(
    only_with('norm', 'batch'),
    unless('server_order', 'after', 'leaves the statistics of the server'),
  ),
  argument='server.bn_statistics',
)
SERVER_LEARNING_RATE = Setting(
  'server_learning_rate',
  float,
  "The server's learning rate; by default `learning_rate`.",
  above=0,
  like='learning_rate',
  group=_SERVER,
)

# How long a client trains in a round.
LOCAL = (BATCH_SIZE, LOCAL_STEPS, LOCAL_EPOCHS)
# How long the server trains in a round, and from when on clients do.
SERVER_LOCAL = (SERVER_STEPS, SERVER_BATCH_SIZE, SERVER_WARMUP_ROUNDS)
# What else a server has whose model meets those of groups.
SERVER = (
  *SERVER_LOCAL,
  SERVER_ORDER,
  SERVER_WEIGHT,
  GLOBAL_MOMENTUM,
  BN_STATISTICS,
)
