"""Records of settings: what they allow, say and refuse."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from tff_ssl.common.setting import (
  Setting,
  check_arguments,
  needs,
  needs_process,
  only_with,
  unless,
)

INT = Setting('steps', int, 'Steps.', at_least=1, at_most=9)
OPEN = Setting('rate', float, 'Rate.', above=0, below=1)
CHOICE = Setting('kind', str, 'Kind.', choices=('a', 'b'))
TEXT = Setting('path', str, 'Path.')
SWITCH = Setting('fast', bool, 'Whether.')


def _parse(text):
  if not text:
    raise LookupError('nothing')
  return float(text)


PARSED = dataclasses.replace(TEXT, parse=_parse)


def numeric_settings():
  """All combinations of bounds, with and without a bound on each side."""
  lows = ({}, {'at_least': 2}, {'above': 2})
  highs = ({}, {'at_most': 6}, {'below': 6})
  for kind, low, high in itertools.product((int, float), lows, highs):
    yield Setting('size', kind, 'Size.', **low, **high)


ALL = [*numeric_settings(), INT, OPEN, CHOICE, TEXT, SWITCH]


def name_of(setting):
  return setting.expected.replace(' ', '_')


@pytest.mark.parametrize('setting', ALL, ids=name_of)
def test_every_bad_value_is_refused_with_name_value_and_range(setting):
  for value in setting.bad_values():
    assert not setting.allows(value)
    with pytest.raises(ValueError) as caught:
      setting.check(value)
    said = f'{setting.name} must be {setting.expected_for(value)}, but is'
    assert str(caught.value) == f'{said} {value!r}.'


@pytest.mark.parametrize('setting', numeric_settings(), ids=name_of)
def test_bad_values_lie_beyond_every_bound_and_edges_are_allowed(setting):
  bad = [v for v in setting.bad_values() if not isinstance(v, str)]
  least = 1 if setting.type is int else 0.5
  if setting.at_least is not None:
    assert setting.allows(setting.at_least)
    assert setting.at_least - least in bad
  if setting.above is not None:
    assert setting.allows(setting.above + least)
    assert setting.above in bad
  if setting.at_most is not None:
    assert setting.allows(setting.at_most)
    assert setting.at_most + least in bad
  if setting.below is not None:
    assert setting.allows(setting.below - least)
    assert setting.below in bad
  assert setting.allows(4)
  assert (2.5 in bad) == (setting.type is int)
  assert any(math.isnan(value) for value in bad)


@pytest.mark.parametrize(
  'setting, value, allowed',
  [
    (INT, 1, True),
    (INT, np.int64(9), True),
    (INT, 3.0, False),
    # Python's True is an integer.
    (INT, True, False),
    (INT, '3', False),
    (INT, None, False),
    (dataclasses.replace(INT, optional=True), None, True),
    (Setting('n', int, 'N.'), 2**31 - 1, True),
    (Setting('n', int, 'N.'), 2**31, False),
    (Setting('n', int, 'N.'), -(2**31), True),
    (Setting('n', int, 'N.'), -(2**31) - 1, False),
    (OPEN, 0.5, True),
    (OPEN, np.float32(0.5), True),
    (OPEN, float('inf'), False),
    (OPEN, False, False),
    (Setting('x', float, 'X.'), 3, True),
    (Setting('x', float, 'X.'), float('-inf'), False),
    (CHOICE, 'a', True),
    (CHOICE, 'c', False),
    (CHOICE, None, False),
    (TEXT, '', True),
    (TEXT, 3, False),
    (SWITCH, False, True),
    (SWITCH, 0, False),
    (SWITCH, 'true', False),
  ],
)
def test_allows(setting, value, allowed):
  assert bool(setting.allows(value)) == allowed


@pytest.mark.parametrize(
  'setting, expected',
  [
    (INT, 'an integer between 1 and 9'),
    (OPEN, 'a number > 0 and < 1'),
    (Setting('x', float, 'X.', above=0, at_most=1), 'a number > 0 and <= 1'),
    (Setting('x', float, 'X.', at_least=0.5), 'a number >= 0.5'),
    (Setting('x', int, 'X.', below=3), 'an integer < 3'),
    (Setting('x', float, 'X.'), 'a number'),
    (CHOICE, "one of ('a', 'b')"),
    (SWITCH, 'True or False'),
    (TEXT, 'a text'),
  ],
)
def test_expected_ends_a_sentence(setting, expected):
  assert setting.expected == expected


INF, NAN = float('inf'), float('nan')


@pytest.mark.parametrize(
  'setting, value, expected',
  [
    (Setting('n', int, 'N.'), 2**31, 'an integer <= 2147483647'),
    (Setting('n', int, 'N.'), -(2**31) - 1, 'an integer >= -2147483648'),
    (
      Setting('n', int, 'N.', at_least=0),
      10**400,
      'an integer >= 0 and <= 2147483647',
    ),
    (Setting('n', int, 'N.', at_least=0), -(10**12), 'an integer >= 0'),
    (INT, 2**31, 'an integer between 1 and 9'),
    (INT, INF, 'an integer between 1 and 9'),
    (Setting('x', float, 'X.'), INF, 'a finite number'),
    (Setting('x', float, 'X.', above=0), NAN, 'a finite number > 0'),
    (Setting('x', float, 'X.', above=0), 10**400, 'a finite number > 0'),
    (Setting('x', float, 'X.', above=0), -1, 'a number > 0'),
    (OPEN, 'abc', 'a number > 0 and < 1'),
    (OPEN, NAN, 'a number > 0 and < 1'),
  ],
)
def test_a_refusal_names_the_limit_that_a_value_breaks(
  setting, value, expected
):
  assert not setting.allows(value)
  assert setting.expected_for(value) == expected


def test_a_text_that_may_be_any_is_refused_where_its_record_says_so():
  assert TEXT.bad_values() == ()
  assert dataclasses.replace(TEXT, refused=('',)).bad_values() == ('',)
  assert dataclasses.replace(INT, refused=(7,)).bad_values()[-1] == 7


def test_types_and_ways_to_shorten_that_there_are_not_are_refused():
  with pytest.raises(TypeError, match="sizes has the type <class 'list'>"):
    Setting('sizes', list, 'Sizes.')
  with pytest.raises(ValueError, match="steps has rounds='shares'"):
    dataclasses.replace(INT, rounds='shares')


@pytest.mark.parametrize(
  'condition, values, reason',
  [
    (only_with('kind', 'a'), {'kind': 'a'}, None),
    (only_with('kind', 'a'), {'kind': 'b'}, 'only `kind=a` uses it'),
    (only_with('kind', 'a'), {}, 'only `kind=a` uses it'),
    (
      only_with('kind', 'a', 'b'),
      {'kind': 'c'},
      'only `kind=a` or `kind=b` uses it',
    ),
    (only_with('fast', True), {'fast': False}, 'only `fast=true` uses it'),
    (only_with('path'), {'path': ''}, None),
    (only_with('path'), {'path': None}, 'only `path` uses it'),
    (unless('rate', 0, 'hides nothing'), {'rate': 0.5}, None),
    (unless('rate', 0, 'hides nothing'), {}, None),
    (
      unless('rate', 0.0, 'hides nothing'),
      {'rate': 0},
      '`rate=0` hides nothing',
    ),
    (unless('kind', 'a'), {'kind': 'a'}, '`kind=a`'),
    (needs_process('augments'), {'augments': True, 'process': 'p'}, None),
    # Where a partition is built alone, there is no process.
    (needs_process('augments'), {}, None),
    (
      needs_process('augments', ', it takes pixels'),
      {'augments': False, 'process': 'p'},
      'the process p does not use it, it takes pixels',
    ),
    (
      needs('a process of few', 'not {labels_at}', 'labels_at', 'dealt'),
      {'labels_at': 'server'},
      'not server',
    ),
  ],
)
def test_conditions_give_the_reason(condition, values, reason):
  setting = dataclasses.replace(INT, used_when=(condition,))
  assert setting.why_unused(values) == reason


def test_the_first_reason_counts():
  setting = dataclasses.replace(
    INT, used_when=(only_with('kind', 'a'), unless('rate', 0, 'is nothing'))
  )
  assert setting.why_unused({'kind': 'a', 'rate': 1}) is None
  assert setting.why_unused({'kind': 'a', 'rate': 0}) == '`rate=0` is nothing'
  assert setting.why_unused({'kind': 'b', 'rate': 0}) == (
    'only `kind=a` uses it'
  )
  assert INT.why_unused({}) is None


def test_conditions_are_texts_for_documentation():
  assert str(only_with('kind', 'a', 'b')) == '`kind=a` or `kind=b`'
  assert str(only_with('path')) == '`path`'
  assert str(unless('rate', 0.5)) == 'not `rate=0.5`'
  assert str(needs_process('has_strong_view')) == (
    'a process that has strong view'
  )
  dealt = needs('a process of few', 'not {labels_at}', 'labels_at', 'dealt')
  assert str(dealt) == 'a process of few'


@pytest.mark.parametrize(
  'setting, value, text',
  [
    (INT, 10, r'steps=10 must be an integer between 1 and 9\.'),
    (CHOICE, 'c', r'kind=c is unknown; there are a, b\.'),
    (CHOICE, 'aa', r"kind=aa is unknown; .* Did you mean 'a'\?"),
    # The function of a record refuses by a `ValueError`; all else is a mistake.
    (PARSED, 'x', r"path=x: could not convert string to float: 'x'"),
    (PARSED, '', r'path=: parse stops at .*\.py:\d+ with LookupError: nothing'),
  ],
)
def test_a_flag_is_refused_with_its_value(setting, value, text):
  with pytest.raises(ValueError, match=f'^{text}'):
    setting.check_flag(value)
  PARSED.check_flag('0.5')


def test_check_arguments_checks_those_that_are_settings():
  def build(model, steps=3, **more):
    check_arguments([INT, OPEN], locals())
    return model, more

  assert build('any model', 9, rate='no number') == (
    'any model',
    {'rate': 'no number'},
  )
  with pytest.raises(ValueError, match='steps must be .*, but is 0'):
    build('any model', 0)


def test_check_arguments_leaves_what_the_builder_takes_in_another_form():
  setting = Setting('sizes', str, 'Such as 3,4.', parse=lambda text: text.split)
  check_arguments([setting], {'sizes': (3, 4)})
  with pytest.raises(ValueError, match='sizes must be a text'):
    check_arguments(
      [dataclasses.replace(setting, parse=None)], {'sizes': (3, 4)}
    )
