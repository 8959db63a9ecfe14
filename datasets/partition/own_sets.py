"""The sets into which the data are already divided, with their class priors."""

import numpy as np

from datasets.draws import set_assignment, told_priors
from datasets.draws.set_assignment import SetAssignment
from datasets.partition.partition_spec import PartitionSpec
from datasets.sources.source import Source


def own_sets(
  source: Source,
  *,
  prior_noise: float = told_priors.PRIOR_NOISE.default,
  noise_formula: str = told_priors.NOISE_FORMULA.default,
  seed: int,
) -> SetAssignment:
  """Uses the sets of the data; priors may get noise (FedUL, Section 4.2)."""
  own = source.sets
  if own is None:
    raise ValueError(
      f"partition='own_sets' needs data with sets, but source {source.name!r} "
      'has none: choose --partition=u_sets.'
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
  told = told_priors.as_told(
    set_assignment.stack_priors(priors),
    own.client_names,
    own.class_names,
    prior_noise=prior_noise,
    noise_formula=noise_formula,
    seed=seed,
  )
  return set_assignment.lay_out(sets, told, own.client_names, seed)


SPEC = PartitionSpec(
  name='own_sets',
  summary='the sets of the data',
  build=own_sets,
  settings=(told_priors.PRIOR_NOISE, told_priors.NOISE_FORMULA),
  in_sets=True,
  needs_sets=True,
  complete=told_priors.checked,
)
