"""Flags of FedUL."""

from experiments.flag import Flag

FLAGS = (
  Flag(
    'base_process',
    'string',
    'Whose rounds FedUL trains in: fedavg, fedprox, fedadam, fednova or '
    'scaffold; the last two take --client_optimizer=sgd, their default.',
  ),
  Flag(
    'surrogate_loss',
    'string',
    'Loss of FedUL: log_transition, or published_code (a second softmax).',
  ),
  Flag(
    'test_prior',
    'string',
    'FedUL: class prior of the test data, such as 0.5,0.3,0.2, in the order of '
    'the classes; by default uniform.',
  ),
  Flag(
    'l1_weight',
    'float',
    "Weight of an L1 penalty on all weights; of FedMatch's, on psi.",
  ),
)


def parse_prior(text: str) -> tuple[float, ...]:
  """Returns the numbers of `--test_prior`.

  Args:
    text: Numbers between commas.

  Raises:
    ValueError: If it is something else.
  """
  try:
    return tuple(float(part) for part in text.split(','))
  except ValueError as error:
    raise ValueError(
      f'test_prior={text} must be numbers between commas, such as 0.5,0.3,0.2.'
    ) from error
