"""Settings: what a user chooses, each declared once, beside what uses it.

A `Setting` says what a setting is called, which values it can have and what it
does. Everything else is derived from it: the check of a builder's argument, the
runner's flag with its help, refusals and default, the values that the contract
suite tries, and the reference in the documentation.

The default of a builder's argument stands in the builder's signature. This
module, and each that only declares settings, imports no TensorFlow.
"""

import dataclasses
import difflib
import enum
import functools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tff_ssl.common import user_modules

# TensorFlow counts in int32.
_SMALLEST_INTEGER = -(2**31)
_LARGEST_INTEGER = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Condition:
  """What must hold for a setting to have an effect.

  Attributes:
    words: What that is, for the reference in the documentation.
    why_not: Says why the setting has no effect beside the values of all
      settings, by name; `None` where it has one.
  """

  words: str
  why_not: Callable[[Mapping[str, Any]], str | None]

  def __call__(self, values: Mapping[str, Any]) -> str | None:
    return self.why_not(values)

  def __str__(self) -> str:
    return self.words


class Scope(enum.Enum):
  """What a setting can change.

  Attributes:
    MODEL: The trained model. It stays the same for the whole run.
    REPETITION: Which repetition of an experiment a run is, as a seed does.
    RUN: How long a run trains, and what is measured and saved meanwhile. It may
      change when a run is resumed.
    MACHINE: Where and how this machine computes. It may change likewise.
    NAME: What a run is called and where its results go. It may change likewise.
  """

  MODEL = 'model'
  REPETITION = 'repetition'
  RUN = 'run'
  MACHINE = 'machine'
  NAME = 'name'


@dataclasses.dataclass(frozen=True)
class Setting:
  """A value that a user chooses.

  Attributes:
    name: The name of the flag, and of the builder's argument.
    type: `int`, `float`, `bool` or `str`.
    help: What it does, with its unit. One sentence. Other settings stand in it
      as `name` or `name=value`, with the backticks.
    default: The value without a flag, where no builder has the setting as an
      argument. `None` stands for no value.
    if_none: What no value means, where that is one of the values. Runs do not
      record it.
    at_least: The smallest value.
    above: A bound below all values.
    at_most: The largest value.
    below: A bound above all values.
    choices: All values, where they are names.
    parse: From the flag's value to the builder's argument, where they differ.
      It raises `ValueError` for a value that it cannot read.
    argument: Where a builder takes it, if not as an argument of its name: the
      argument and its field, such as 'client_training.batch_size'.
    optional: Whether a builder takes `None` for "not given".
    like: The setting whose value it has where it is not given.
    instead_of: The setting whose place it takes: only one of them is given.
    used_when: What must hold for it to have an effect, beside the other
      settings (`only_with`, `unless`).
    scope: What it can change.
    needed_by: Who needs it, or a value of it, where no recipe has that: a
      paper, or a user of whom a page tells.
    rounds: Where it counts rounds, what becomes of it when a run is shortened.
      'share': its share, rounded up, as for a warm-up or an interval. 'phase':
      its share, rounded, but a round at least unless it was 0; at least one
      round of the run remains after it. 'head': its share, rounded, but at most
      all rounds except the last.
    phase: Where it counts the first rounds of a run, what these are for; the
      progress bar shows it.
    group: The heading that it stands under in lists of settings; by default
      that of where it is declared.
    aliases: Other names of the flag.
    refused: Values that the contract suite also expects a builder to refuse.
  """

  name: str
  type: type
  help: str
  _: dataclasses.KW_ONLY
  default: Any = None
  if_none: Any = None
  at_least: float | None = None
  above: float | None = None
  at_most: float | None = None
  below: float | None = None
  choices: tuple[str, ...] = ()
  parse: Callable[[Any], Any] | None = None
  argument: str | None = None
  optional: bool = False
  like: str | None = None
  instead_of: str | None = None
  used_when: tuple[Condition, ...] = ()
  scope: Scope = Scope.MODEL
  needed_by: str | None = None
  rounds: Literal['share', 'phase', 'head'] | None = None
  phase: str | None = None
  group: str | None = None
  aliases: tuple[str, ...] = ()
  refused: tuple[Any, ...] = ()

  def __post_init__(self):
    if self.type not in (int, float, bool, str):
      raise TypeError(
        f'The setting {self.name} has the type {self.type!r}: choose int, '
        'float, bool or str.'
      )
    if self.rounds not in (None, 'share', 'phase', 'head'):
      raise ValueError(
        f'The setting {self.name} has rounds={self.rounds!r}: choose share, '
        'phase or head.'
      )

  @property
  def argument_name(self) -> str:
    """What a builder calls it, which its errors name."""
    return (self.argument or self.name).rpartition('.')[2]

  @property
  def expected(self) -> str:
    """What a value must be, as the end of a sentence."""
    if self.choices:
      return f'one of {self.choices}'
    if self.type is bool:
      return 'True or False'
    if self.type is str:
      return 'a text'
    kind = 'an integer' if self.type is int else 'a number'
    low = self.at_least if self.above is None else self.above
    high = self.at_most if self.below is None else self.below
    if None not in (low, high) and None not in (self.at_least, self.at_most):
      return f'{kind} between {_text(low)} and {_text(high)}'
    bounds = [
      f'{sign} {_text(bound)}'
      for sign, bound in (
        ('>=', self.at_least),
        ('>', self.above),
        ('<=', self.at_most),
        ('<', self.below),
      )
      if bound is not None
    ]
    return f'{kind} {" and ".join(bounds)}' if bounds else kind

  def expected_for(self, value: Any) -> str:
    """Returns what a bad value should have been, as the end of a sentence.

    Where the setting has no bound on the side on which the value is too far
    out, the limit of all numbers stands beside what is `expected`.
    """
    has_low = self.at_least is not None or self.above is not None
    has_high = self.at_most is not None or self.below is not None
    words = ' and' if has_low or has_high else ''
    if self.type is float and not (has_low and has_high):
      if _is_number(value) and not _is_finite(value):
        return self.expected.replace('a number', 'a finite number', 1)
    elif self.type is int and isinstance(value, numbers.Integral):
      if int(value) > _LARGEST_INTEGER and not has_high:
        return f'{self.expected}{words} <= {_LARGEST_INTEGER}'
      if int(value) < _SMALLEST_INTEGER and not has_low:
        return f'{self.expected}{words} >= {_SMALLEST_INTEGER}'
    return self.expected

  def allows(self, value: Any) -> bool:
    """Returns whether `value` is of the type, and one of the values."""
    if value is None:
      return self.optional
    if self.choices:
      return value in self.choices
    if self.type is bool:
      return isinstance(value, bool)
    if self.type is str:
      return isinstance(value, str)
    if not _is_number(value):
      return False
    if self.type is int:
      if not isinstance(value, numbers.Integral):
        return False
      if not _SMALLEST_INTEGER <= int(value) <= _LARGEST_INTEGER:
        return False
    elif not _is_finite(value):
      return False
    return (
      (self.at_least is None or value >= self.at_least)
      and (self.above is None or value > self.above)
      and (self.at_most is None or value <= self.at_most)
      and (self.below is None or value < self.below)
    )

  def check(self, value: Any) -> None:
    """Raises `ValueError` unless a builder's argument is one of the values."""
    if not self.allows(value):
      raise ValueError(
        f'{self.argument_name} must be {self.expected_for(value)}, but is '
        f'{value!r}.'
      )

  def check_flag(self, value: Any) -> None:
    """Raises `ValueError` unless a flag's value is one, and can be parsed."""
    given = f'{self.name}={value}'
    if self.choices:
      check_known(self.name, value, self.choices)
    elif not self.allows(value):
      raise ValueError(f'{given} must be {self.expected_for(value)}.')
    elif self.parse is not None:
      with user_modules.mistakes(given, 'parse', may_refuse=True):
        try:
          self.parse(value)
        except ValueError as error:
          raise ValueError(f'{given}: {error}') from error

  def bad_values(self) -> tuple[Any, ...]:
    """Returns values that a builder must refuse, if there are any."""
    if self.type is bool:
      return ('no switch', *self.refused)
    if self.choices or self.type is str:
      return ('no such value', *self.refused) if self.choices else self.refused
    bad: list[Any] = ['no number', math.nan]
    if self.type is int:
      bad += [2.5, _LARGEST_INTEGER + 1]
    step = 1 if self.type is int else 0.5
    if self.at_least is not None:
      bad.append(self.at_least - step)
    if self.above is not None:
      bad.append(self.above)
    if self.at_most is not None:
      bad.append(self.at_most + step)
    if self.below is not None:
      bad.append(self.below)
    return (*bad, *self.refused)

  def why_unused(self, values: Mapping[str, Any]) -> str | None:
    """Returns why the setting has no effect beside others, if it has none."""
    reasons = (condition(values) for condition in self.used_when)
    return next(filter(None, reasons), None)


def only_with(name: str, *values: Any) -> Condition:
  """Returns the condition that a setting has one of some values, or any."""
  words = ' or '.join(f'`{name}={_text(v)}`' for v in values) or f'`{name}`'

  def why_not(given):
    value = given.get(name)
    if value in values or (not values and value is not None):
      return None
    return f'only {words} uses it'

  return Condition(words, why_not)


def unless(name: str, value: Any, why: str = '') -> Condition:
  """Returns the condition that a setting does not have a value.

  `why` is the end of a sentence that begins with that setting, such as 'hides
  no label'.
  """
  words = f'`{name}={_text(value)}`'

  def why_not(given):
    if name in given and given[name] == value:
      return f'{words} {why}'.rstrip()
    return None

  return Condition(f'not {words}', why_not)


def needs_process(fact: str, more: str = '') -> Condition:
  """Returns the condition that something holds of the run's process.

  Args:
    fact: One of `ProcessSpec.facts`, such as 'augments'.
    more: What is added to the reason.
  """
  return needs(
    f'a process that {fact.replace("_", " ")}',
    f'the process {{process}} does not use it{more}',
    fact,
  )


def needs(words: str, why_not: str, fact: str, value: Any = True) -> Condition:
  """Returns the condition that something holds of a run or a part of it.

  Args:
    words: What must hold, for the reference in the documentation.
    why_not: Why a setting has no effect otherwise; `{name}` is a value.
    fact: What stands among the values under this name, such as 'form'.
    value: What it must be.
  """

  def reason(given):
    # Without a process, as where a partition is built alone, there is nothing
    # to ask.
    if given.get(fact, value) == value:
      return None
    return why_not.format_map(given)

  return Condition(words, reason)


def condition(words: str) -> Callable[[Callable[..., Any]], Condition]:
  """Makes a condition of a function, as a decorator."""
  return functools.partial(Condition, words)


def without(settings: Iterable[Setting], *names: str) -> tuple[Setting, ...]:
  """Returns the settings but for some, which a process does not offer."""
  return tuple(setting for setting in settings if setting.name not in names)


def check_known(name: str, value: object, known: Iterable[str]) -> None:
  """Raises `ValueError`, with the nearest match, unless a value is known."""
  known = list(known)
  if value not in known:
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    raise ValueError(
      f'{name}={value} is unknown; there are {", ".join(known)}.{hint}'
    )


def check_arguments(
  settings: Iterable[Setting], arguments: Mapping[str, Any]
) -> None:
  """Checks those arguments of a function that are settings (`Setting.check`).

  The arguments are as `locals()` gives them in the first line of the function.
  Those that are no settings are passed over, and so are settings that are no
  arguments, or that a builder takes in another form than the flag
  (`Setting.parse`).
  """
  for setting in settings:
    if setting.name in arguments and setting.parse is None:
      setting.check(arguments[setting.name])


def _is_number(value: Any) -> bool:
  # Python's True is an integer.
  return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
  try:
    return math.isfinite(value)
  except OverflowError:  # An integer beyond all floats.
    return False


def _text(value: Any) -> str:
  """Returns a value as it is written in a flag."""
  if isinstance(value, bool):
    return str(value).lower()
  return f'{value:g}' if isinstance(value, float) else str(value)
