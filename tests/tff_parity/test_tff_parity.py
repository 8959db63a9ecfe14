"""TFF's own tests with our builders end as the page of them says."""

import pytest

from tests.tff_parity import builders, cases, groups, page

# What a builder refuses at once.
_CHEAP = (
  'fed_avg.function_without_a_model',
  'fed_avg.loop_implementation',
  'fed_avg.neither_function_nor_model',
  'fed_avg.unknown_client_weighting',
  'fed_avg.unweighted_aggregator_with_weights',
  'fed_prox.instance_of_a_model',
  'fed_prox.loop_implementation',
  'fed_prox.negative_strength',
  'fed_prox.no_strength',
  'processes.what_is_no_learning_rate',
  'schedules.learning_rate_argument',
  'schedules.optimizer_of_the_rate',
)


def _marked(name):
  module = name.partition('.')[0]
  marks = [pytest.mark.xdist_group(f'cases of {module}')]
  return pytest.param(
    name, marks=marks if name in _CHEAP else [*marks, pytest.mark.cases]
  )


@pytest.mark.usefixtures('tff_context')
@pytest.mark.parametrize('name', map(_marked, groups.CASES))
def test_a_case_ends_as_the_page_says(name):
  case = groups.CASES[name]
  ended = cases.outcome(case)
  assert ended.lower().startswith(case.end.kind)
  assert page.row(case, ended) in (page.PAGE.read_text('utf-8').splitlines()), (
    f'docs/reference/tff_tests.md is stale: run {page.COMMAND}'
  )


_STOP = ValueError, 'no model'


def stops(build):
  """Stops with both builders."""
  raise ValueError(f'no model for {build.__name__}. And more.')


def ends(build):
  """Ends with both builders."""
  assert build in (builders.ours, builders.stock)
  return 'A remark.'


def stops_with_stock(build):
  """Stops with TFF's builder alone."""
  if build is builders.stock:
    raise TypeError('no model')


def does_not_hold(build):
  """Fails an assertion."""
  raise AssertionError(f'no model of {build.__name__}')


def _case(run, kind, *stop, **instead):
  end = cases.End(kind, *stop, **instead)
  return cases.Case(run.__name__, run.__doc__, 'x_test', run, end)


@pytest.mark.parametrize(
  'run, kind, stop, expected',
  [
    (ends, 'passes', (), 'Passes. A remark.'),
    (
      stops,
      'refused',
      _STOP,
      'Refused; TFF refuses it, too: "no model for ours."',
    ),
    (stops_with_stock, 'taken', (), 'Taken; TFF refuses it.'),
    (stops, 'no counterpart', _STOP, 'No counterpart: "no model for ours."'),
    (
      does_not_hold,
      'does not hold',
      (AssertionError, 'no model'),
      'Does not hold: "no model of ours".',
    ),
  ],
)
def test_says_how_a_case_ended(run, kind, stop, expected):
  assert cases.outcome(_case(run, kind, *stop)) == expected
  remark = _case(run, kind, *stop, instead='Why.')
  assert cases.outcome(remark) == (
    expected if kind == 'passes' else f'{expected} Why.'
  )


@pytest.mark.parametrize(
  'run, kind, stop, error',
  [
    (stops, 'passes', (), ValueError),
    (does_not_hold, 'passes', (), AssertionError),
    (ends, 'refused', _STOP, AssertionError),
    (stops, 'refused', (ValueError, 'no'), None),
    (stops, 'refused', (ValueError, 'other'), AssertionError),
    (stops, 'refused', (TypeError, 'no model'), ValueError),
    (ends, 'taken', (), AssertionError),
    (stops, 'taken', (), ValueError),
    (ends, 'does not hold', (AssertionError,), AssertionError),
  ],
)
def test_a_case_that_ends_otherwise_fails(run, kind, stop, error):
  case = _case(run, kind, *stop)
  if error is None:
    assert cases.outcome(case)
    return
  with pytest.raises(error):
    cases.outcome(case)


def test_a_failed_case_leaves_the_page(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(page, 'PAGE', tmp_path / 'page.md')
  monkeypatch.setattr(
    groups,
    'CASES',
    {'a.ends': _case(ends, 'passes'), 'a.stops': _case(stops, 'passes')},
  )
  assert page.main(['--write']) == 1
  assert capsys.readouterr().out.splitlines() == [
    'a.ends: Passes. A remark.',
    'a.stops: FAILED: ValueError: no model for ours. And more.',
    'passes: 2, refused: 0, taken: 0, no counterpart: 0, does not hold: 0. '
    'Of these failed: 1.',
  ]
  assert not page.PAGE.exists()


def test_every_case_has_a_row():
  text = page.text(dict.fromkeys(groups.CASES, 'a | b'))
  assert text.count('| a \\| b |') == len(groups.CASES)
  for case in groups.CASES.values():
    assert f'| `{case.source}` | {case.about} | a \\| b |' in text
