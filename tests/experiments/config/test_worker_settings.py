"""Flags of workers, and what a resumed run may change of them."""

import pytest

from experiments.config import flags, settings

GROUPING = {'process': 'grouping', 'dataset': 'digits'}
NEAR = '127.0.0.1:8000,[::1]:8001'


def make(**given):
  return settings.make({**GROUPING, **given})


def test_one_local_worker_is_the_default():
  made = make()
  assert made.workers == 1
  assert (made.worker_addresses, made.worker_timeout) == (None, 60.0)


def test_local_workers_have_a_deadline_too():
  assert make(worker_timeout=5.0).worker_timeout == 5
  assert make(worker_timeout=5.0, workers=2).worker_timeout == 5


def test_addresses_stand_instead_of_local_workers():
  made = make(worker_addresses=NEAR)
  assert made.workers is None
  assert (made.worker_addresses, made.worker_timeout) == (NEAR, 60.0)


@pytest.mark.parametrize(
  'given, texts',
  [
    ({'workers': 0}, ['--workers=0', 'between 1 and 256']),
    ({'workers': 11}, ['--workers=11', '--clients_per_round=10', 'lower']),
    (
      {'workers': 2, 'worker_addresses': NEAR},
      ['--workers=2 has no effect', '--worker_addresses'],
    ),
    ({'worker_timeout': 0.5}, ['--worker_timeout=0.5', 'between 1 and']),
    (
      {'worker_addresses': 'worker'},
      ['--worker_addresses=worker', 'host:port'],
    ),
    (
      {'worker_addresses': 'localhost:1,localhost:1'},
      ['--worker_addresses=localhost:1,localhost:1', 'twice'],
    ),
    (
      {'worker_addresses': f'{NEAR},10.0.0.2:8000'},
      ['--worker_addresses=', '(10.0.0.2:8000)', '--insecure_workers'],
    ),
    (
      {'worker_addresses': 'far:1', 'insecure_workers': False},
      ['--worker_addresses=far:1', '--insecure_workers'],
    ),
    ({'process': 'server_only', 'workers': 2}, ['--workers=2', 'server_only']),
  ],
)
def test_refusals(given, texts):
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  message = str(caught.value)
  assert '\n' not in message and message.endswith('.')
  for text in texts:
    assert text in message


def test_the_network_needs_a_word_of_consent():
  made = make(worker_addresses='far:1', insecure_workers=True)
  assert made.used['insecure_workers'] is True


def test_a_run_may_be_resumed_with_other_workers():
  """The flag file comes first, and the command line wins."""
  first = make(workers=2).used
  assert {'workers', 'worker_addresses', 'worker_timeout'} <= settings.FREE
  assert 'insecure_workers' in settings.FREE
  alone = make().used
  far = settings.make(
    {**alone, 'worker_addresses': 'far:1', 'insecure_workers': True}
  ).used
  assert 'workers' not in far
  back = settings.make({**far, 'worker_addresses': '', 'workers': 2}).used
  assert back == first
