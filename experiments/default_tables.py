"""The values of `experiments.defaults`, by data set, process and partition."""

COMMON = {
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
  'supervised_loss': 'cross_entropy',
  'client_optimizer': 'sgd',
  'idle_momentum': 'coasts',
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
  'unlabelled_mean': 'all',
  'labelled_steps': 16,
  'warmup_rounds': 5,
  'pseudo_labels': 'sets',
  'mix': 'inputs',
  'unmixed_batches': 'trained',
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
SMALL_CLIENTS = {
  'model': 'small_cnn',
  'batch_size': 20,
  'server_batch_size': 20,
  'local_epochs': 1,
  'server_examples': 100,
  'labelled_examples': 100,
  'server_warmup_rounds': 10,
}

# Clients with thousands of examples: steps and minibatch of paper 1.
LARGE_CLIENTS = {
  'batch_size': 64,
  'server_batch_size': 64,
  'local_steps': 16,
  'server_warmup_rounds': 10,
  'partition': 'r',
  'noniid_r': 0.4,
}

PHOTOS = {
  **LARGE_CLIENTS,
  'model': 'small_cnn',
  'num_clients': 10,
  'server_examples': 1000,
  'labelled_examples': 1000,
  'total_rounds': 200,
}

# Hospitals, not devices: few clients with uneven classes.
CROSS_SILO = {
  **LARGE_CLIENTS,
  'model': 'small_cnn',
  'partition': 'dirichlet',
  'dirichlet_alpha': 0.1,
  'total_rounds': 200,
}

BY_DATASET = {
  'digits': {
    **SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 20,
    'noniid_r': 0.4,
    'total_rounds': 100,
  },
  'emnist': {
    **SMALL_CLIENTS,
    'emnist_only_digits': True,
    'partition': 'native',
    'labelled_examples': 4000,
    'total_rounds': 150,
    # One pass over the test split gives every client's accuracy.
    'rounds_per_client_evaluation': 50,
  },
  'mnist': {
    **SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 600,
    'noniid_r': 0.4,
    'labelled_examples': 3000,
    'total_rounds': 150,
  },
  'emnist_balanced': {
    **LARGE_CLIENTS,
    'model': 'emnist_cnn',
    'num_clients': 47,
    'server_examples': 4700,
    'labelled_examples': 4700,
    'total_rounds': 200,
  },
  'cifar10': PHOTOS,
  # As many labels of each class as of CIFAR-10.
  'cifar100': {
    **PHOTOS,
    'server_examples': 10_000,
    'labelled_examples': 10_000,
  },
  'svhn': PHOTOS,
  # Paper 1, appendix I.
  'stl10': {**PHOTOS, 'noniid_r': 0.0, 'clients_per_round': 2},
  # FedLabel, section 5.1.
  'organamnist': {
    **CROSS_SILO,
    'num_clients': 10,
    'clients_per_round': 3,
    'server_examples': 1100,
    'labelled_examples': 1100,
  },
  'bloodmnist': {
    **CROSS_SILO,
    'num_clients': 5,
    'clients_per_round': 5,
    'server_examples': 800,
    'labelled_examples': 800,
  },
  'npz': {
    **SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 20,
    'noniid_r': 0.0,
    'total_rounds': 100,
  },
}

# FedUL, Section 4.3: five systems of hospitals, all in each round.
BY_DATASET['npz_sets'] = BY_DATASET['image_sets'] = {
  **SMALL_CLIENTS,
  'partition': 'own_sets',
  'clients_per_round': 5,
  'total_rounds': 100,
}

# 62 classes instead of 10.
EMNIST_LETTERS = {'server_examples': 620, 'labelled_examples': 24_800}

# Where the server alone moves the model, 0.03 is too high: with 100 labels of
# the writers its loss grows again after 60 rounds. Averaging with clients damps
# its steps.
BY_PROCESS = {
  'server_only': {'learning_rate': 0.01},
  # Labels of 20% of each client's examples as in FedLabel's Table 2, and one
  # strong view for all that it compares.
  **{
    name: {
      'mask_ratio': 0.8,
      'threshold': threshold,
      'augmentation': 'rand_augment_1_10',
      # Plain SGD, as in its Eqs. 1 and 9.
      'learning_rate': 0.1,
      'momentum': 0.0,
      'weight_decay': 0.0,
      # The baselines take as many steps as FedLabel takes of each kind, whose
      # server adds the mean update as it is.
      **(
        {'server_learning_rate': 1.0}
        if name == 'fedlabel'
        else {'local_steps': 16}
      ),
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
      'client_weighting': 'uniform',
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

FEDMATCH = {
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
BY_PROCESS['fedmatch'] = {
  **FEDMATCH,
  'l1_weight': 1e-4,
  'mask_ratio': 0.8,
  'augmentation': 'rand_augment_1_10',
  'labelled_batch_size': 10,
}
BY_PROCESS['fedmatch_server'] = {
  **FEDMATCH,
  'l1_weight': 1e-5,
  'server_warmup_rounds': 1,
}

# 5% of a cross-silo client's examples have labels in that table.
CROSS_SILO_MASK_RATIO = 0.95
CROSS_SILO_DATASETS = ('organamnist', 'bloodmnist')

# Chart 1 of the label-hungry paper (Hegde et al.), and batches as its code made
# them. Most labels are hidden, so that a first run shows what it is about.
LABEL_HUNGRY = {
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
LABEL_HUNGRY_EMNIST = {'clients_per_round': 100, 'total_rounds': 100}
LABEL_HUNGRY_CENTRAL = {'learning_rate': 1e-4, 'total_rounds': 10}
LABEL_HUNGRY_PROCESSES = ('fsl', 'sspt', 'ssjo')

# A few steps of 1e-4 per round would take hundreds of rounds.
FEDUL_DIGITS = {'batch_size': 20, 'learning_rate': 1e-3}

# FedNova and SCAFFOLD divide by steps in proportion to the gradients.
FEDUL_OVER_SGD = {'client_optimizer': 'sgd', 'learning_rate': 0.03}
BASES_OVER_SGD = ('fednova', 'scaffold')

# Defaults that hold for one partition or schedule only. The least number of
# examples is that of Li et al. 2022 (arXiv 2102.02079).
DIRICHLET = {
  'num_clients': 100,
  'dirichlet_alpha': 0.5,
  'min_client_examples': 10,
}
# FedUL, Section 4.1: all of five clients with ten sets each.
U_SETS = {
  'num_clients': 5,
  'sets_per_client': '10',
  'priors': 'iid',
  'u_set_recipe': 'paper',
  'set_repeats': 'none',
  'known_priors': 'exact',
}
# As many as classes, where these are more.
MANY_SETS = {
  'cifar100': '100',
  'emnist_balanced': '47',
  'organamnist': '11',
}
LETTER_SETS = '62'
# The momentum of the one client goes on, and a round is an epoch.
CENTRAL = {
  'partition': 'pooled',
  'local_epochs': 1,
  'client_momentum': 'slot',
  'rounds_per_evaluation': 1,
}
COSINE = {
  'schedule_steps': 100 * 1024,
  'schedule_coefficient': 7 / 16,
  'schedule_warmup_steps': 0,
}
