"""The catalogue: settings of one name, who needs them, phases, data sets."""

import collections
import dataclasses
import re

import own_source
import pytest

from experiments.config import catalogue, settings
from experiments.tables import recipes
from tff_ssl.common.setting import Scope


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


def test_settings_of_the_model_say_who_needs_them():
  """Unless recipes have them, with each of the values that is no default."""
  used = collections.defaultdict(set)
  for path in recipes.FOLDER.glob('*.csv'):
    for name, value in re.findall(r'--(\w+)=([^\s",]+)', path.read_text()):
      used[name].add(value)
  rows = [r for r in catalogue.every_row() if r.setting.scope is Scope.MODEL]
  defaults = {(row.setting.name, row.setting.default) for row in rows}
  for row in rows:
    if row.flag == 'process':
      name = row.setting.name
      defaults.add((name, row.choice.default_of(name)))
  missing = set()
  for setting in (row.setting for row in rows):
    values = {v for v in setting.choices if (setting.name, v) not in defaults}
    is_used = setting.name in used and values <= used[setting.name]
    if not is_used and not setting.needed_by:
      missing.add(setting.name)
  assert not missing


def test_every_data_set_has_a_partition_and_rounds():
  sources = catalogue.REGISTRIES['dataset']
  process = catalogue.REGISTRIES['process']['grouping']

  def of_source(source):
    given = {'dataset': source.name}
    values, _ = settings.profile(source, process, given)
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
