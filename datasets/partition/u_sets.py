"""Sets of known class priors (U-sets): drawn, or given (FedUL, Section 4).

What clients are told of the priors, with or without noise (Section 4.2), must
suffice to learn a classifier (`tff_ssl.common.prior_checks`).
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from datasets.partition import assignment, u_set_draws
from datasets.partition.assignment import Assignment, PartitionSpec
from datasets.sources.source import Source
from tff_ssl.common import prior_checks
from tff_ssl.common.choice import Values
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting, unless

PRINTED, SYMMETRIC = 'printed', 'symmetric'
# With this epsilon, all factors of the printed formula are 1.
_PRINTED_WITHOUT_EFFECT = 0.5
EXACT, NOMINAL = 'exact', 'nominal'

_DRAWS: dict[str, Callable[..., u_set_draws.DrawnSets]] = {
  u_set_draws.PAPER: u_set_draws.draw_by_paper,
  u_set_draws.CODE: u_set_draws.draw_by_code,
  u_set_draws.CODE_ROWS: functools.partial(
    u_set_draws.draw_by_code, by_rows=True
  ),
}
_OF_CODE = (u_set_draws.CODE, u_set_draws.CODE_ROWS)
_MOST_CLIENTS_IN_A_ROUND = 100

NUM_CLIENTS = dataclasses.replace(assignment.NUM_CLIENTS, default=5)
SETS_PER_CLIENT = Setting(
  'sets_per_client',
  str,
  'M, the number of sets of each client, or M_c of each, separated by commas.',
  default='10',
)
CLIENT_EXAMPLES = Setting(
  'client_examples',
  int,
  'n_c, the number of examples of each client; by default as many as the data '
  'allow.',
  at_least=1,
  optional=True,
)
PRIORS = Setting(
  'priors',
  str,
  'The class distributions of the clients: iid, or noniid with two majority '
  'classes each.',
  default=u_set_draws.IID,
  choices=(u_set_draws.IID, u_set_draws.NONIID),
)
U_SET_RECIPE = Setting(
  'u_set_recipe',
  str,
  'How sets are drawn: as the text of the FedUL paper says (paper), or as the '
  'code of its authors does (code: each majority class is 47% of what a client '
  'draws its sets from, IID data shrink with M, classes may run out; '
  'code_rows, their FedUL on CIFAR-10: IID data do not shrink).',
  default=u_set_draws.PAPER,
  choices=tuple(_DRAWS),
)
SET_REPEATS = Setting(
  'set_repeats',
  str,
  'Whether an example may lie in several sets of its client (across_sets, as '
  'the recipes of the code do) or not (none).',
  default=u_set_draws.NO_REPEATS,
  choices=(u_set_draws.NO_REPEATS, u_set_draws.ACROSS_SETS),
  optional=True,
)
KNOWN_PRIORS = Setting(
  'known_priors',
  str,
  'The class priors that clients are told: the exact shares in their sets, or '
  'the nominal ones that these were drawn from.',
  default=EXACT,
  choices=(EXACT, NOMINAL),
  needed_by='FedUL by its text, where its code takes exact ones',
)
PRIOR_NOISE = Setting(
  'prior_noise',
  float,
  'epsilon, the noise in the class priors that clients are told.',
  default=0.0,
  at_least=0,
)
NOISE_FORMULA = Setting(
  'noise_formula',
  str,
  'The factors by which noise changes class priors: printed, '
  '1 + gamma (2 epsilon - 1) as in the FedUL paper, least near 0.5; or '
  'symmetric, 1 + epsilon (2 gamma - 1), which grows with epsilon.',
  default=PRINTED,
  choices=(PRINTED, SYMMETRIC),
  used_when=(unless(PRIOR_NOISE.name, 0, 'leaves the priors exact'),),
)
# Of all partitions in sets: `tell_priors` takes them, not their functions.
NOISE = (PRIOR_NOISE, NOISE_FORMULA)


def numbers_of_sets(sets_per_client: str, num_clients: int) -> list[int]:
  """Returns M_c of each client, from one number for all or one for each."""
  given = str(sets_per_client).split(',')
  if not all(re.fullmatch('[1-9][0-9]{0,5}', number) for number in given):
    raise ValueError(
      f'sets_per_client={sets_per_client} must be a whole number of at least '
      '1, or one for each client, separated by commas.'
    )
  if len(given) not in (1, num_clients):
    raise ValueError(
      f'sets_per_client={sets_per_client} has {len(given)} numbers for '
      f'{num_clients} clients: give one number for all, or one for each.'
    )
  return [int(number) for number in given] * (num_clients // len(given))


# A partition's function takes an argument for each of its settings.
def u_sets(  # noqa: PLR0913
  source: Source,
  *,
  num_clients: int,
  sets_per_client: str,
  client_examples: int | None = None,
  priors: str = PRIORS.default,
  u_set_recipe: str = U_SET_RECIPE.default,
  set_repeats: str | None = None,
  known_priors: str = KNOWN_PRIORS.default,
  seed: int,
) -> Assignment:
  """Draws sets of given class priors, by settings that `_complete` returns."""
  labels, num_classes = source.train.labels, source.num_classes
  numbers = list(map(int, sets_per_client.split(',')))
  absent = np.setdiff1d(np.arange(num_classes), labels)
  if absent.size:
    raise ValueError(
      f'no training example of {source.name!r} is of class {absent[0]}, of '
      f'{num_classes}: add some, or number the classes from 0 without gaps.'
    )
  if min(numbers) < num_classes:
    raise ValueError(
      f'sets_per_client={min(numbers)} is less than the {num_classes} classes '
      f'of {source.name!r}: each client needs as many sets as classes or more.'
    )
  sets, nominal = _DRAWS[u_set_recipe](
    labels,
    num_classes,
    sets_per_client=numbers,
    client_examples=client_examples,
    priors=priors,
    repeats=set_repeats,
    seed=seed,
  )
  known = nominal
  if known_priors == EXACT:
    known = empirical_priors(labels, sets, num_classes)
  names = assignment.numbered_names(num_clients)
  return lay_out(sets, stack_priors(known), names, seed)


def own_sets(source: Source, *, seed: int) -> Assignment:
  """Uses the sets of the data."""
  own = source.sets
  if own is None:
    raise ValueError(
      f"partition='own_sets' needs data with sets, but source {source.name!r} "
      'has none: choose --partition=u_sets.'
    )
  sets = [
    [
      np.flatnonzero((own.client_index == client) & (own.set_index == number))
      for number in range(num_sets)
    ]
    for client, num_sets in enumerate(own.class_priors.any(axis=2).sum(axis=1))
  ]
  return lay_out(sets, own.class_priors, own.client_names, seed)


def _usual_repeats(recipe: str) -> str:
  of_code = recipe in _OF_CODE
  return u_set_draws.ACROSS_SETS if of_code else u_set_draws.NO_REPEATS


def _complete(settings: dict[str, Any]) -> dict[str, Any]:
  """Fills in derived settings and checks that the settings fit each other."""
  checked_noise(settings)
  numbers = numbers_of_sets(
    settings[SETS_PER_CLIENT.name], settings[NUM_CLIENTS.name]
  )
  return {
    **settings,
    SETS_PER_CLIENT.name: ','.join(map(str, numbers)),
    SET_REPEATS.name: settings[SET_REPEATS.name]
    or _usual_repeats(settings[U_SET_RECIPE.name]),
  }


def _derive(values: Values, given: Values) -> dict[str, Any]:
  """Returns FedUL's five clients, all of which train in each round (4.1)."""
  num_clients = given.get(NUM_CLIENTS.name, NUM_CLIENTS.default)
  recipe = given.get(U_SET_RECIPE.name, values.get(U_SET_RECIPE.name))
  return {
    NUM_CLIENTS.name: NUM_CLIENTS.default,
    'clients_per_round': min(max(1, num_clients), _MOST_CLIENTS_IN_A_ROUND),
    SET_REPEATS.name: _usual_repeats(recipe),
  }


def lay_out(
  sets: Sequence[Sequence[np.ndarray]],
  class_priors: np.ndarray,
  client_names: tuple[str, ...],
  seed: int,
) -> Assignment:
  """Collects the clients' sets, each client's examples in random order."""
  rng = generator(Purpose.EXAMPLE_ORDER, seed)
  examples, set_ids = [], []
  for own in sets:
    order = rng.permutation(sum(len(members) for members in own))
    numbers = np.repeat(np.arange(len(own)), [len(members) for members in own])
    examples.append(np.concatenate(own)[order])
    set_ids.append(numbers[order])
  sizes = [len(members) for members in examples]
  return Assignment(
    server_indices=np.empty(0, np.int64),
    examples=np.concatenate(examples).astype(np.int64),
    offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    client_names=client_names,
    set_ids=np.concatenate(set_ids).astype(np.int64),
    class_priors=class_priors,
  )


def empirical_priors(
  labels: np.ndarray, sets: Sequence[Sequence[np.ndarray]], num_classes: int
) -> list[np.ndarray]:
  """Returns the exact class shares in sets, `float64 [M_c, d]` by client."""
  counts = [
    np.stack([np.bincount(labels[m], minlength=num_classes) for m in own])
    for own in sets
  ]
  return [own / own.sum(axis=1, keepdims=True) for own in counts]


def stack_priors(priors: Sequence[np.ndarray]) -> np.ndarray:
  """Stacks matrices `[M_c, d]` to `float64 [C, M, d]`, padded with zeros."""
  most = max(len(own) for own in priors)
  return np.stack(
    [np.pad(own, ((0, most - len(own)), (0, 0))) for own in priors]
  ).astype(np.float64)


def checked_noise(settings: dict[str, Any]) -> dict[str, Any]:
  """Returns settings; refuses noise that would not change the priors."""
  epsilon = settings[PRIOR_NOISE.name]
  is_printed = settings.get(NOISE_FORMULA.name) == PRINTED
  if is_printed and epsilon == _PRINTED_WITHOUT_EFFECT:
    raise ValueError(
      f'prior_noise={epsilon} changes nothing by the printed formula: choose '
      f'another number, or --{NOISE_FORMULA.name}={SYMMETRIC}.'
    )
  return settings


def with_noise(
  class_priors: np.ndarray,
  epsilon: float,
  formula: str,
  rng: np.random.Generator,
) -> np.ndarray:
  """Multiplies class priors `[C, M, d]` by noise; zero rows remain zero.

  The printed formula vanishes at epsilon .5 and grows on both sides. At 0 the
  paper's Table E.9 has no noise, and so it is here. The symmetric one does what
  the text says: its noise grows with epsilon. At the table's epsilon of .2, .4,
  .8 and 1.6, the standard deviation of the factor, relative to its mean, is
  .25, .06, .13 and .30 as printed, and .12, .23, .46 and .92 (.80 after
  clipping at 0) by the symmetric formula.
  """
  if not epsilon:
    return class_priors
  gamma = rng.uniform(size=class_priors.shape)
  if formula == PRINTED:
    factors = 1 + gamma * (2 * epsilon - 1)
  else:
    factors = 1 + epsilon * (2 * gamma - 1)
  noisy = np.clip(class_priors * factors, 0, 1)
  sums = noisy.sum(axis=-1, keepdims=True)
  if np.any((sums == 0) & class_priors.any(axis=-1, keepdims=True)):
    raise ValueError(
      f'prior_noise={epsilon} leaves a set without any class: lower it, or '
      'choose another seed.'
    )
  return np.divide(noisy, sums, out=np.zeros_like(noisy), where=sums > 0)


def tell_priors(
  held: Assignment,
  class_names: tuple[str, ...],
  settings: Mapping[str, Any],
  seed: int,
) -> Assignment:
  """Adds noise to class priors and checks that a classifier can be learnt."""
  exact = held.class_priors
  # The recipes of the code let classes run out, which lowers the rank.
  full_rank = settings.get(U_SET_RECIPE.name) not in _OF_CODE
  try:
    told = with_noise(
      exact,
      settings.get(PRIOR_NOISE.name, PRIOR_NOISE.default),
      settings.get(NOISE_FORMULA.name, NOISE_FORMULA.default),
      generator(Purpose.PRIOR_NOISE, seed),
    )
    # With noise, any matrix has full rank, but noise distinguishes no classes.
    for priors in (exact, told):
      prior_checks.check_class_priors(
        priors, held.client_names, class_names, full_rank=full_rank
      )
  except ValueError as error:
    if U_SET_RECIPE.name not in settings:
      raise
    raise ValueError(
      f'{error} To draw other priors, choose more examples in each set '
      '(client_examples), more sets (sets_per_client) or another seed.'
    ) from error
  return dataclasses.replace(held, class_priors=told)


DRAWN = PartitionSpec(
  name='u_sets',
  description='sets of known class priors, without labels',
  builder=u_sets,
  settings=(
    NUM_CLIENTS,
    SETS_PER_CLIENT,
    CLIENT_EXAMPLES,
    PRIORS,
    U_SET_RECIPE,
    SET_REPEATS,
    KNOWN_PRIORS,
    *NOISE,
  ),
  in_sets=True,
  deals_test=True,
  needs_labels=lambda settings: True,
  complete=_complete,
  derive=_derive,
)
OWN = PartitionSpec(
  name='own_sets',
  description='the sets of the data',
  builder=own_sets,
  settings=NOISE,
  in_sets=True,
  needs_sets=True,
  complete=checked_noise,
)
