"""Flags that cannot be had together; no TensorFlow here."""

from datasets import (
  catalogue,
  partition_arguments,
  partitions,
  pooled_split,
)
from experiments import default_tables, fedul_flags
from experiments.flags import UsageError
from tff_ssl import checks
from tff_ssl.models import ENCODERS


def check(values, spec) -> None:
  """Checks flags against each other; the data are checked once loaded.

  Args:
    values: The flags that the run uses, by name.
    spec: The process's `ProcessSpec`.

  Raises:
    UsageError: If some cannot be had together.
  """
  clients, groups = values.get('clients_per_round'), values.get('num_groups')
  if clients and groups and groups > clients:
    raise UsageError(
      f'--num_groups={groups} is more than --clients_per_round={clients}: some '
      'groups would always be empty; lower the first or raise the second.'
    )
  probed = values.get('gradient_diversity_clients')
  if probed and groups and groups > probed:
    raise UsageError(
      f'--gradient_diversity_clients={probed} is less than --num_groups='
      f'{groups}: some groups would have no client; raise the first.'
    )
  population = values.get('num_clients')
  if clients and population and clients > population:
    raise UsageError(
      f'--clients_per_round={clients} is more than --num_clients={population}: '
      'a client takes part once a round; lower the first.'
    )
  warmup, steps = (
    values.get('schedule_warmup_steps'),
    values.get('schedule_steps'),
  )
  if steps and warmup >= steps:
    raise UsageError(
      f'--schedule_warmup_steps={warmup} must be below --schedule_steps={steps}'
      ': the warm-up is a part of the schedule.'
    )
  if values['evaluation_offset'] >= values['rounds_per_evaluation'] > 1:
    raise UsageError(
      f'--evaluation_offset={values["evaluation_offset"]} must be below '
      f'--rounds_per_evaluation={values["rounds_per_evaluation"]}.'
    )
  _check_label_hungry(values, spec)
  _check_helpers(values)
  _check_counted_steps(values, spec)
  for flag in ('server_examples', 'labelled_examples'):
    if values.get(flag) == 0:
      raise UsageError(
        f'--{flag}=0 leaves the process {spec.name} without labels: give at '
        'least one per class.'
      )
  if values.get('mask') == 'redrawn' and not spec.redraws_masks:
    raise UsageError(
      f'--mask=redrawn: the process {spec.name} cannot hide other labels in '
      'every pass: choose --mask=fixed.'
    )
  if 'test_prior' in values:
    try:
      prior = fedul_flags.parse_prior(values['test_prior'])
      checks.positive_distribution(test_prior=prior)
    except ValueError as error:
      raise UsageError(
        f'--test_prior={values["test_prior"]}: {error}'
      ) from error
  if (
    values.get('mask') == 'redrawn'
    and values.get('control_update') == 'full_gradient'
  ):
    raise UsageError(
      '--control_update=full_gradient would see the labels that --mask=redrawn '
      'hides: choose --control_update=from_steps, or --mask=fixed.'
    )
  if values.get('split', pooled_split.OWN) != pooled_split.OWN:
    _check_cut(values)
  _check_sets(values, spec)
  if catalogue.SOURCES[values['dataset']].has_unlabelled:
    _check_unlabelled(values, spec)


def _check_label_hungry(values, spec) -> None:
  """Checks flags of encoders, pre-training and central training."""
  if spec.needs_encoder and values['model'] not in ENCODERS:
    raise UsageError(
      f'--model={values["model"]} has no encoder of its own, which the process '
      f'{spec.name} trains: choose --model={" or ".join(ENCODERS)}.'
    )
  total = values['total_rounds']
  for flag, purpose in (
    ('pretraining_rounds', 'the classifier'),
    ('supervised_rounds', 'pseudo-labels'),
  ):
    if values.get(flag, 0) >= total:
      raise UsageError(
        f'--{flag}={values[flag]} leaves none of --total_rounds={total} for '
        f'{purpose}: lower the first or raise the second.'
      )
  if not catalogue.SOURCES[values['dataset']].may_lack_labels:
    check_has_unlabelled(
      values.get('pretraining_images'), bool(values.get('mask_ratio'))
    )
  if values.get('setting') == 'central' and values['partition'] != 'pooled':
    raise UsageError(
      f'--partition={values["partition"]} does not fit --setting=central: one '
      'client holds all the data there; leave it out.'
    )


def check_has_unlabelled(images: str | None, has_unlabelled: bool) -> None:
  """Refuses to pre-train on unlabelled images where there are none.

  Args:
    images: The value of `--pretraining_images`; `None` without pre-training.
    has_unlabelled: Whether clients have images whose label they do not know.

  Raises:
    UsageError: If there are none and they are asked for.
  """
  if images == 'unlabelled' and not has_unlabelled:
    raise UsageError(
      '--pretraining_images=unlabelled has no image where --mask_ratio=0 hides '
      'no label: raise the ratio, or take all images.'
    )


def _check_helpers(values) -> None:
  """Refuses helpers that nobody can be, and a psi that would oscillate."""
  helpers, population = values.get('num_helpers'), values.get('num_clients')
  if not helpers:
    return
  if values['partition'] == 'pooled':
    raise UsageError(
      f'--partition=pooled has one client, and --num_helpers={helpers} needs '
      'others: choose another partition, or another process.'
    )
  if population and helpers >= population:
    raise UsageError(
      f'--num_helpers={helpers} needs as many other clients, more than there '
      f'are with --num_clients={population}: lower the first or raise the '
      'second.'
    )
  rate, weight = values['learning_rate'], values['sigma_psi_weight']
  # A step on weight * ||sigma - psi||^2 leaves 1 - 2 * rate * weight of it.
  if values['client_optimizer'] == 'sgd' and 2 * rate * weight >= 1:
    raise UsageError(
      f'--sigma_psi_weight={weight:g} with --learning_rate={rate:g} makes psi '
      'oscillate: twice their product must be below 1; lower one of them.'
    )


def _check_counted_steps(values, spec) -> None:
  """Refuses an optimizer whose steps its process cannot count."""
  base = values.get('base_process')
  rounds = base or spec.name
  if (
    values.get('client_optimizer') == 'adam'
    and rounds in default_tables.BASES_OVER_SGD
    and values.get('control_update') != 'full_gradient'
  ):
    asked = f'--base_process={base}' if base else f'--process={spec.name}'
    raise UsageError(
      f'--client_optimizer=adam does not go with {asked}, which divides by '
      'steps in proportion to the gradients: choose --client_optimizer=sgd'
      + (
        ', or --control_update=full_gradient.' if rounds == 'scaffold' else '.'
      )
    )


def _check_cut(values) -> None:
  """Refuses to cut data anew that clients own or nobody has labelled."""
  if values['partition'] == 'native':
    raise UsageError(
      f'--split={values["split"]} does not fit --partition=native (the default '
      'where the data name owners), whose clients own their examples: give '
      '--partition=r, or --split=own.'
    )
  if catalogue.SOURCES[values['dataset']].has_unlabelled:
    raise UsageError(
      f'--split={values["split"]} would test on images without labels, as most '
      f'of --dataset={values["dataset"]} are: choose --split=own.'
    )
  if catalogue.SOURCES[values['dataset']].has_sets:
    raise UsageError(
      f'--split={values["split"]} does not fit --dataset={values["dataset"]}, '
      'whose examples come in sets: choose --split=own.'
    )


def _check_sets(values, spec) -> None:
  """Checks process, partition and data against each other as to sets."""
  partition = partitions.PARTITIONS[values['partition']]
  asked = f'--partition={partition.name}'
  source = f'--dataset={values["dataset"]}'
  has_sets = catalogue.SOURCES[values['dataset']].has_sets
  if has_sets != (partition.name == 'own_sets'):
    raise UsageError(
      f'{asked} does not fit {source}, whose examples come in sets: choose '
      '--partition=own_sets.'
      if has_sets
      else f'{asked} does not fit {source}, whose examples come in no sets: '
      'choose --partition=u_sets.'
    )
  if spec.labels_at == 'sets' and not partition.in_sets:
    raise UsageError(
      f'{asked} lays no examples in sets, which the process {spec.name} needs: '
      'choose --partition=u_sets.'
    )
  if partition.in_sets and spec.labels_at not in ('sets', 'clients'):
    raise UsageError(
      f'{asked} of {source} has no labels for the process {spec.name}, some of '
      'whose examples are labelled: choose another process or partition.'
    )
  if spec.labels_at != 'sets':
    for flag, default in (('prior_noise', 0), ('known_priors', 'exact')):
      if values.get(flag, default) != default:
        raise UsageError(
          f'--{flag}={values[flag]} has no effect: clients of the process '
          f'{spec.name} see labels, and no class priors; leave it out.'
        )
  if partition.name == 'u_sets':
    try:
      partition_arguments.numbers_of_sets(
        values['sets_per_client'], values['num_clients']
      )
    except ValueError as error:
      raise UsageError(f'--{error}') from error


def _check_unlabelled(values, spec) -> None:
  """Refuses what needs labels of images that have none."""
  partition = partitions.PARTITIONS[values['partition']]
  if partition.needs_labels(values.get('noniid_r')):
    given = (
      f'--partition={partition.name}'
      if values.get('noniid_r') is None
      else f'--noniid_r={values["noniid_r"]}'
    )
    raise UsageError(
      f'{given} needs the class of each image, and most of '
      f'--dataset={values["dataset"]} have no label: choose --partition=r with '
      '--noniid_r=0.'
    )
  if spec.labels_at == 'clients':
    raise UsageError(
      f'--dataset={values["dataset"]} has images without labels, and the '
      f'process {spec.name} needs the labels of all clients: choose another.'
    )
