"""An assignment in which each client's examples lie in sets (U-sets).

Nobody has labels. A client only knows the shares of the classes in each of its
sets (FedUL, Section 3.1). An example may lie in several sets of one client, but
not twice in one set, and not at two clients.

Clients may not know the priors of their sets exactly (FedUL, Section 4.2), but
what they are told, with or without noise, must suffice to learn a classifier
(`tff_ssl.common.prior_checks`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from datasets.draws import assignment, client_labels
from tff_ssl.common import prior_checks
from tff_ssl.common.setting import Setting, unless

PRINTED, SYMMETRIC = 'printed', 'symmetric'
# With this epsilon, all factors of the printed formula are 1.
_PRINTED_WITHOUT_EFFECT = 0.5

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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SetAssignment(assignment.Assignment):
  """An assignment with the set of each example and the priors of the sets.

  Attributes:
    set_ids: `int64 [N]`, the set of each of `examples`, numbered from 0 at each
      client.
    class_priors: `float64 [C, M, d]`, Pi_c as the clients know it. A client
      with fewer than M sets has rows of zeros at the end.
  """

  set_ids: np.ndarray
  class_priors: np.ndarray

  @property
  def max_sets(self) -> int:
    """M, the largest number of sets of a client."""
    return self.class_priors.shape[1]

  @property
  def num_sets(self) -> np.ndarray:
    """`int64 [C]`, M_c, the number of sets of each client."""
    return np.count_nonzero(self.set_sizes, axis=1)

  @property
  def set_sizes(self) -> np.ndarray:
    """`int64 [C, M]`, n_{c,m}, the number of examples in each set."""
    flat = self.owners * self.max_sets + self.set_ids
    sizes = np.bincount(flat, minlength=self.num_clients * self.max_sets)
    return sizes.reshape(self.num_clients, self.max_sets).astype(np.int64)

  @property
  def set_shares(self) -> np.ndarray:
    """`float64 [C, M]`, rho_c, each set's share of its client's examples."""
    sizes = self.set_sizes
    return sizes / sizes.sum(axis=1, keepdims=True)


def lay_out(
  sets: Sequence[Sequence[np.ndarray]],
  class_priors: np.ndarray,
  client_names: tuple[str, ...],
  seed: int,
) -> SetAssignment:
  """Collects the clients' sets, each client's examples in random order.

  Each client has sets of examples, `int64 [n]`, and the priors `[M, d]` as it
  knows them. There is no server set.
  """
  rng = assignment.generator(seed, assignment.Purpose.EXAMPLE_ORDER)
  examples, set_ids = [], []
  for own in sets:
    order = rng.permutation(sum(len(members) for members in own))
    numbers = np.repeat(np.arange(len(own)), [len(members) for members in own])
    examples.append(np.concatenate(own)[order])
    set_ids.append(numbers[order])
  sizes = [len(members) for members in examples]
  return SetAssignment(
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
  """Adds noise to class priors `[C, M, d]`, in which zero rows remain zero.

  Each entry is multiplied by a factor and clipped to [0, 1]. Then the rows are
  normalised. There are two formulas for the factor, with gamma
  uniform in [0, 1].

  `'printed'`, 1 + gamma (2 epsilon - 1), is the formula of the paper. Its noise
  vanishes at epsilon .5 and grows on both sides. At 0 it would not vanish, but
  the paper's Table E.9 has no noise there. So here 0 means no noise.

  `'symmetric'`, 1 + epsilon (2 gamma - 1), exchanges epsilon and gamma. It does
  what the paper's text says: its noise grows with epsilon.

  At the table's epsilon of .2, .4, .8 and 1.6, the standard deviation of the
  factor, relative to its mean, is .25, .06, .13 and .30 as printed, and .12,
  .23, .46 and .92 (.80 after clipping at 0) by the symmetric formula.
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


def told_priors(
  class_priors: np.ndarray,
  client_names: tuple[str, ...],
  class_names: tuple[str, ...],
  *,
  prior_noise: float,
  noise_formula: str,
  seed: int,
  full_rank: bool = True,
) -> np.ndarray:
  """Adds noise to class priors and checks that a classifier can be learnt.

  `full_rank` is that of `prior_checks.check_class_priors`.
  """
  told = with_noise(
    class_priors,
    prior_noise,
    noise_formula,
    assignment.generator(seed, assignment.Purpose.PRIOR_NOISE),
  )
  # With noise, any matrix has full rank, but noise distinguishes no classes.
  for priors in (class_priors, told):
    prior_checks.check_class_priors(
      priors, client_names, class_names, full_rank=full_rank
    )
  return told


def mask_labels(
  held: SetAssignment, num_train: int, mask_ratio: float, seed: int
) -> SetAssignment:
  """Hides labels as `client_labels.mask_labels`; an example counts once."""
  owner = np.full(num_train, assignment.NOBODY, np.int64)
  owner[held.examples] = held.owners
  distinct = assignment.from_owners(
    owner, held.client_names, held.server_indices, seed
  )
  masked = client_labels.mask_labels(distinct, mask_ratio, seed)
  return dataclasses.replace(held, labelled_indices=masked.labelled_indices)
