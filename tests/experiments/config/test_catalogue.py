"""The catalogue: settings of one name, phases of a run, and data sets."""

import dataclasses

import own_source
import pytest

from experiments.config import catalogue, profiles, settings


@pytest.mark.parametrize(
  'given, phases',
  [
    ({'process': 'grouping'}, [('server warm-up', 10)]),
    ({'process': 'grouping', 'server_warmup_rounds': 0}, []),
    (
      {'process': 'sspt', 'pretraining_rounds': 3, 'total_rounds': 5},
      [('pre-training', 3)],
    ),
    ({'process': 'fedavg'}, []),
  ],
)
def test_phases_are_those_that_the_run_has(given, phases):
  made = settings.make({'dataset': 'digits', **given})
  assert catalogue.phases_of(made.used) == phases


def test_settings_of_one_name_have_one_type():
  types = {}
  for row in catalogue.every_row():
    types.setdefault(row.setting.name, set()).add(row.setting.type)
  assert [name for name, found in types.items() if len(found) > 1] == []


def test_every_data_set_has_a_partition_and_rounds():
  sources = catalogue.REGISTRIES['dataset']
  process = catalogue.REGISTRIES['process']['grouping']

  def of_source(source):
    given = {'dataset': source.name}
    values, _ = profiles.defaults(source, process, given)
    return values

  for source in sources.values():
    values = of_source(source)
    assert values['partition'] in catalogue.REGISTRIES['partition']
    assert values['total_rounds'] >= 100
  assert of_source(own_source.SOURCE) == {}
  plain = dataclasses.replace(own_source.SOURCE, derive=None)
  assert of_source(plain)['model'] == 'small_cnn'
  letters = sources['emnist'].derive({}, {'emnist_only_digits': False})
  assert letters['sets_per_client'] == '62'
