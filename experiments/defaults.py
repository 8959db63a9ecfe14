"""What flags are where they are not given, by data set.

They make a first run show the point of the method on a small machine. The
papers' own values are those of the recipes: 16 steps of 64 images are half an
epoch for a client with 2,283 images, but 13 epochs for a writer with 76, who
then fits his own pseudo-labels.
"""

from collections.abc import Collection

from experiments import default_tables as tables


def _label_hungry(dataset: str, is_central: bool) -> dict[str, object]:
  values = dict(tables.LABEL_HUNGRY)
  if is_central:
    values.update(tables.LABEL_HUNGRY_CENTRAL)
  elif dataset == 'emnist':
    values.update(tables.LABEL_HUNGRY_EMNIST)
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
  given: dict[str, object], in_sets: bool = False, has_owners: bool = False
) -> dict[str, object]:
  """Fills in what was not given.

  Args:
    given: Flags by name; `process` and `dataset` are known ones.
    in_sets: Whether the process takes examples in sets.
    has_owners: Whether a user's files say who owns each example; then each
      owner is a client unless another partition is given.

  Returns:
    All flags that have a value.
  """
  is_central = given.get('setting') == 'central'
  of_process = dict(tables.BY_PROCESS.get(given['process'], {}))
  if (
    'mask_ratio' in of_process
    and given['dataset'] in tables.CROSS_SILO_DATASETS
  ):
    of_process['mask_ratio'] = tables.CROSS_SILO_MASK_RATIO
  if given['process'] == 'fedul' and given['dataset'] == 'digits':
    of_process.update(tables.FEDUL_DIGITS)
  if given['process'] == 'fedul':
    base = given.get('base_process')
    of_process.update(tables.BY_PROCESS.get(base, {}))
    if base in tables.BASES_OVER_SGD:
      of_process.update(tables.FEDUL_OVER_SGD)
  if given['process'] in tables.LABEL_HUNGRY_PROCESSES:
    of_process.update(_label_hungry(given['dataset'], is_central))
  if is_central:
    of_process.update(tables.CENTRAL)
  values = {
    **tables.COMMON,
    **tables.BY_DATASET[given['dataset']],
    **({'partition': 'native'} if has_owners else {}),
    **of_process,
  }
  for name in displaced(of_process):
    values.pop(name, None)
  if not given.get('emnist_only_digits', True):
    values.update(tables.EMNIST_LETTERS)
  for name in displaced(given):
    values.pop(name, None)
  if in_sets and values['partition'] != 'own_sets':
    values['partition'] = 'u_sets'
  partition = given.get('partition', values['partition'])
  if partition == 'native':
    values['server_writers'] = 'spread'
  if partition in ('pooled', 'native'):
    values.pop('num_clients', None)
  if partition == 'r':
    values.setdefault('noniid_r', 0.4)
    values.setdefault('num_clients', 100)
  else:
    values.pop('noniid_r', None)
  if partition == 'dirichlet':
    values = {**tables.DIRICHLET, **values}
  if partition == 'u_sets':
    values.update(tables.U_SETS)
    if given['dataset'] in tables.MANY_SETS:
      values['sets_per_client'] = tables.MANY_SETS[given['dataset']]
    if not given.get('emnist_only_digits', True):
      values['sets_per_client'] = tables.LETTER_SETS
    values['clients_per_round'] = min(
      max(1, given.get('num_clients', values['num_clients'])), 100
    )
    if given.get('u_set_recipe') in ('code', 'code_rows'):
      values['set_repeats'] = 'across_sets'
  if partition in ('u_sets', 'own_sets'):
    values['prior_noise'] = 0.0
    values['noise_formula'] = 'printed'
  if partition == 'own_sets':
    values.pop('num_clients', None)
  if partition == 'pooled':
    values['clients_per_round'] = 1
    values['num_groups'] = 1
  schedule = given.get('schedule', values['schedule'])
  if schedule == 'cosine':
    values.update(tables.COSINE)
  else:
    values.pop('schedule_scale')
  if schedule == 'exponential':
    values['schedule_decay'] = 0.97
  if given.get('client_optimizer', values['client_optimizer']) == 'adam':
    values['weight_decay'] = 0.0
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
