"""From flags to checked settings; everything here runs before TensorFlow.

A flag that the chosen process or data set does not use is an error, and so is a
value that cannot work: one sentence that names the flag, its value and what to
do.
"""

import os
import types
from collections.abc import Collection

from datasets import (
  catalogue,
  local_files,
  partitions,
)
from experiments import (
  defaults,
  flag_conflicts,
  setting_ranges,
  worker_settings,
)
from experiments.flags import GROUPS, UsageError
from tff_ssl import algorithms, checks
from tff_ssl.algorithms import PROCESSES
from tff_ssl.models import ENCODERS, MODELS

# What may change between the start of a run and its resumption.
FREE = frozenset(
  {
    'total_rounds',
    'rounds_per_evaluation',
    'evaluation_offset',
    'rounds_per_client_evaluation',
    'rounds_per_checkpoint',
    'gradient_diversity_clients',
    'rounds_per_gradient_diversity',
    'recipe',
    'recipe_scale',
    'run_dir',
    'data_dir',
    'cache_dir',
    'workers',
    'worker_addresses',
    'worker_timeout',
    'insecure_workers',
  }
)

# Settings of builders and other flags that only some processes use.
_BUILDER_SETTINGS = frozenset(
  name for spec in PROCESSES.values() for name in spec.settings
) - {'server_learning_rate'}
_CLIENT_TRAINING = frozenset(
  {
    *('clients_per_round', 'gradient_diversity_clients', 'workers'),
    'client_clip_norm',
  }
)
_AUGMENTATION = (
  *('augmentation', 'augment_flip', 'augment_crop', 'augment_rotation'),
)
_GRADIENT_DIVERSITY = ('gradient_diversity_clients',)
_SERVER_TRAINING = frozenset({'server_learning_rate', 'server_clip_norm'})
_PARTITION_FLAGS = frozenset(
  name for spec in partitions.PARTITIONS.values() for name in spec.arguments
)
_MASK_FLAGS = frozenset({'mask_ratio', 'mask'})
_SGD_FLAGS = ('momentum', 'nesterov')
_COSINE_FLAGS = frozenset(
  {
    'schedule_steps',
    'schedule_coefficient',
    'schedule_warmup_steps',
    'schedule_scale',
  }
)


def make(
  given: dict[str, object], optional: Collection[str] = ()
) -> types.SimpleNamespace:
  """Resolves and checks the flags of a run.

  Args:
    given: The flags that were given, by name (`flags.parse`).
    optional: Names of those among them that are left out where they have no
      effect; for the others this is an error.

  Returns:
    A namespace with all flags as attributes: `None` where the run does not use
    them. `used` are those that it does, by name.

  Raises:
    UsageError: If the flags cannot be run.
  """
  for flag in ('process', 'dataset'):
    if flag not in given:
      raise UsageError(f'--{flag} is missing; --list names what there is.')
  setting_ranges.check_name('process', given['process'], PROCESSES)
  setting_ranges.check_name('dataset', given['dataset'], catalogue.SOURCES)
  if 'local_steps' in given and 'local_epochs' in given:
    raise UsageError(
      f'--local_steps={given["local_steps"]} and '
      f'--local_epochs={given["local_epochs"]} exclude each other: give one.'
    )
  if 'data_dir' not in given and os.environ.get('TFF_SSL_DATA_DIR'):
    given = {**given, 'data_dir': os.environ['TFF_SSL_DATA_DIR']}
  written = given
  given = _with_mask_ratio(given)
  given = worker_settings.without_revoked(given)
  values = defaults.resolve(
    given,
    in_sets=PROCESSES[given['process']].labels_at == 'sets',
    has_owners=(
      given['dataset'] == 'npz'
      and 'partition' not in given
      and local_files.has_client_ids(given.get('data_dir'))
    ),
  )
  setting_ranges.check_name(
    'partition', values['partition'], partitions.PARTITIONS
  )
  setting_ranges.check_name('model', values['model'], {**MODELS, **ENCODERS})
  spec = PROCESSES[values['process']]
  if 'base_process' in spec.settings:
    base = values['base_process']
    setting_ranges.check_name(
      'base_process', base, checks.CHOICES['base_process']
    )
    spec = algorithms.find(spec.name, base)
  unused = _unused(values, spec)
  for name, reason in unused.items():
    if name in given and name not in optional:
      if name not in written:
        name = 'labelled_fraction'
      value = written[name]
      text = str(value).lower() if isinstance(value, bool) else value
      raise UsageError(f'--{name}={text} has no effect: {reason}.')
    values.pop(name, None)
  setting_ranges.check_ranges(values)
  flag_conflicts.check(values, spec)
  worker_settings.check(values)
  names = [flag.name for group in GROUPS.values() for flag in group]
  settings = types.SimpleNamespace(**{name: values.get(name) for name in names})
  settings.used = {
    name: values[name] for name in names if name in values and name != 'list'
  }
  settings.cache_dir = os.path.expanduser(settings.cache_dir)
  settings.run_dir = os.path.expanduser(settings.run_dir)
  return settings


def _with_mask_ratio(given: dict[str, object]) -> dict[str, object]:
  """Returns the flags with a mask ratio for the labelled fraction."""
  if 'labelled_fraction' not in given:
    return given
  fraction = given['labelled_fraction']
  if not 0 < fraction <= 1:
    raise UsageError(
      f'--labelled_fraction={fraction} must be above 0 (else nobody has a '
      'label) and at most 1.'
    )
  if 'mask_ratio' in given:
    raise UsageError(
      f'--mask_ratio={given["mask_ratio"]} and --labelled_fraction={fraction} '
      'exclude each other: give one.'
    )
  rest = {k: v for k, v in given.items() if k != 'labelled_fraction'}
  # In the digits that people write: 1 - 0.9 is a little less than 0.1.
  return {**rest, 'mask_ratio': round(1 - fraction, 12)}


def source_options(dataset: str) -> dict[str, str]:
  """Returns the flags of a data set's own options: flag -> option."""
  options = catalogue.SOURCES[dataset].options
  return {f'{dataset}_{option}': option for option in options}


def _unused(values, spec) -> dict[str, str]:
  """Returns the flags that this run does not use, with the reason."""
  # First, so that where the process has no use at all for a flag, this is said.
  unused = _unused_beside_others(values)
  why = f'the process {spec.name} does not use it'
  for name in _BUILDER_SETTINGS - set(spec.settings):
    unused[name] = why
  if not spec.has_client_training:
    unused.update(dict.fromkeys(_CLIENT_TRAINING, why))
  if not spec.has_gradient_diversity:
    unused.update(dict.fromkeys(_GRADIENT_DIVERSITY, why))
  if not spec.augments:
    unused.update(dict.fromkeys(_AUGMENTATION, why))
  if not {'client_momentum', 'local_epochs'} <= set(spec.settings) or (
    spec.has_server_training or spec.labels_at != 'clients'
  ):
    unused['setting'] = f'{why}, it cannot be trained centrally'
  if not spec.has_strong_view:
    unused['augmentation'] = f'{why}, it takes no strong view'
  if not spec.has_server_training:
    unused.update(dict.fromkeys(_SERVER_TRAINING - set(spec.settings), why))
    unused['server_examples'] = (
      f'{why}, its labels are at the clients (use --partition and '
      '--num_clients)'
    )
    unused['server_writers'] = why
  if not values['gradient_diversity_clients']:
    unused['rounds_per_gradient_diversity'] = (
      'nothing is measured without --gradient_diversity_clients'
    )
  if 'base_process' in spec.settings:
    unused.update(_unused_by_base(values['base_process'], spec))
  if values['norm'] != 'batch':
    unused['bn_statistics'] = 'only --norm=batch uses it'
  if values['num_groups'] == 1:
    unused['server_replicas'] = unused['start_model'] = (
      '--num_groups=1 leaves nothing to choose'
    )
  if values['client_optimizer'] == 'adam':
    unused.update(
      dict.fromkeys(_SGD_FLAGS, 'only --client_optimizer=sgd uses it')
    )
  elif values['momentum'] == 0:
    unused['client_momentum'] = '--momentum=0 leaves nothing to keep'
    unused['nesterov'] = '--momentum=0 leaves nothing to look ahead to'
  native = catalogue.SOURCES[values['dataset']].has_native_split
  partition = partitions.PARTITIONS[values['partition']]
  if not partition.deals_test and (partition.name != 'native' or not native):
    unused['rounds_per_client_evaluation'] = (
      'only clients of a native split or of u_sets have test examples of their '
      'own (choose --partition=native and a data set whose examples have '
      'owners, or --partition=u_sets)'
    )
  if spec.labels_at == 'dealt':
    why_dealt = (
      f'the process {spec.name} has its labels at the clients (use '
      '--labelled_examples)'
    )
    unused['server_examples'] = unused['server_writers'] = why_dealt
  else:
    unused['labelled_examples'] = why
  if spec.labels_at != 'clients':
    unused.update(
      dict.fromkeys(_MASK_FLAGS, f'{why}, clients do not have all their labels')
    )
  elif values['mask_ratio'] == 0:
    unused['mask'] = '--mask_ratio=0 hides no label'
  for name in _PARTITION_FLAGS - set(partition.arguments):
    users = [
      other.name
      for other in partitions.PARTITIONS.values()
      if name in other.arguments
    ]
    unused[name] = (
      f'--partition={partition.name} does not use it '
      f'(--partition={" or ".join(users)} does)'
    )
  for source in catalogue.SOURCES.values():
    if source.name != values['dataset']:
      for flag in source_options(source.name):
        unused[flag] = f'only --dataset={source.name} uses it'
  if values['schedule'] != 'cosine':
    unused.update(
      dict.fromkeys(_COSINE_FLAGS, 'only --schedule=cosine uses it')
    )
  if values['schedule'] != 'exponential':
    unused['schedule_decay'] = 'only --schedule=exponential uses it'
  unused.update(worker_settings.unused(values))
  return unused


def _unused_by_base(base: str, spec) -> dict[str, str]:
  """Returns the settings of base processes that the chosen one lacks."""
  names = {*spec.base_settings, 'proximal_strength'}
  return dict.fromkeys(
    names - set(PROCESSES[base].settings), f'--base_process={base} lacks it'
  )


def _unused_beside_others(values) -> dict[str, str]:
  """Returns the settings of builders to which others leave no effect."""
  unused = {}
  if values['match_local_steps']:
    unused['epoch_batches'] = '--match_local_steps=true leaves no passes'
  if 'local_epochs' not in values:
    unused['epoch_batches'] = unused['match_local_steps'] = (
      'only --local_epochs uses it'
    )
  if values['surrogate_loss'] == 'published_code':
    unused['test_prior'] = '--surrogate_loss=published_code takes it as uniform'
  if values['experts'] != 'both':
    names = ('consistency_weight', 'consistency_view', 'kl_direction')
    unused.update(
      dict.fromkeys(
        (*names, 'confidence'), '--experts=both has a second expert, this none'
      )
    )
  elif values['consistency_weight'] == 0:
    unused.update(
      dict.fromkeys(
        ('consistency_view', 'kl_direction'), '--consistency_weight=0'
      )
    )
  if not values.get('prior_noise'):
    unused['noise_formula'] = '--prior_noise=0 leaves the priors exact'
  source = catalogue.SOURCES[values['dataset']]
  if values['mask_ratio'] == 0 and not source.may_lack_labels:
    unused['labelled_batch_probability'] = '--mask_ratio=0 hides no label'
  if values.get('mixup_weight') == 0:
    unused['mix'] = unused['mixup_concentration'] = (
      '--mixup_weight=0 mixes nothing'
    )
  if values.get('vat_weight') == 0:
    unused['vat_radius'] = unused['vat_ramp'] = '--vat_weight=0 leaves it out'
  if values.get('pretraining_rounds') == 0:
    unused['pretraining_images'] = '--pretraining_rounds=0'
  return unused
