"""The values that a flag may have; no TensorFlow here."""

import difflib

from datasets import (
  class_priors,
  held_out_split,
  native_partition,
  pooled_split,
  set_partitions,
)
from datasets.partition_arguments import ALPHA_INTERVAL
from experiments.flags import UsageError
from tff_ssl import checks

_AT_LEAST = {
  'num_clients': 1,
  'server_examples': 0,
  'labelled_examples': 0,
  'min_client_examples': 0,
  'client_examples': 1,
  'num_groups': 1,
  'batch_size': 1,
  'labelled_batch_size': 1,
  'local_steps': 1,
  'labelled_steps': 1,
  'unlabelled_steps': 1,
  'local_epochs': 1,
  'schedule_steps': 1,
  'schedule_warmup_steps': 0,
  'server_steps': 1,
  'server_batch_size': 1,
  'server_epochs': 1,
  'server_warmup_rounds': 0,
  'num_helpers': 1,
  'helper_interval': 1,
  'total_rounds': 1,
  'clients_per_round': 1,
  'rounds_per_evaluation': 1,
  'evaluation_offset': 0,
  'pretraining_rounds': 0,
  'supervised_rounds': 0,
  'warmup_rounds': 0,
  'rounds_per_client_evaluation': 0,
  'rounds_per_checkpoint': 1,
  'augment_crop': 0,
  'gradient_diversity_clients': 0,
  'rounds_per_gradient_diversity': 1,
  'seed': 0,
  'workers': 1,
}
# TensorFlow counts in int32; a minibatch or the passes of a round multiply a
# number of examples, and must leave room for that.
_AT_MOST = {
  **dict.fromkeys(_AT_LEAST, 2**31 - 1),
  **dict.fromkeys(
    (
      *('batch_size', 'labelled_batch_size', 'server_batch_size'),
      *('local_epochs', 'server_epochs'),
    ),
    10**6,
  ),
  'workers': 256,
}
_INTERVALS = {
  'noniid_r': (0, 1),
  'augment_rotation': (0, 180),
  'dirichlet_alpha': ALPHA_INTERVAL,
  'mask_ratio': (0, 1),
  'threshold': (0, 1),
  'momentum': (0, 1),
  # At 1 the velocity never fades.
  'global_momentum': (0, 0.999),
  'labelled_batch_probability': (0, 1),
  'worker_timeout': (1, 86_400),
}
_POSITIVE = (
  *('learning_rate', 'server_learning_rate'),
  *('schedule_scale', 'schedule_decay', 'temperature'),
  *('client_clip_norm', 'server_clip_norm'),
  *('mixup_concentration', 'vat_radius'),
)
_NOT_NEGATIVE = (
  *('weight_decay', 'proximal_strength', 'schedule_coefficient'),
  *('unlabelled_weight', 'ssjo_loss_weight', 'consistency_weight'),
  'prior_noise',
  *('l1_weight', 'mixup_weight', 'vat_weight'),
  *('supervised_weight', 'inter_client_weight', 'agreement_weight'),
  'sigma_psi_weight',
)
_FOLDERS = ('data_dir', 'cache_dir', 'run_dir')
_CHOICES = {
  **checks.CHOICES,
  'client_optimizer': ('sgd', 'adam'),
  'precision': ('float32', 'bfloat16'),
  'schedule': ('constant', 'cosine', 'exponential'),
  'augmentation': (
    *('fixmatch', 'rand_augment_1_10', 'rand_augment_10_1', 'weak'),
  ),
  'epoch_batches': ('separate', 'continuous'),
  'setting': ('federated', 'central'),
  'server_writers': native_partition.SERVER_WRITERS,
  'mask': ('fixed', 'redrawn'),
  'split': (
    *(pooled_split.OWN, pooled_split.CUT),
    *(held_out_split.HELD_OUT, held_out_split.HELD_OUT_UNIFORM),
  ),
  'priors': set_partitions.PRIORS,
  'u_set_recipe': set_partitions.RECIPES,
  'set_repeats': set_partitions.REPEATS,
  'known_priors': set_partitions.KNOWN_PRIORS,
  'noise_formula': class_priors.NOISE_FORMULAS,
}


def check_name(flag: str, value: object, known) -> None:
  """Raises `UsageError` with the nearest match unless `value` is known."""
  if value not in known:
    near = difflib.get_close_matches(str(value), list(known), n=1)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    raise UsageError(
      f'--{flag}={value} is unknown; there are {", ".join(known)}.{hint}'
    )


def check_ranges(values) -> None:
  """Raises `UsageError` at the first value that its flag cannot have.

  Args:
    values: By name of the flag.
  """
  for name, value in values.items():
    expected = None
    if name in _AT_LEAST and value < _AT_LEAST[name]:
      expected = f'at least {_AT_LEAST[name]}'
    elif name in _AT_MOST and value > _AT_MOST[name]:
      expected = f'at most {_AT_MOST[name]}'
    elif name in _INTERVALS and not (
      _INTERVALS[name][0] <= value <= _INTERVALS[name][1]
    ):
      expected = 'between {:g} and {:g}'.format(*_INTERVALS[name])
    elif name in _POSITIVE and not 0 < value < float('inf'):
      expected = 'above 0'
    elif name in _NOT_NEGATIVE and not 0 <= value < float('inf'):
      expected = 'at least 0'
    elif name in _FOLDERS and not value:
      expected = 'a folder'
    elif name in _CHOICES:
      check_name(name, value, _CHOICES[name])
    if expected is not None:
      raise UsageError(f'--{name}={value} must be {expected}.')
  if values.get('schedule_decay', 1) > 1:
    raise UsageError(
      f'--schedule_decay={values["schedule_decay"]} must be at most 1.'
    )
  if values.get('momentum') == 1:
    raise UsageError('--momentum=1.0 must be below 1.')
  if 'server_weight' in values and not 0 < values['server_weight'] < 1e9:
    raise UsageError(f'--server_weight={values["server_weight"]} must be > 0.')
