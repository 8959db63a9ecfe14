"""What is recommended, by what is known before data are read."""

import pytest

import tff_ssl
from experiments.config import settings
from tff_ssl.algorithms import PROCESSES


@pytest.mark.parametrize(
  'given, process, told_by',
  [
    ({'dataset': 'digits'}, 'grouping_robust', 'With no flag'),
    (
      {'dataset': 'npz', 'data_dir': '/absent'},
      'grouping_robust',
      'With no flag',
    ),
    (
      {'dataset': 'digits', 'labelled_fraction': 0.1},
      'fedavg_uda',
      '--labelled_fraction=0.1',
    ),
    ({'dataset': 'digits', 'partition': 'u_sets'}, 'fedul', 'u_sets'),
    (
      {'dataset': 'npz_sets', 'data_dir': '/absent'},
      'fedul',
      '--dataset=npz_sets',
    ),
  ],
)
def test_it_follows_where_the_labels_are(given, process, told_by):
  made = settings.make({'process': 'recommended', **given})
  assert made.process == made.used['process'] == process
  assert made.origins['process'] == 'recommended'
  assert f'--process={process}' in made.recommendation
  assert told_by in made.recommendation
  # The run is that of the process itself.
  named = settings.make({'process': process, **given})
  assert named.used == made.used
  assert named.recommendation is None


def test_every_recommendation_is_a_process():
  for labels_at in ('server', 'clients', 'sets'):
    assert tff_ssl.recommend(labels_at).process in PROCESSES
  with pytest.raises(ValueError, match="labels_at='nobody'.*'sets'"):
    tff_ssl.recommend('nobody')
