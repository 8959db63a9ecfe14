"""Processes with labels for some examples of each client, and their peers."""

from tff_ssl.algorithms.process_spec import LOCAL, ProcessSpec

_FIXMATCH = (
  *('client_weighting', 'labelled_batch_size', *LOCAL),
  *('threshold', 'views_forward', 'unlabelled_weight'),
)
_UDA = (*_FIXMATCH, 'temperature')
_FEDMATCH = (
  *('threshold', 'num_helpers', 'helper_interval', 'supervised_weight'),
  *('inter_client_weight', 'agreement_weight', 'sigma_psi_weight', 'l1_weight'),
  *('client_weighting', *LOCAL),
)
_PAPER_2 = 'Cho et al. 2023, arXiv 2307.08809'

SPECS = (
  ProcessSpec(
    'fedlabel',
    'Local or global model, the surer one, labels unlabelled examples.',
    f'{_PAPER_2}, Algorithm 1',
    'fedlabel.build_fedlabel',
    (
      *('threshold', 'consistency_weight', 'confidence', 'experts'),
      *('expert_view', 'consistency_view', 'kl_direction', 'unlabelled_mean'),
      *('batch_size', 'labelled_steps', 'unlabelled_steps'),
      *('server_learning_rate', 'client_weighting'),
    ),
    server_optimizer='build_server_sgd',
    labels_at='clients',
    uses_unlabelled=True,
    has_server_training=False,
    has_gradient_diversity=False,
  ),
  *(
    ProcessSpec(
      f'{average.lower()}_{method.lower()}',
      f'{average} with {method} at clients, some of whose examples have '
      'labels.',
      f'{_PAPER_2}, Section 5.1 (baselines); {source}',
      'fed_avg.build_fed_avg',
      (*settings, *more),
      fixed={'unlabelled_loss': loss},
      objective='SemiSupervised',
      labels_at='clients',
      uses_unlabelled=True,
      has_server_training=False,
    )
    for average, more in (
      ('FedAvg', ()),
      ('FedProx', ('proximal_strength',)),
    )
    for method, settings, loss, source in (
      ('UDA', _UDA, 'uda', 'arXiv 1904.12848'),
      ('FixMatch', _FIXMATCH, 'crl', 'arXiv 2001.07685'),
    )
  ),
  ProcessSpec(
    'fedtrinet',
    'Global, old and new model of a client label its examples together.',
    "Che et al. 2021, arXiv 2109.05612, and its authors' code",
    'fedtrinet.build_fedtrinet',
    ('supervised_rounds', 'client_weighting', *LOCAL),
    labels_at='clients',
    uses_unlabelled=True,
    needs_encoder=True,
    keeps_client_state=True,
    has_server_training=False,
    has_gradient_diversity=False,
    has_strong_view=False,
  ),
  ProcessSpec(
    'fedmatch',
    'Weights sigma + psi, the clients with like models help each other.',
    "Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
    'fedmatch.build_fedmatch',
    (*_FEDMATCH, 'labelled_batch_size'),
    labels_at='clients',
    uses_unlabelled=True,
    keeps_client_state=True,
    counts_clients=True,
    has_server_training=False,
    has_gradient_diversity=False,
  ),
  ProcessSpec(
    'fedmatch_server',
    'The same with labels at the server, which alone trains sigma.',
    "Jeong et al. 2021, arXiv 2006.12097, and its authors' code",
    'fedmatch_server.build_fedmatch_server',
    (
      *_FEDMATCH,
      *('server_steps', 'server_batch_size', 'server_warmup_rounds'),
    ),
    keeps_client_state=True,
    counts_clients=True,
    has_gradient_diversity=False,
  ),
)
