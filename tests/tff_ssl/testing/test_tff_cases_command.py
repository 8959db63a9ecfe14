"""`python -m tff_ssl.testing.tff_cases`, and when a case counts as failed."""

import pytest

from tff_ssl.testing.tff_cases import __main__ as command
from tff_ssl.testing.tff_cases import builders, cases, page

_STOP = cases.Stop(ValueError, 'no model')


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


@pytest.mark.parametrize(
  'run, kind, stop, expected',
  [
    (ends, cases.PASSES, None, 'Passes. A remark.'),
    (
      stops,
      cases.REFUSED,
      _STOP,
      'Refused; TFF refuses it, too: "no model for ours."',
    ),
    (stops_with_stock, cases.TAKEN, None, 'Taken; TFF refuses it.'),
    (
      stops,
      cases.NO_COUNTERPART,
      _STOP,
      'No counterpart: "no model for ours."',
    ),
    (
      does_not_hold,
      cases.DIFFERS,
      cases.Stop(AssertionError, 'no model'),
      'Does not hold: "no model of ours".',
    ),
  ],
)
def test_says_how_a_case_ended(run, kind, stop, expected):
  assert cases.outcome(cases.Case(run, 'x_test', kind, stop)) == expected
  remark = cases.Case(run, 'x_test', kind, stop, 'Why.')
  assert cases.outcome(remark) == (
    expected if kind == cases.PASSES else f'{expected} Why.'
  )


@pytest.mark.parametrize(
  'run, kind, stop, error',
  [
    (stops, cases.PASSES, None, ValueError),
    (does_not_hold, cases.PASSES, None, AssertionError),
    (ends, cases.REFUSED, _STOP, AssertionError),
    (stops, cases.REFUSED, cases.Stop(ValueError, 'no'), None),
    (stops, cases.REFUSED, cases.Stop(ValueError, 'other'), AssertionError),
    (stops, cases.REFUSED, cases.Stop(TypeError, 'no model'), ValueError),
    (ends, cases.TAKEN, None, AssertionError),
    (stops, cases.TAKEN, None, ValueError),
    (ends, cases.DIFFERS, cases.Stop(AssertionError, ''), AssertionError),
  ],
)
def test_a_case_that_ends_otherwise_fails(run, kind, stop, error):
  case = cases.Case(run, 'x_test', kind, stop)
  if error is None:
    assert cases.outcome(case)
    return
  with pytest.raises(error):
    cases.outcome(case)


def test_a_failed_case_leaves_the_page(tmp_path, monkeypatch, capsys):
  file = tmp_path / 'page.md'
  monkeypatch.setattr(
    page,
    'CASES',
    {'a.ends': cases.Case(ends, 'x'), 'a.stops': cases.Case(stops, 'x')},
  )
  assert command.main(['tff_cases', f'--write={file}']) == 1
  assert capsys.readouterr().out.splitlines() == [
    'a.ends: Passes. A remark.',
    'a.stops: FAILED: ValueError: no model for ours. And more.',
    'passes: 2, refused: 0, taken: 0, no counterpart: 0, does not hold: 0. '
    'Of these failed: 1.',
  ]
  assert not file.exists()


@pytest.mark.parametrize(
  'argument, message',
  [('--page=x', "Unknown command line flag 'page'"), ('page.md', 'no place')],
)
def test_refuses_what_it_does_not_know(argument, message, capsys):
  assert command.main(['tff_cases', argument]) == 2
  assert message in capsys.readouterr().err


def test_help_runs_nothing(capsys):
  assert command.main(['tff_cases', '--help']) == 0
  assert '--write=FILE' in capsys.readouterr().out


def test_every_case_has_a_row():
  outcomes = dict.fromkeys(page.CASES, 'a | b')
  text = page.text(outcomes)
  assert text.count('| a \\| b |') == len(page.CASES)
  for case in page.CASES.values():
    assert f'| `{case.source}` | {case.about} | a \\| b |' in text
