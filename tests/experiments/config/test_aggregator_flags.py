"""--aggregator brings its settings, and refuses what means nothing."""

import pytest

from experiments.config import flags, settings


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


def make(process='grouping', **given):
  return settings.make({'process': process, 'dataset': 'digits', **given})


def refusal(*arguments, **given):
  with pytest.raises(flags.UsageError) as caught:
    make(*arguments, **given)
  return str(caught.value)


def test_by_default_the_mean_is_the_papers():
  made = make()
  assert (made.aggregator, made.client_metrics) == ('mean', 'sum')
  assert made.clip_norm is made.noise_multiplier is made.min_group_size is None


def test_secure_sums_hide_the_metrics_too():
  made = make(aggregator='secure', clients_per_round=10)
  assert made.client_metrics == 'secure'
  assert made.min_group_size == 5
  shown = make(aggregator='secure', clients_per_round=10, client_metrics='sum')
  assert shown.client_metrics == 'sum'


def test_with_noise_all_clients_weigh_the_same():
  made = make('fedavg', aggregator='dp', noise_multiplier=0.1)
  assert made.client_weighting == 'uniform'
  assert made.client_metrics == 'sum'


@pytest.mark.parametrize('aggregator', ['secure', 'dp', 'median'])
def test_momenta_do_not_go_round_what_protects(aggregator):
  given = {'noise_multiplier': 0.1} if aggregator == 'dp' else {}
  made = make('grouping_robust', aggregator=aggregator, num_groups=2, **given)
  assert made.client_momentum == 'reset'
  assert make('grouping_robust').client_momentum == 'mean'


@pytest.mark.parametrize(
  ('given', 'message'),
  [
    ({'aggregator': 'krum'}, '--aggregator=krum'),
    ({'clip_norm': 1.0}, '--clip_norm=1.0 has no effect: only'),
    (
      {'aggregator': 'dp'},
      '--aggregator=dp needs --noise_multiplier or --targ',
    ),
    (
      {'aggregator': 'dp', 'noise_multiplier': 0.0},
      '--noise_multiplier=0 adds no noise',
    ),
    (
      {'aggregator': 'dp', 'noise_multiplier': 0.1, 'target_epsilon': 8.0},
      '--target_epsilon=8.0 and --noise_multiplier=0.1 exclude each other',
    ),
    (
      {'aggregator': 'secure_dp', 'noise_multiplier': 1.0},
      '--aggregator=secure_dp needs --clip_norm',
    ),
    (
      {'aggregator': 'dp', 'noise_multiplier': 1.0, 'clients_per_round': 10},
      '--clients_per_round=10 must exceed 10 * --noise_multiplier=1.0',
    ),
    (
      {
        'process': 'fedavg',
        'aggregator': 'dp',
        'noise_multiplier': 0.1,
        'client_weighting': 'examples',
      },
      '--client_weighting=examples does not fit --aggregator=dp',
    ),
    (
      {'process': 'server_only', 'aggregator': 'robust'},
      '--aggregator=robust has no effect',
    ),
  ],
)
def test_what_means_nothing_is_refused(given, message):
  assert message in refusal(**given)


# RELIABILITY row P1: the sum over a group hides a client among its members.
@pytest.mark.parametrize('clients', range(2, 21))
@pytest.mark.parametrize('fewest', [2, 5])
def test_p1_groups_too_small_to_hide_a_client(clients, fewest):
  for groups in range(2, clients + 1):
    given = {
      'aggregator': 'secure',
      'num_clients': 20,
      'clients_per_round': clients,
      'num_groups': groups,
      'min_group_size': fewest,
    }
    if clients // groups < fewest:
      assert f'--min_group_size={fewest}' in refusal(**given)
    else:
      assert make(**given).num_groups == groups
