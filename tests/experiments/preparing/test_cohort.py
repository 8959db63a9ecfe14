"""As many clients in a round as there are."""

import types

import pytest

from experiments.config import settings
from experiments.config.command_line import UsageError
from experiments.preparing import cohort, description

_GIVEN = {'process': 'grouping', 'dataset': 'npz', 'partition': 'native'}


def _partition(clients, held_out=()):
  return types.SimpleNamespace(
    num_clients=clients, held_out_client_names=held_out
  )


def test_a_default_is_at_most_all_clients():
  made = settings.make(dict(_GIVEN))
  fitted = cohort.fit(made, _partition(6))
  assert (made.clients_per_round, fitted.clients_per_round) == (10, 6)
  # What is kept and compared does not depend on the data.
  assert fitted.used == made.used and fitted.process == 'grouping'
  (note,) = description.lines_of_cohort(fitted)
  assert '6' in note and '--clients_per_round=10' in note


def test_a_flag_file_has_the_default_too():
  resumed = settings.make(settings.make(dict(_GIVEN)).used)
  assert cohort.fit(resumed, _partition(3)).clients_per_round == 3


@pytest.mark.parametrize(
  'process, clients', [('grouping', 10), ('grouping', 11), ('server_only', 1)]
)
def test_enough_clients_or_none_change_nothing(process, clients):
  made = settings.make({**_GIVEN, 'process': process})
  assert cohort.fit(made, _partition(clients)) is made
  assert description.lines_of_cohort(made) == []


@pytest.mark.parametrize('held_out, beside', [((), ''), (('a', 'b'), '2 held')])
def test_a_given_number_is_refused(held_out, beside):
  made = settings.make({**_GIVEN, 'clients_per_round': 7})
  message = f'--clients_per_round=7 is more than the 6 .*{beside}.*=6 or less'
  with pytest.raises(UsageError, match=message):
    cohort.fit(made, _partition(6, held_out))


_OF_ALL = {**_GIVEN, 'process': 'easgd'}


def test_all_take_part_where_a_process_needs_all():
  made = settings.make(dict(_OF_ALL))
  for there in (3, 47):
    fitted = cohort.fit(made, _partition(there))
    assert fitted.clients_per_round == there and fitted.used == made.used
  (note,) = description.lines_of_cohort(fitted)
  assert 'all clients, 47, take part' in note
  assert '--clients_per_round=16 is less, and --process=easgd needs' in note
  whole = settings.make({**_OF_ALL, 'clients_per_round': 47})
  assert cohort.fit(whole, _partition(47)) is whole


def test_some_clients_are_refused_where_a_process_needs_all(refusal):
  made = settings.make({**_OF_ALL, 'clients_per_round': 7})
  few = '--clients_per_round=7 is less than the 8 clients'
  remedy = 'leave --clients_per_round out'
  with refusal(few, '--process=easgd is defined', remedy, error=UsageError):
    cohort.fit(made, _partition(8))


def test_fewer_clients_must_fit_the_groups():
  with pytest.raises(UsageError, match='--num_groups=2 is more than'):
    cohort.fit(settings.make(dict(_GIVEN)), _partition(1))


def test_what_an_aggregator_changes_beside_itself_is_told():
  given = {**_GIVEN, 'process': 'grouping_robust'}
  assert not description.lines_of_aggregator(settings.make(given))
  robust = settings.make({**given, 'aggregator': 'robust'})
  assert not description.lines_of_aggregator(robust)
  (note,) = description.lines_of_aggregator(
    settings.make({**given, 'aggregator': 'secure'})
  )
  assert '--client_momentum=reset in the place of mean' in note
  # Who gives the value knows of it.
  asked = {**given, 'aggregator': 'secure', 'client_momentum': 'reset'}
  (note,) = description.lines_of_aggregator(settings.make(asked))
  assert 'client_momentum' not in note and 'client_metrics=secure' in note
