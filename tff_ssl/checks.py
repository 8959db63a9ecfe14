"""Checks of arguments, with errors that name argument, value and remedy.

Arguments are given by the names that the caller's user knows.
"""

import math
import numbers
from collections.abc import Sequence
from fractions import Fraction

from tff_ssl.common import setting


def integers_at_least(
  least: int, *, optional: bool = False, **arguments
) -> None:
  """Raises `ValueError` unless each argument is an integer >= `least`.

  Where they are `optional`, `None` stands for "not given" and passes.
  """
  _check(arguments, int, at_least=least, optional=optional)


def numbers_at_least(least: float, *, above: bool = False, **arguments) -> None:
  """Raises `ValueError` unless each argument is a finite number >= `least`.

  With `above`, `least` itself is not allowed.
  """
  _check(arguments, float, **{'above' if above else 'at_least': least})


def fractions(**arguments) -> None:
  """Raises `ValueError` unless each argument is a number in [0, 1]."""
  _check(arguments, float, at_least=0, at_most=1)


def choice(choices: Sequence[str], **arguments) -> None:
  """Raises `ValueError` unless each argument is one of the choices."""
  _check(arguments, str, choices=tuple(choices))


def _check(arguments, type_, **limits) -> None:
  for name, value in arguments.items():
    setting.Setting(name, type_, '', **limits).check(value)


def cohort_adapts(clients_per_round: int, noise_multiplier: float) -> None:
  """Raises `ValueError` if a cohort is too small for an adaptive clipping norm.

  TFF puts noise of C / 20 on the number of clients that are clipped. That
  leaves none of the privacy for the sum where z is 2 C / 20.
  """
  if clients_per_round <= 10 * noise_multiplier:
    raise ValueError(
      f'`clients_per_round={clients_per_round}` must exceed 10 * '
      f'`noise_multiplier={noise_multiplier}` with an adaptive clipping norm: '
      'take more clients, less noise, or a fixed norm (`clip_norm`).'
    )


def positive_distribution(size: int | None = None, **arguments) -> None:
  """Raises `ValueError` unless each argument is a distribution without zeros.

  It has `size` numbers, where that is known.
  """
  for name, value in arguments.items():
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not all(isinstance(p, numbers.Real) for p in value):
      raise ValueError(
        f'{name} must be a tuple of one number per class, but is {value!r}.'
      )
    # Not `<=`, which NaN would pass.
    if not all(p > 0 for p in value):
      raise ValueError(
        f'{name} must be above 0 for each class, but is {value!r}: leave '
        'classes that never occur out of the model.'
      )
    if not abs(math.fsum(value) - 1) <= 1e-3:
      raise ValueError(
        f'{name} must sum to 1, but {value!r} sums to {math.fsum(value):g}: '
        'divide it by its sum.'
      )
    if size is not None and len(value) != size:
      raise ValueError(
        f'{name} is {value!r}, of {len(value)} classes, but there are {size}: '
        'give one number per class.'
      )


def exact(share: float) -> Fraction:
  """Returns the fraction that a person means by a decimal number.

  As a float .14 is a little more than 14 / 100, and .14 * 50 more than 7; .145
  is less than it says, and .145 * 200 less than 29. Whoever counts clients by
  such products miscounts by one.
  """
  # .145 and a third are told apart from their neighbours, and products with
  # numbers of clients fit into int64.
  return Fraction(share).limit_denominator(10**6)
