"""What flags are where they are not given, by data set.

They make a first run show the point of the method on a small machine. The
papers' own values are those of the recipes: 16 steps of 64 images are half an
epoch for a client with 2,283 images, but 13 epochs for a writer with 76, who
then fits his own pseudo-labels.
"""

from collections.abc import Collection

_COMMON = {
  'norm': 'none',
  'threshold': 0.95,
  'server_weight': 1.0,
  'server_replicas': 'one',
  'start_model': 'group',
  'client_momentum': 'reset',
  'bn_statistics': 'averaged',
  'views_forward': 'auto',
  'unlabelled_loss': 'crl',
  'unlabelled_weight': 1.0,
  'proximal_strength': 0.01,
  'base_process': 'fedavg',
  'surrogate_loss': 'log_transition',
  'client_optimizer': 'sgd',
  'control_update': 'from_steps',
  'client_weighting': 'examples',
  'mask_ratio': 0.0,
  'mask': 'fixed',
  'num_groups': 2,
  'clients_per_round': 10,
  'learning_rate': 0.03,
  'momentum': 0.9,
  'nesterov': True,
  'weight_decay': 1e-4,
  'schedule': 'constant',
  'schedule_scale': 1.0,
  'server_steps': 16,
  'seed': 0,
  'precision': 'float32',
  'rounds_per_evaluation': 10,
  'evaluation_offset': 0,
  'augmentation': 'fixmatch',
  'temperature': 0.4,
  'consistency_weight': 1.0,
  'pseudo_label_view': 'weak',
  'mixup_weight': 1.0,
  'mixup_concentration': 0.75,
  'global_momentum': 0.5,
  'server_epochs': 5,
  'confidence': 'variance',
  'experts': 'both',
  'expert_view': 'plain',
  'consistency_view': 'plain',
  'kl_direction': 'printed',
  'labelled_steps': 16,
  'warmup_rounds': 5,
  'mix': 'inputs',
  'vat_weight': 5e-4,
  'vat_radius': 1e-2,
  'vat_ramp': 'none',
  'epoch_batches': 'separate',
  'match_local_steps': False,
  'proxy_task': 'reconstruction',
  'ssjo_loss_weight': 1.0,
  'pretraining_images': 'all',
  'encoder_training': 'fine_tuned',
  'setting': 'federated',
  'gradient_diversity_clients': 0,
  'rounds_per_client_evaluation': 0,
  'rounds_per_checkpoint': 1,
  'cache_dir': '~/.cache/tff_ssl',
  'workers': 1,
  'worker_timeout': 60.0,
}

# Clients with tens of examples each: one pass in small minibatches, and rounds
# in which the server alone learns enough to give pseudo-labels.
_SMALL_CLIENTS = {
  'model': 'small_cnn',
  'batch_size': 20,
  'server_batch_size': 20,
  'local_epochs': 1,
  'server_examples': 100,
  'labelled_examples': 100,
  'server_warmup_rounds': 10,
}

# Clients with thousands of examples: steps and minibatch of paper 1.
_LARGE_CLIENTS = {
  'batch_size': 64,
  'server_batch_size': 64,
  'local_steps': 16,
  'server_warmup_rounds': 10,
  'partition': 'r',
  'noniid_r': 0.4,
}

_PHOTOS = {
  **_LARGE_CLIENTS,
  'model': 'small_cnn',
  'num_clients': 10,
  'server_examples': 1000,
  'labelled_examples': 1000,
  'total_rounds': 200,
}

# Hospitals, not devices: few clients with uneven classes.
_CROSS_SILO = {
  **_LARGE_CLIENTS,
  'model': 'small_cnn',
  'partition': 'dirichlet',
  'dirichlet_alpha': 0.1,
  'total_rounds': 200,
}

_BY_DATASET = {
  'digits': {
    **_SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 20,
    'noniid_r': 0.4,
    'total_rounds': 100,
  },
  'emnist': {
    **_SMALL_CLIENTS,
    'emnist_only_digits': True,
    'partition': 'native',
    'labelled_examples': 4000,
    'total_rounds': 150,
    # One pass over the test split gives every client's accuracy.
    'rounds_per_client_evaluation': 50,
  },
  'mnist': {
    **_SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 600,
    'noniid_r': 0.4,
    'labelled_examples': 3000,
    'total_rounds': 150,
  },
  'emnist_balanced': {
    **_LARGE_CLIENTS,
    'model': 'emnist_cnn',
    'num_clients': 47,
    'server_examples': 4700,
    'labelled_examples': 4700,
    'total_rounds': 200,
  },
  'cifar10': _PHOTOS,
  # As many labels of each class as of CIFAR-10.
  'cifar100': {
    **_PHOTOS,
    'server_examples': 10_000,
    'labelled_examples': 10_000,
  },
  'svhn': _PHOTOS,
  # Paper 1, appendix I.
  'stl10': {**_PHOTOS, 'noniid_r': 0.0, 'clients_per_round': 2},
  # FedLabel, section 5.1.
  'organamnist': {
    **_CROSS_SILO,
    'num_clients': 10,
    'clients_per_round': 3,
    'server_examples': 1100,
    'labelled_examples': 1100,
  },
  'bloodmnist': {
    **_CROSS_SILO,
    'num_clients': 5,
    'clients_per_round': 5,
    'server_examples': 800,
    'labelled_examples': 800,
  },
  'npz': {
    **_SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 20,
    'noniid_r': 0.0,
    'total_rounds': 100,
  },
}

# FedUL, Section 4.3: five systems of hospitals, all in each round.
_BY_DATASET['npz_sets'] = _BY_DATASET['image_sets'] = {
  **_SMALL_CLIENTS,
  'partition': 'own_sets',
  'clients_per_round': 5,
  'total_rounds': 100,
}

# 62 classes instead of 10.
_EMNIST_LETTERS = {'server_examples': 620, 'labelled_examples': 24_800}

# Where the server alone moves the model, 0.03 is too high: with 100 labels of
# the writers its loss grows again after 60 rounds. Averaging with clients damps
# its steps.
_BY_PROCESS = {
  'server_only': {'learning_rate': 0.01},
  # Labels of 20% of each client's examples as in FedLabel's Table 2, and one
  # strong view for all that it compares.
  **{
    name: {
      'mask_ratio': 0.8,
      'threshold': threshold,
      'augmentation': 'rand_augment_1_10',
      # The baselines take as many steps as FedLabel takes of each kind.
      **({} if name == 'fedlabel' else {'local_steps': 16}),
    }
    for name, threshold in (
      ('fedlabel', 0.5),
      *(('fedavg_uda', 0.8), ('fedprox_uda', 0.8)),
      *(('fedavg_fixmatch', 0.95), ('fedprox_fixmatch', 0.95)),
    )
  },
  # FedUL, Appendix D.2; the penalty is that for MNIST in 10 sets.
  **{
    name: {
      'client_optimizer': 'adam',
      'learning_rate': 1e-4,
      'local_epochs': 1,
      'l1_weight': 1e-5,
      **more,
    }
    for name, more in (
      ('fedul', {'batch_size': 128}),
      (
        'fedpl',
        {
          'batch_size': 128,
          'threshold': 0.4,
          'mixup_weight': 0.3,
          'mixup_concentration': 0.75,
        },
      ),
      *(('fedllp', {}), ('fedllp_vat', {})),
    )
  },
  # Its authors' code.
  'semifl': {
    'batch_size': 10,
    'local_epochs': 5,
    'weight_decay': 5e-4,
    'client_clip_norm': 1.0,
    'client_weighting': 'uniform',
  },
  'fedadam': {'server_learning_rate': 0.01},
  'fednova': {'proximal_strength': 0.0},
  # Algorithm 1 has neither momentum nor other weights. At a rate of 0.1 it
  # learns faster on digits, and diverges after 60 rounds.
  'scaffold': {
    'client_weighting': 'uniform',
    'momentum': 0.0,
    'server_learning_rate': 1.0,
  },
  # Its authors' demonstration code.
  'fedtrinet': {
    'mask_ratio': 0.8,
    'model': 'cnn_encoder',
    'batch_size': 50,
    'local_epochs': 5,
    'learning_rate': 0.01,
    'momentum': 0.5,
    'nesterov': False,
    'weight_decay': 0.0,
  },
}

_FEDMATCH = {
  'threshold': 0.75,
  'num_helpers': 2,
  'helper_interval': 10,
  'supervised_weight': 10.0,
  'inter_client_weight': 1e-2,
  'agreement_weight': 1e-2,
  'sigma_psi_weight': 10.0,
  'client_weighting': 'uniform',
  'learning_rate': 1e-3,
  'momentum': 0.0,
  'nesterov': False,
  'weight_decay': 0.0,
}
# Its authors' code, and FedLabel's share of labels and strong view.
_BY_PROCESS['fedmatch'] = {
  **_FEDMATCH,
  'l1_weight': 1e-4,
  'mask_ratio': 0.8,
  'augmentation': 'rand_augment_1_10',
  'labelled_batch_size': 10,
}
_BY_PROCESS['fedmatch_server'] = {
  **_FEDMATCH,
  'l1_weight': 1e-5,
  'server_warmup_rounds': 1,
}

# 5% of a cross-silo client's examples have labels in that table.
_CROSS_SILO_MASK_RATIO = 0.95
_CROSS_SILO_DATASETS = ('organamnist', 'bloodmnist')

# Chart 1 of the label-hungry paper (Hegde et al.), and batches as its code made
# them. Most labels are hidden, so that a first run shows what it is about.
_LABEL_HUNGRY = {
  'model': 'dense_encoder',
  'batch_size': 20,
  'local_epochs': 10,
  'epoch_batches': 'continuous',
  'learning_rate': 1e-3,
  'momentum': 0.99,
  'nesterov': False,
  'weight_decay': 0.0,
  'mask_ratio': 0.9,
}
_LABEL_HUNGRY_EMNIST = {'clients_per_round': 100, 'total_rounds': 100}
_LABEL_HUNGRY_CENTRAL = {'learning_rate': 1e-4, 'total_rounds': 10}
_LABEL_HUNGRY_PROCESSES = ('fsl', 'sspt', 'ssjo')

# A few steps of 1e-4 per round would take hundreds of rounds.
_FEDUL_DIGITS = {'batch_size': 20, 'learning_rate': 1e-3}

# Defaults that hold for one partition or schedule only. The least number of
# examples is that of Li et al. 2022 (arXiv 2102.02079).
_DIRICHLET = {
  'num_clients': 100,
  'dirichlet_alpha': 0.5,
  'min_client_examples': 10,
}
# FedUL, Section 4.1: all of five clients with ten sets each.
_U_SETS = {
  'num_clients': 5,
  'sets_per_client': '10',
  'priors': 'iid',
  'u_set_recipe': 'paper',
  'set_repeats': 'none',
  'known_priors': 'exact',
}
# The momentum of the one client goes on, and a round is an epoch.
_CENTRAL = {
  'partition': 'pooled',
  'local_epochs': 1,
  'client_momentum': 'slot',
  'rounds_per_evaluation': 1,
}
_COSINE = {
  'schedule_steps': 100 * 1024,
  'schedule_coefficient': 7 / 16,
  'schedule_warmup_steps': 0,
}


def _label_hungry(dataset: str, is_central: bool) -> dict[str, object]:
  values = dict(_LABEL_HUNGRY)
  if is_central:
    values.update(_LABEL_HUNGRY_CENTRAL)
  elif dataset == 'emnist':
    values.update(_LABEL_HUNGRY_EMNIST)
  return values


def displaced(given: Collection[str]) -> set[str]:
  """Returns the names of the flags whose place the given ones take."""
  taken = set()
  for pair in (
    {'local_steps', 'local_epochs'},
    {'mask_ratio', 'labelled_fraction'},
  ):
    if pair & set(given):
      taken |= pair - set(given)
  return taken


def resolve(
  given: dict[str, object], in_sets: bool = False
) -> dict[str, object]:
  """Fills in what was not given.

  Args:
    given: Flags by name; `process` and `dataset` are known ones.
    in_sets: Whether the process takes examples in sets.

  Returns:
    All flags that have a value.
  """
  is_central = given.get('setting') == 'central'
  of_process = dict(_BY_PROCESS.get(given['process'], {}))
  if 'mask_ratio' in of_process and given['dataset'] in _CROSS_SILO_DATASETS:
    of_process['mask_ratio'] = _CROSS_SILO_MASK_RATIO
  if given['process'] == 'fedul' and given['dataset'] == 'digits':
    of_process.update(_FEDUL_DIGITS)
  if given['process'] in _LABEL_HUNGRY_PROCESSES:
    of_process.update(_label_hungry(given['dataset'], is_central))
  if is_central:
    of_process.update(_CENTRAL)
  values = {**_COMMON, **_BY_DATASET[given['dataset']], **of_process}
  for name in displaced(of_process):
    values.pop(name, None)
  if not given.get('emnist_only_digits', True):
    values.update(_EMNIST_LETTERS)
  for name in displaced(given):
    values.pop(name, None)
  if in_sets and values['partition'] != 'own_sets':
    values['partition'] = 'u_sets'
  partition = given.get('partition', values['partition'])
  if partition == 'native':
    values['server_writers'] = 'held_out'
  if partition == 'pooled' or (
    partition == 'native' and partition != values['partition']
  ):
    values.pop('num_clients', None)
  if partition == 'r':
    values.setdefault('noniid_r', 0.4)
    values.setdefault('num_clients', 100)
  else:
    values.pop('noniid_r', None)
  if partition == 'dirichlet':
    values = {**_DIRICHLET, **values}
  if partition == 'u_sets':
    values.update(_U_SETS)
    values['clients_per_round'] = min(
      max(1, given.get('num_clients', values['num_clients'])), 100
    )
    if given.get('u_set_recipe') == 'code':
      values['set_repeats'] = 'across_sets'
  if partition in ('u_sets', 'own_sets'):
    values['prior_noise'] = 0.0
  if partition == 'own_sets':
    values.pop('num_clients', None)
  if partition == 'pooled':
    values['clients_per_round'] = 1
    values['num_groups'] = 1
  schedule = given.get('schedule', values['schedule'])
  if schedule == 'cosine':
    values.update(_COSINE)
  else:
    values.pop('schedule_scale')
  if schedule == 'exponential':
    values['schedule_decay'] = 0.97
  if given['process'] == 'semifl':
    num_labelled = given.get('server_examples', values['server_examples'])
    values['server_batch_size'] = 250 if num_labelled > 250 else 10
  rounds = values['total_rounds']
  if given['process'] == 'sspt':
    values['total_rounds'] *= 2
  values.update(given)
  # Of the default rounds, so that a run may go on for longer than it was asked
  # to at first; less where it is shorter.
  rounds = min(rounds, values['total_rounds'])
  if given['process'] == 'sspt':
    half = max(1, values['total_rounds'] // 2)
    values.setdefault('pretraining_rounds', min(rounds, half))
  if given['process'] == 'fedtrinet':
    values.setdefault('supervised_rounds', rounds * 2 // 5)
  values.setdefault('server_learning_rate', values['learning_rate'])
  if 'client_clip_norm' in values:
    values.setdefault('server_clip_norm', values['client_clip_norm'])
  values.setdefault('labelled_batch_size', values['batch_size'])
  if values['gradient_diversity_clients']:
    values.setdefault('rounds_per_gradient_diversity', 10)
  values.setdefault(
    'run_dir', 'runs/{process}_{dataset}_seed{seed}'.format(**values)
  )
  return values
