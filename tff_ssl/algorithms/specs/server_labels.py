"""Processes with labels at the server, and their bounds and variants."""

from tff_ssl.algorithms.process_spec import LOCAL, ProcessSpec

_SERVER = (
  'server_steps',
  'server_batch_size',
  'server_warmup_rounds',
  'server_weight',
  'bn_statistics',
)
_SLOTS = ('start_model', 'client_momentum')
_CRL = ('threshold', 'views_forward')
_GROUPING = 'grouping.build_grouping_ssfl'
_AT_CLIENTS = 'grouping_at_clients.build_grouping_at_clients'
_PAPER_1 = 'Zhang et al. 2021, arXiv 2008.11364'
_SERVER_COUNTS = (
  'the server model is one of the models that are averaged, so n copies of a '
  'client outweigh it more than one copy does (Eq. 7)'
)

# Never: clients do not join.
_SERVER_ONLY_ROUNDS = 2**31 - 1

SPECS = (
  ProcessSpec(
    'grouping',
    'CRL at clients, labels at the server, averages within S groups.',
    f'{_PAPER_1}, Eqs. 3, 4 and 7',
    _GROUPING,
    ('num_groups', *_CRL, *LOCAL, *_SLOTS, *_SERVER, 'server_replicas'),
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'fedavg_ssfl',
    'The same without groups: FedAvg with a server model (S = 1).',
    f'{_PAPER_1}, Eqs. 3, 4 and 8',
    _GROUPING,
    (*_CRL, *LOCAL, 'client_momentum', *_SERVER),
    fixed={'num_groups': 1},
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'self_training',
    'Self-training on weak views at clients, FedAvg with a server model.',
    f'{_PAPER_1}, Eqs. 3, 5 and 8',
    _GROUPING,
    ('threshold', *LOCAL, 'client_momentum', *_SERVER),
    fixed={'num_groups': 1},
    objective='SelfTraining',
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
    has_strong_view=False,
  ),
  ProcessSpec(
    'server_only',
    "The lower bound: training on the server's labelled examples alone.",
    f'{_PAPER_1}, Eq. 3',
    _GROUPING,
    ('server_steps', 'server_batch_size'),
    fixed={
      'num_groups': 1,
      'local_steps': 1,
      'server_warmup_rounds': _SERVER_ONLY_ROUNDS,
    },
    has_client_training=False,
    has_strong_view=False,
  ),
  ProcessSpec(
    'grouping_client_labels',
    'Some labels at clients, no server data, averages within S groups.',
    f'{_PAPER_1}, Appendix H',
    _AT_CLIENTS,
    (
      *('num_groups', *_CRL, 'unlabelled_loss', 'unlabelled_weight'),
      'labelled_batch_size',
      *(*LOCAL, *_SLOTS),
    ),
    labels_at='dealt',
    has_server_training=False,
  ),
  ProcessSpec(
    'grouping_supervised',
    'The upper bound: all labels at clients, and the server data.',
    f'{_PAPER_1}, Eqs. 3, 6 and 7 (Figure 2, Appendix F)',
    _GROUPING,
    ('num_groups', *LOCAL, *_SLOTS, *_SERVER, 'server_replicas'),
    objective='Supervised',
    labels_at='clients',
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
    has_strong_view=False,
  ),
  ProcessSpec(
    'semifl',
    'Clients train on labels of the received model, then the server.',
    "Diao et al. 2022, arXiv 2106.01432, and its authors' code",
    'semifl.build_semifl',
    (
      *('threshold', 'pseudo_label_view', 'mixup_weight'),
      *('mixup_concentration', 'global_momentum', 'client_weighting'),
      *(*LOCAL, 'server_epochs', 'server_batch_size'),
    ),
    has_gradient_diversity=False,
  ),
)
