"""What is recommended, by what is known before data are read."""

import pytest

import tff_ssl
from experiments.config import help_page, settings
from experiments.config.command_line import UsageError
from experiments.config.recommended import Found
from tff_ssl.algorithms import PROCESSES
from tff_ssl.algorithms.recommendation import RECOMMENDATIONS

_OWN = {'process': 'recommended', 'dataset': 'npz', 'data_dir': '/absent'}


@pytest.mark.parametrize(
  'given, process, told_by',
  [
    ({'dataset': 'digits'}, 'grouping_robust', 'With no flag'),
    (
      {'dataset': 'digits', 'labelled_fraction': 0.1},
      'fedavg_robust',
      '--labelled_fraction=0.1',
    ),
    ({'dataset': 'digits', 'partition': 'u_sets'}, 'fedul', 'u_sets'),
    (
      {'dataset': 'npz_sets', 'data_dir': '/absent'},
      'fedul',
      '--dataset=npz_sets',
    ),
    # Of one's own data, whoever simulates says so.
    (
      {**_OWN, 'server_examples': 20},
      'grouping_robust',
      '--server_examples=20',
    ),
    ({**_OWN, 'mask_ratio': 0.5}, 'fedavg_robust', '--mask_ratio=0.5'),
  ],
)
def test_it_follows_where_the_labels_are(given, process, told_by):
  given = {**given, 'process': 'recommended'}
  made = settings.make(given)
  assert not made.labels_decide
  assert made.process == made.used['process'] == process
  assert made.origins['process'] == 'recommended'
  assert f'--process={process}' in made.recommendation
  assert told_by in made.recommendation
  # The run is that of the process itself.
  named = settings.make({**given, 'process': process})
  assert named.used == made.used
  assert named.recommendation is None


def test_of_own_data_the_labels_decide():
  made = settings.make(_OWN)
  assert made.labels_decide
  assert made.process == 'fedavg_robust'
  shown = ' '.join(help_page.of_run(made).split())
  assert made.recommendation in shown
  # A flag of one process alone, before anything is read.
  assert settings.make({**_OWN, 'num_groups': 3}).process == 'grouping_robust'
  made = settings.make(_OWN, found=Found('all_clients', 'All'))
  assert (made.process, made.labels_decide) == ('fedavg', False)
  assert 'fedavg. All: all labels are' in made.recommendation


@pytest.mark.parametrize(
  'given, found, message',
  [
    ({'learning_rate': -1.0}, None, '--learning_rate=-1.0 must be'),
    ({'sets_per_client': 3}, None, '--sets_per_client=3 has no effect'),
    (
      {'with_lower_bound': True},
      Found('all_clients', 'Four clients'),
      'no such bound of the process fedavg; .*Four clients',
    ),
  ],
)
def test_flags_that_no_process_takes_are_refused(given, found, message):
  with pytest.raises(UsageError, match=message):
    settings.make({**_OWN, **given}, found=found)


def test_every_recommendation_is_a_process():
  for labels_at in RECOMMENDATIONS:
    assert tff_ssl.recommend(labels_at).process in PROCESSES
  with pytest.raises(ValueError, match="labels_at='nobody'.*'sets'"):
    tff_ssl.recommend('nobody')
