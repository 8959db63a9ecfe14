"""Checks of arguments, with errors that name argument, value and remedy."""

import math
import numbers


def integers_at_least(least: int, **arguments) -> None:
  """Raises `ValueError` unless each argument is an integer >= `least`.

  Args:
    least: The smallest that is allowed.
    **arguments: The values, by the name that the caller's user knows; `None`
      stands for "not given" and passes.
  """
  for name, value in arguments.items():
    if value is None:
      continue
    is_integer = isinstance(value, numbers.Integral)
    if not is_integer or isinstance(value, bool) or value < least:
      raise ValueError(
        f'{name} must be an integer >= {least}, but is {value!r}.'
      )


def numbers_at_least(least: float, *, above: bool = False, **arguments) -> None:
  """Raises `ValueError` unless each argument is a finite number >= `least`.

  Args:
    least: The smallest that is allowed.
    above: Whether `least` itself is not allowed.
    **arguments: The values, by the name that the caller's user knows.
  """
  for name, value in arguments.items():
    is_number = isinstance(value, numbers.Real) and math.isfinite(value)
    if not is_number or value < least or (above and value == least):
      raise ValueError(
        f'{name} must be a number {">" if above else ">="} {least}, but is '
        f'{value!r}.'
      )


def one_of(choices: tuple[str, ...], **arguments) -> None:
  """Raises `ValueError` unless each argument is one of `choices`.

  Args:
    choices: What is allowed.
    **arguments: The values, by the name that the caller's user knows.
  """
  for name, value in arguments.items():
    if value not in choices:
      raise ValueError(f'{name} must be one of {choices}, but is {value!r}.')
