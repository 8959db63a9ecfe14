"""The class priors that clients are told, with or without noise.

Clients may not know the priors of their sets exactly (FedUL, Section 4.2). The
priors that they are told must suffice to learn a classifier
(`tff_ssl.prior_checks`).
"""

from typing import Any

import numpy as np

from datasets.draws import assignment
from tff_ssl import prior_checks
from tff_ssl.setting import Setting, unless

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


def checked(settings: dict[str, Any]) -> dict[str, Any]:
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


def as_told(
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
