"""Checks the settings of a run, each and against others; no TensorFlow here.

The checks of a single process stand in its own file (`ProcessSpec.check`).
"""

from collections.abc import Collection, Mapping
from typing import Any

from datasets.partition import client_labels, partitions, resplit
from experiments.config import catalogue, run_settings
from experiments.config.command_line import UsageError
from experiments.parts.aggregators import AGGREGATORS
from experiments.parts.optimizers import OPTIMIZERS
from tff_ssl.algorithms import ProcessSpec
from tff_ssl.checks import cohort_adapts
from tff_ssl.common import user_modules
from tff_ssl.common.choice import Choice, Values
from tff_ssl.common.setting import check_known
from tff_ssl.models import ENCODERS, MODELS, names_for
from tff_ssl.objectives.supervised import BALANCED, CLASS_WEIGHTS

# Each row has a setting, another one that it must not exceed, and the end of
# the refusal: the reason and the remedy.
_AT_MOST = (
  (
    'num_groups',
    'clients_per_round',
    'some groups would always be empty; lower the first or raise the second',
  ),
  (
    'num_groups',
    'gradient_diversity_clients',
    'some groups would have no client; raise the second',
  ),
  (
    'clients_per_round',
    'num_clients',
    'a client takes part once a round; lower the first',
  ),
)


def used(
  resolved, optional: Collection[str]
) -> tuple[dict[str, Any], set[str]]:
  """Returns the values that the run uses, each checked by itself.

  Beside them, the names of all settings that would have an effect, with a value
  or without. A given flag without one is refused, but for the optional ones.

  Args:
    resolved: A `settings.Resolved`.
    optional: Names of flags.
  """
  values, rows = resolved.values, resolved.rows
  try:
    _check_model(values['model'])
  except ValueError as error:
    raise resolved.refusal('model', f'--{error}') from error
  unused = _unused(values, resolved.chosen, rows)
  for name in resolved.given:
    if name in unused and name not in optional:
      reason = unused[name]
      if name not in resolved.written:
        name = client_labels.LABELLED_FRACTION.name
      value = resolved.written[name]
      text = str(value).lower() if isinstance(value, bool) else value
      raise UsageError(
        f'--{name}={text} has no effect: {reason}; leave it out.'
      )
  values = {k: v for k, v in values.items() if k not in unused}
  for name, value in values.items():
    try:
      if name in run_settings.FOLDERS and not value:
        raise ValueError(f'{name}={value} must be a folder.')
      rows[name].setting.check_flag(value)
    except ValueError as error:
      raise resolved.refusal(name, f'--{error}') from error
  return values, rows.keys() - unused.keys()


def _check_model(name: str) -> None:
  if user_modules.is_reference(name):
    user_modules.load('model', name)
  else:
    check_known('model', name, {**MODELS, **ENCODERS})


def _unused(values, chosen, rows) -> dict[str, str]:
  """Returns the settings that this run does not use, with the reason."""
  facts = _facts(values, chosen)
  unused = {}
  for name, row in rows.items():
    owner = f'--{row.flag}={values[row.flag]}' if row.flag else f'--{name}'
    with user_modules.mistakes(owner, f'used_when of the setting {name}'):
      if reason := row.setting.why_unused(facts):
        unused[name] = reason
  for name in values.keys() | catalogue.known().keys():
    if name not in rows:
      unused[name] = _why_not_offered(name, values, chosen)
  return unused


def _facts(values: Values, chosen: Mapping[str, Choice]) -> dict[str, Any]:
  """Returns what the conditions of settings (`used_when`) look at.

  They are the values, and facts of the process, the data set and the partition.
  """
  process, source = chosen['process'], chosen['dataset']
  partition = chosen['partition']
  rule = values.get('pseudo_label_rule') or 'fixed'
  labels_at = process.needs.labels_at
  server_has_all = process.takes('server_data') and labels_at == 'server'
  return {
    **values,
    **process.facts,
    'may_lack_labels': source.may_lack_labels,
    'form': source.form,
    'has_tested_clients': partition.deals_test
    or (partition.needs_client_ids and source.has_native_split),
    'can_be_central': (
      {'client_momentum', 'local_epochs'} <= set(process.setting_names)
      and not process.takes('server_data')
      and labels_at == 'clients'
    ),
    'server_has_all_labels': server_has_all,
    'has_lower_bound': server_has_all
    or (labels_at == 'clients' and process.needs.unlabelled),
    'labels_by_confidence': (
      values.get('threshold') is not None or rule != 'fixed'
    ),
    'measures_diversity': (
      values['gradient_diversity_of'] != 'fixed_clients'
      or values['gradient_diversity_clients'] != 0
    ),
  }


def _why_not_offered(name: str, values, chosen) -> str:
  """Returns why no choice of a run has a setting."""
  offers = [
    (row.flag, row.choice.name)
    for row in catalogue.every_row()
    if row.setting.name == name and row.choice is not None
  ]
  flags = {flag for flag, _ in offers}
  if not flags or 'process' in flags:
    return f'the process {chosen["process"]} does not use it'
  (flag,) = flags
  users = ' or '.join(f'--{flag}={choice}' for _, choice in offers)
  if flag == 'partition':
    return f'--partition={values["partition"]} does not use it ({users} does)'
  return f'only {users} uses it'


def check(values: Values, chosen: Mapping[str, Choice]) -> None:
  """Refuses settings that a run uses and that do not fit each other.

  No data are loaded yet. `chosen` is what it is put together from, by flag.
  """
  process, source = chosen['process'], chosen['dataset']
  for first, second, why in _AT_MOST:
    low, high = values.get(first), values.get(second)
    if low and high and low > high:
      raise UsageError(
        f'--{first}={low} is more than --{second}={high}: {why}.'
      )
  low, high = values.get('clients_per_round'), values.get('num_clients')
  if low and high:
    check_all_take_part(low, high, f'--num_clients={high}', process)
  _check_state_of_clients(values, process)
  _check_sampling(values, process)
  _check_privacy(values, process)
  _check_rounds(values)
  _check_labels(values, process)
  _check_central(values, process)
  _check_form(values, process, source)
  _check_counted_steps(values, process, chosen['client_optimizer'])
  if values.get('split', resplit.OWN) != resplit.OWN:
    _check_cut(values, source, chosen['partition'])
  _check_sets(values, process, source, chosen['partition'])
  if source.has_unlabelled:
    _check_unlabelled(values, process, chosen['partition'])
  if process.check is not None:
    asked = f'--process={values["process"]}'
    with user_modules.mistakes(asked, 'check', may_refuse=True):
      process.check(values)
  _check_aggregator(values)


def check_all_take_part(
  clients_per_round: int, num_clients: int, there: str, process: ProcessSpec
) -> None:
  """Refuses rounds of some clients where a process needs all of them.

  `there` says how many there are, as the end of "is less than".
  """
  if process.needs.clients == 'all' and clients_per_round < num_clients:
    raise UsageError(
      f'--clients_per_round={clients_per_round} is less than {there}, and '
      f'--process={process.name} is defined for rounds of all clients: leave '
      '--clients_per_round out.'
    )


def _check_state_of_clients(values, process) -> None:
  keeps_state = process.takes('client_state_dir')
  if values.get('on_collapse') == 'rewind' and keeps_state:
    raise UsageError(
      f'--on_collapse=rewind does not fit --process={values["process"]}, whose '
      'clients keep states that would not go back with it: use '
      '--on_collapse=stop or warn.'
    )
  if (
    values.get('client_momentum') == 'mean'
    and values.get('client_optimizer') == 'adam'
  ):
    raise UsageError(
      '--client_momentum=mean does not fit --client_optimizer=adam, whose '
      'state counts steps: use --client_momentum=reset, or '
      '--client_optimizer=sgd.'
    )


def _check_sampling(values, process) -> None:
  """Refuses draws of clients that the process or another flag excludes."""
  slots = [
    name
    for name in ('start_model', 'client_momentum')
    if values.get(name) == 'slot'
  ]
  if values.get('client_sampling') == 'poisson':
    reason = None
    if (values.get('num_groups') or 1) > 1:
      reason = (
        f'--num_groups={values["num_groups"]}: groups are equal parts of a '
        'fixed number of clients'
      )
    elif slots:
      reason = f'--{slots[0]}=slot: there are as many slots as clients'
    elif process.needs.clients == 'all':
      reason = f'--process={process.name}, which needs all clients'
    elif values['min_separation'] > 1:
      reason = (
        f'--min_separation={values["min_separation"]}: it draws each client in '
        'each round by itself'
      )
    if reason:
      raise UsageError(
        f'--client_sampling=poisson does not fit {reason}; choose '
        '--client_sampling=uniform.'
      )
  if 'start_model' in slots and values['min_separation'] > 1:
    raise UsageError(
      f'--min_separation={values["min_separation"]} does not fit '
      '--start_model=slot, by which clients start from their group of the '
      'round before: leave one of the two out.'
    )


def _check_privacy(values, process) -> None:
  """Refuses what looks at clients past the noise of a private aggregator."""
  aggregator = values.get('aggregator')
  if aggregator is None or not AGGREGATORS[aggregator].is_private:
    return
  reason = None
  if values.get('on_collapse', 'warn') != 'warn':
    reason = (
      f'--on_collapse={values["on_collapse"]}: what clients say of their '
      'pseudo-labels would decide, without noise, which rounds there are; '
      'choose --on_collapse=warn'
    )
  elif (
    values.get(CLASS_WEIGHTS.name) == BALANCED
    and process.needs.labels_at != 'server'
  ):
    reason = (
      '--class_weights=balanced: it counts the labels of the clients, without '
      'noise; give numbers'
    )
  elif values.get('shared_share'):
    reason = (
      f'--process={process.name}, which gives examples of some clients '
      'to all others; choose another process'
    )
  if reason:
    raise UsageError(f'--aggregator={aggregator} does not fit {reason}.')


def _check_aggregator(values) -> None:
  """Refuses an aggregator that lacks something, or would show a client."""
  name = values.get('aggregator', 'mean')
  spec = AGGREGATORS[name]
  asked = f'--aggregator={name}'
  noise = values.get('noise_multiplier')
  if spec.is_private and noise is None and 'target_epsilon' not in values:
    raise UsageError(
      f'{asked} needs --noise_multiplier or --target_epsilon: give one.'
    )
  if spec.is_private and spec.is_secure and 'clip_norm' not in values:
    raise UsageError(f'{asked} needs --clip_norm: give it.')
  if noise == 0:
    raise UsageError(
      f'--noise_multiplier=0 adds no noise, and {asked} would protect nobody: '
      'give more, or --aggregator=clip.'
    )
  weighting = values.get('client_weighting')
  if not spec.is_weighted and weighting == 'examples':
    raise UsageError(
      f'--client_weighting=examples does not fit {asked}, in which all clients '
      'weigh the same: give --client_weighting=uniform.'
    )
  clients, groups = values.get('clients_per_round'), values.get('num_groups', 1)
  adapts = spec.is_private and 'clip_norm' not in values
  if adapts and noise and clients:
    cohort_adapts(clients, noise)
  fewest = values.get('min_group_size')
  if fewest is not None and clients and clients // groups < fewest:
    raise UsageError(
      f'--clients_per_round={clients} with --num_groups={groups} leaves groups '
      f'of {clients // groups}, whose secure sums say much of each client: '
      f'at least --min_group_size={fewest} are asked for. Take fewer groups or '
      'more clients.'
    )


def _check_rounds(values) -> None:
  warmup = values.get('schedule_warmup_steps')
  steps = values.get('schedule_steps')
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


def _check_labels(values, process) -> None:
  """Refuses a run without labels, and a mask that its process cannot use."""
  name = process.name
  for flag in ('server_examples', 'labelled_examples'):
    if values.get(flag) == 0:
      raise UsageError(
        f'--{flag}=0 leaves the process {name} without labels: give at least '
        'one per class.'
      )
  if (
    values.get('corrupt') == 'flipped_labels'
    and process.needs.labels_at == 'server'
  ):
    raise UsageError(
      f'--corrupt=flipped_labels: clients of the process {name} see no label '
      'that could be flipped: choose another --corrupt.'
    )
  can_redraw = process.takes('redrawn_mask_ratio')
  if values.get('mask') == 'redrawn' and not can_redraw:
    raise UsageError(
      f'--mask=redrawn: the process {name} cannot hide other labels in every '
      'pass: choose --mask=fixed.'
    )


def _check_central(values, process) -> None:
  """Checks the encoder, and the partition of central training."""
  if (
    process.needs.encoder
    and values['model'] not in ENCODERS
    and ':' not in values['model']
  ):
    raise UsageError(
      f'--model={values["model"]} has no encoder of its own, which the process '
      f'{process.name} trains: choose --model={" or ".join(ENCODERS)}.'
    )
  central = values.get('setting') == 'central'
  if central and values['partition'] != run_settings.CENTRAL['partition']:
    raise UsageError(
      f'--partition={values["partition"]} does not fit --setting=central: one '
      'client holds all the data there; leave it out.'
    )


def _check_form(values, process, source) -> None:
  """Refuses a network that does not take what the data set has."""
  if source.form == 'tokens' and not process.needs.tokens:
    raise UsageError(
      f'--process={values["process"]} does not take the texts of --dataset='
      f'{values["dataset"]}: it mixes or moves examples, or splits the weights '
      'of a network, which words cannot be; choose another process.'
    )
  network = values['model']
  fitting = names_for(source.form, with_encoder=process.needs.encoder)
  if network in fitting or network not in (*MODELS, *ENCODERS):
    return
  raise UsageError(
    f'--model={network} does not take the {source.form} of --dataset='
    f'{values["dataset"]}: choose --model={" or ".join(fitting)}.'
  )


def _check_counted_steps(values, process, optimizer) -> None:
  """Refuses an optimizer whose steps the process cannot divide by."""
  if (
    not process.needs.sgd
    or optimizer.follows_gradients
    or values.get('control_update') == 'full_gradient'
  ):
    return
  base = values.get('base_process')
  asked = f'--base_process={base}' if base else f'--process={values["process"]}'
  can_average = 'control_update' in values
  other = ', or --control_update=full_gradient.' if can_average else '.'
  known = [o.name for o in OPTIMIZERS.values() if o.follows_gradients]
  raise UsageError(
    f'--client_optimizer={optimizer.name} does not go with {asked}, '
    'which divides by steps in proportion to the gradients: choose '
    f'--client_optimizer={" or ".join(known)}{other}'
  )


def _check_cut(values, source, partition) -> None:
  """Refuses to split data anew that have owners, sets or too few labels."""
  per_client = values['split'] == resplit.PER_CLIENT
  if partition.needs_client_ids and not per_client:
    raise UsageError(
      f'--split={values["split"]} does not fit --partition='
      f'{values["partition"]}, whose clients own their examples: give '
      f'--split={resplit.PER_CLIENT} or {resplit.OWN}, or '
      f'--partition={run_settings.PARTITION.default}.'
    )
  if source.has_unlabelled and not per_client:
    raise UsageError(
      f'--split={values["split"]} would test on images without labels, as most '
      f'of --dataset={values["dataset"]} are: choose --split=own.'
    )
  if source.has_sets:
    raise UsageError(
      f'--split={values["split"]} does not fit --dataset={values["dataset"]}, '
      'whose examples come in sets: choose --split=own.'
    )


def _check_sets(values, process, source, partition) -> None:
  """Checks that process, partition and data agree about sets of examples."""
  asked = f'--partition={values["partition"]}'
  data, labels_at = f'--dataset={values["dataset"]}', process.needs.labels_at
  fitting = ' or '.join(partitions.names_in_sets(source.has_sets))
  if source.has_sets != partition.needs_sets:
    how = 'sets' if source.has_sets else 'no sets'
    raise UsageError(
      f'{asked} does not fit {data}, whose examples come in {how}: choose '
      f'--partition={fitting}.'
    )
  if labels_at == 'sets' and not partition.in_sets:
    raise UsageError(
      f'{asked} lays no examples in sets, which the process {process} needs: '
      f'choose --partition={fitting}.'
    )
  if partition.in_sets and labels_at not in ('sets', 'clients'):
    raise UsageError(
      f'{asked} of {data} has no labels for the process {process}, some of '
      'whose examples are labelled: choose another process or partition.'
    )
  if labels_at != 'sets':
    for flag, default in (('prior_noise', 0), ('known_priors', 'exact')):
      if values.get(flag, default) != default:
        raise UsageError(
          f'--{flag}={values[flag]} has no effect: clients of the process '
          f'{process} see labels, and no class priors; leave it out.'
        )
  own = {name: values.get(name) for name in partition.setting_names}
  with user_modules.mistakes(asked, 'complete', may_refuse=True):
    try:
      partition.complete(own)
    except ValueError as error:
      raise UsageError(f'--{error}') from error


def _check_unlabelled(values, process, partition) -> None:
  """Refuses partitions and processes that need labels which are missing."""
  asked = f'--partition={values["partition"]}'
  with user_modules.mistakes(asked, 'needs_labels'):
    needs_labels = partition.needs_labels(values)
  if needs_labels:
    if values.get('noniid_r') is not None:
      asked = f'--noniid_r={values["noniid_r"]}'
    raise UsageError(
      f'{asked} needs the class of each image, and most of '
      f'--dataset={values["dataset"]} have no label: choose --partition=r with '
      '--noniid_r=0.'
    )
  if process.needs.labels_at == 'clients':
    raise UsageError(
      f'--dataset={values["dataset"]} has images without labels, and the '
      f'process {process.name} needs the labels of all clients: choose '
      'another.'
    )
