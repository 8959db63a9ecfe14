"""Flags of clusters, and what a resumed run may change of them."""

import pytest

from experiments.config import flags, settings

GROUPING = {'process': 'grouping', 'dataset': 'digits'}


def make(**given):
  return settings.make({**GROUPING, **given})


def test_no_cluster_is_the_default():
  made = make()
  assert (made.cluster, made.cluster_parts, made.part_timeout) == (None,) * 3
  assert made.worker_timeout == 60
  assert make(worker_timeout=5.0).worker_timeout == 5


def test_a_cluster_and_its_defaults():
  made = make(cluster='local')
  assert (made.cluster_parts, made.cluster_cores) == (8, 1)
  assert made.part_timeout == 600
  assert made.shared_disk is True


@pytest.mark.parametrize(
  'given, texts',
  [
    ({'cluster_parts': 4}, ['--cluster_parts=4 has no effect', '--cluster']),
    (
      {'cluster': 'auto', 'cluster_parts': 0},
      ['--cluster_parts=0', 'between 1 and'],
    ),
    (
      {'cluster': 'auto', 'part_timeout': 0.5},
      ['--part_timeout=0.5', 'between 1 and'],
    ),
    ({'worker_timeout': 0.5}, ['--worker_timeout=0.5', 'between 1 and']),
    (
      {'process': 'server_only', 'cluster': 'local'},
      ['--cluster=local', 'server_only'],
    ),
  ],
)
def test_refusals(given, texts):
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  message = str(caught.value)
  assert '\n' not in message and message.endswith('.')
  for text in texts:
    assert text in message


def test_a_run_may_be_resumed_with_or_without_a_cluster():
  """The flag file comes first, and the command line wins."""
  alone = make().used
  far = make(cluster='10.0.0.2:6379', cluster_parts=16, part_timeout=9.0).used
  assert far.keys() - alone.keys() <= settings.FREE
  assert settings.make({**alone, 'cluster': 'auto'}).used['cluster'] == 'auto'
  assert settings.make({**far, 'cluster': ''}).used == alone
