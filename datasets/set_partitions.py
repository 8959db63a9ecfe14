"""The door through which partitions into sets (U-sets) are built."""

import dataclasses
import functools

import numpy as np

from datasets import (
  assignment,
  class_priors,
  label_masks,
  partition_arguments,
  set_partition,
  u_sets,
)
from datasets.partitions import PARTITIONS
from datasets.set_partition import SetPartition
from datasets.source import Source
from tff_ssl import prior_checks

EXACT, NOMINAL = 'exact', 'nominal'
PRIORS = (class_priors.IID, class_priors.NONIID)
RECIPES = (u_sets.PAPER, u_sets.CODE, u_sets.CODE_ROWS)
REPEATS = (u_sets.NO_REPEATS, u_sets.ACROSS_SETS)
KNOWN_PRIORS = (EXACT, NOMINAL)

_DRAWS = {
  u_sets.PAPER: u_sets.draw_by_paper,
  u_sets.CODE: u_sets.draw_by_code,
  u_sets.CODE_ROWS: functools.partial(u_sets.draw_by_code, by_rows=True),
}
_OF_CODE = (u_sets.CODE, u_sets.CODE_ROWS)

# What else helps, by partition.
_REMEDIES = {
  'u_sets': (
    ' These sets are drawn: more examples in each (client_examples), more sets '
    '(sets_per_client) or another seed give other priors.'
  ),
  'own_sets': '',
}


def build(
  name: str,
  source: Source,
  *,
  seed: int,
  num_clients: int | None = None,
  sets_per_client: int | str | None = None,
  client_examples: int | None = None,
  priors: str | None = None,
  u_set_recipe: str | None = None,
  set_repeats: str | None = None,
  known_priors: str | None = None,
  prior_noise: float | None = None,
  noise_formula: str | None = None,
  mask_ratio: float | None = None,
) -> SetPartition:
  """Lays a source's training examples in sets at clients.

  Args:
    name: `'u_sets'`, drawn from labelled data, or `'own_sets'`, those that the
      data come in; of the arguments below the latter takes those of noise and
      `mask_ratio` alone.
    source: The data.
    seed: Fixes the partition; at least 0.
    num_clients: C.
    sets_per_client: M, or M_c of each client, separated by commas (Table
      E.12 of FedUL: `'10,20,30,40,50'`).
    client_examples: n_c, the examples of each client, in sets of n_c / M_c;
      `None` for as many as there are (`datasets.u_sets`).
    priors: `'iid'` (also if `None`) or `'noniid'`.
    u_set_recipe: `'paper'` (also if `None`), `'code'` or `'code_rows'`: how
      priors and sets are drawn (`datasets.u_sets`).
    set_repeats: `'none'`, or `'across_sets'` where an example may lie in
      several sets of its client; `None` for what the recipe does.
    known_priors: What clients know of their sets: the shares of classes in
      them, `'exact'` (also if `None`), or what they were aimed at, `'nominal'`.
    prior_noise: epsilon of Section 4.2, by which what clients know is
      disturbed; at least 0, which is also meant by `None`.
    noise_formula: `'printed'` (also if `None`) or `'symmetric'`
      (`class_priors.with_noise`); not without noise.
    mask_ratio: The share in [0, 1] of each client's labels that is hidden from
      processes with labels at the clients (`datasets.label_masks`); an example
      in several sets is one. `None` stands for no mask.

  Raises:
    ValueError: If an argument is out of range, missing or unused, the source
      does not have what the partition needs, or the priors cannot be learnt
      from (`tff_ssl.prior_checks`; with the recipe of the code, clients whose
      priors lack full column rank are left as they are).
    TypeError: If an argument is of the wrong type.
  """
  partition_arguments.whole_number('seed', seed, 0)
  noise = _noise(prior_noise, noise_formula)
  train = source.train
  partition_arguments.check_source(
    source.name,
    train,
    source.num_classes,
    PARTITIONS[name].needs_labels(None) if name in PARTITIONS else False,
  )
  drawn = {
    'num_clients': num_clients,
    'sets_per_client': sets_per_client,
    'client_examples': client_examples,
    'priors': priors,
    'u_set_recipe': u_set_recipe,
    'set_repeats': set_repeats,
    'known_priors': known_priors,
  }
  if name == 'own_sets':
    _check_not_given(drawn)
    sets, told, client_names = _own_sets(source)
    arguments = {}
  elif name == 'u_sets':
    arguments = _arguments(**drawn)
    sets, told = _u_sets(source, int(seed), **arguments)
    client_names = assignment.numbered_names(arguments['num_clients'])
  else:
    raise ValueError(
      f'partition={name!r} does not lay examples in sets: choose u_sets or '
      'own_sets.'
    )
  without_noise = set_partition.stack_priors(told)
  priors_of_all = class_priors.with_noise(
    without_noise,
    noise['prior_noise'],
    noise.get('noise_formula'),
    assignment.generator(seed, assignment.Purpose.PRIOR_NOISE),
  )
  # Noise makes any matrix one of full rank, but tells no classes apart.
  for stacked in (without_noise, priors_of_all):
    try:
      prior_checks.check_class_priors(
        stacked,
        client_names,
        _class_names(source),
        # Where classes run out, as they do there, ranks are lost.
        full_rank=arguments.get('u_set_recipe') not in _OF_CODE,
      )
    except ValueError as error:
      raise ValueError(f'{error}{_REMEDIES[name]}') from error
  held, set_ids = set_partition.lay_out(sets, client_names, int(seed))
  masks = {}
  if mask_ratio is not None:
    partition_arguments.check_mask(mask_ratio, 0)
    partition_arguments.check_maskable(
      source.name, train.labels[held.examples], mask_ratio
    )
    held = _mask(held, len(train.labels), mask_ratio, int(seed))
    masks['mask_ratio'] = float(mask_ratio)
  return SetPartition(
    **vars(held),
    set_ids=set_ids,
    class_priors=priors_of_all,
    name=name,
    source_name=source.name,
    source_version=source.version,
    num_train=len(train.labels),
    seed=int(seed),
    arguments={**arguments, **noise, **masks},
  )


def _noise(prior_noise, noise_formula) -> dict[str, float | str]:
  """Checks the arguments of noise; without noise there is no formula."""
  name = 'prior_noise'
  epsilon = partition_arguments.not_negative(name, prior_noise or 0.0)
  if not epsilon:
    if noise_formula is not None:
      raise ValueError(
        f'noise_formula={noise_formula!r} has no effect without prior_noise: '
        'leave it out, or give noise.'
      )
    return {name: epsilon}
  formula = partition_arguments.choice(
    'noise_formula',
    noise_formula or class_priors.PRINTED,
    class_priors.NOISE_FORMULAS,
  )
  if formula == class_priors.PRINTED and epsilon == 0.5:
    raise ValueError(
      f'prior_noise={epsilon} by the formula as printed disturbs nothing: take '
      "another number, or noise_formula='symmetric'."
    )
  return {name: epsilon, 'noise_formula': formula}


def _arguments(
  *,
  num_clients,
  sets_per_client,
  client_examples,
  priors,
  u_set_recipe,
  set_repeats,
  known_priors,
) -> dict[str, int | str | None]:
  """Checks the arguments of drawn sets and fills in defaults."""
  choice = partition_arguments.choice
  for argument, value in (
    ('num_clients', num_clients),
    ('sets_per_client', sets_per_client),
  ):
    if value is None:
      raise ValueError(f"{argument}=None: partition 'u_sets' needs a number.")
  num_clients = partition_arguments.whole_number('num_clients', num_clients, 1)
  numbers = partition_arguments.numbers_of_sets(sets_per_client, num_clients)
  if client_examples is not None:
    client_examples = partition_arguments.whole_number(
      'client_examples', client_examples, 1
    )
  recipe = choice('u_set_recipe', u_set_recipe or u_sets.PAPER, RECIPES)
  usual = u_sets.ACROSS_SETS if recipe in _OF_CODE else u_sets.NO_REPEATS
  return {
    'num_clients': num_clients,
    'sets_per_client': ','.join(map(str, numbers)),
    'client_examples': client_examples,
    'priors': choice('priors', priors or class_priors.IID, PRIORS),
    'u_set_recipe': recipe,
    'set_repeats': choice('set_repeats', set_repeats or usual, REPEATS),
    'known_priors': choice('known_priors', known_priors or EXACT, KNOWN_PRIORS),
  }


def _check_not_given(drawn) -> None:
  for argument, value in drawn.items():
    if value is not None:
      raise ValueError(
        f"{argument}={value!r} does not apply to partition 'own_sets', which "
        'takes sets as they come: leave it out, or choose --partition=u_sets.'
      )


def _u_sets(source, seed, **arguments):
  labels, num_classes = source.train.labels, source.num_classes
  absent = np.setdiff1d(np.arange(num_classes), labels)
  if absent.size:
    raise ValueError(
      f'no training example of {source.name!r} is of class {absent[0]}, of '
      f'{num_classes}: add some, or number the classes from 0 without gaps.'
    )
  fewest = min(map(int, arguments['sets_per_client'].split(',')))
  if fewest < num_classes:
    raise ValueError(
      f'sets_per_client={fewest} is less than the {num_classes} classes of '
      f'{source.name!r}: each client needs as many sets as classes or more.'
    )
  drawn = _DRAWS[arguments['u_set_recipe']](
    labels,
    num_classes,
    sets_per_client=partition_arguments.numbers_of_sets(
      arguments['sets_per_client'], arguments['num_clients']
    ),
    client_examples=arguments['client_examples'],
    priors=arguments['priors'],
    repeats=arguments['set_repeats'],
    seed=seed,
  )
  if arguments['known_priors'] == NOMINAL:
    return drawn.sets, drawn.nominal
  return drawn.sets, set_partition.empirical_priors(
    labels, drawn.sets, num_classes
  )


def _own_sets(source):
  own = source.sets
  if own is None:
    raise ValueError(
      f"partition='own_sets' needs data that come in sets, which source "
      f'{source.name!r} does not: choose --partition=u_sets.'
    )
  numbers = own.class_priors.any(axis=2).sum(axis=1)
  sets = [
    [
      np.flatnonzero((own.client_index == client) & (own.set_index == number))
      for number in range(numbers[client])
    ]
    for client in range(len(own.client_names))
  ]
  priors = [p[:m] for p, m in zip(own.class_priors, numbers, strict=True)]
  return sets, priors, own.client_names


def _class_names(source: Source) -> tuple[str, ...]:
  if source.sets is not None:
    return source.sets.class_names
  return tuple(map(str, range(source.num_classes)))


def _mask(held, num_train, mask_ratio, seed):
  """Hides labels of each client's examples, of which one may be in two sets."""
  owner = np.full(num_train, assignment.NOBODY, np.int64)
  owner[held.examples] = held.owners
  distinct = assignment.from_owners(
    owner, held.client_names, held.server_indices, seed
  )
  masked = label_masks.mask_labels(distinct, mask_ratio, seed)
  return dataclasses.replace(held, labelled_indices=masked.labelled_indices)
