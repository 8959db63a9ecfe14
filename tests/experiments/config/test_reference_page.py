"""The reference of all settings, `docs/reference/settings.md`."""

import re

import pytest

from datasets.partition import partitions
from datasets.sources import catalogue
from experiments.config import defaults, parts_of_run, reference_page
from tff_ssl.algorithms import PROCESSES, ProcessSpec


@pytest.fixture(scope='module')
def entries():
  """The lines of each setting."""
  page = reference_page.text()
  _, *parts = re.split(r'^### `--(\w+)`\n', page, flags=re.MULTILINE)
  return dict(zip(parts[::2], parts[1::2], strict=True))


def default_lines(entry):
  start = entry.index('- Default:')
  return entry[start : entry.index('\n- Of ')].splitlines()


def test_every_setting_has_an_entry(entries):
  assert list(entries) == list(parts_of_run.all_settings())


def test_an_entry_says_who_has_the_setting(entries):
  assert '- Of `--process=fedtrinet`.' in entries['supervised_rounds']
  assert '- Of `--partition=u_sets`, `own_sets`.' in entries['prior_noise']
  assert '- Of every run.' in entries['seed']


def test_an_entry_says_when_the_setting_counts(entries):
  assert '- Needs: not `--prior_noise=0`.' in entries['noise_formula']
  assert '- Needs: a process whose clients have labels' in entries['mask']
  assert '- In the place of `--local_steps`.' in entries['local_epochs']
  assert 'function' not in ''.join(re.findall('- Needs.*', str(entries)))


def test_an_entry_says_what_it_may_change_and_its_other_names(entries):
  assert '- Can change the run.' in entries['total_rounds']
  assert '- Can change the model.' in entries['num_clients']
  assert '- Also called `--client_batch_size`.' in entries['batch_size']


def test_values_are_those_of_the_record(entries):
  assert '- Value: a number >= 0 and < 1.' in entries['momentum']
  assert '- Value: `none` or `batch` or `group`.' in entries['norm']


def test_the_last_of_the_defaults_counts(entries):
  *_, last = default_lines(entries['local_epochs'])
  assert last == (
    '  - `1` with `--process=fedul`, `fedpl`, `fedllp`, `fedllp_vat`'
  )


def test_no_entry_says_anything_twice(entries):
  for name, entry in entries.items():
    lines = [line for line in entry.splitlines() if line]
    assert len(set(lines)) == len(lines), name


def test_conditions_are_in_words(entries):
  facts = {name for name in ProcessSpec.__dataclass_fields__ if '_' in name}
  for name, entry in entries.items():
    for line in re.findall('- Needs.*', entry):
      assert not facts & set(re.findall(r'\w+', line)), name


def test_what_no_value_means_is_the_default(entries):
  assert default_lines(entries['split']) == ['- Default: `own`.']


@pytest.mark.parametrize('process', PROCESSES)
def test_each_default_of_a_run_stands_in_the_entry(entries, process):
  for source in catalogue.SOURCES:
    resolved = defaults.resolve({'process': process, 'dataset': source})
    own = resolved.parts.settings
    for name, value in resolved.values.items():
      origin = resolved.origins[name]
      if origin == 'your flag' or name not in own or name == 'run_dir':
        continue
      lines = default_lines(entries[name])
      if origin.startswith('--') and own[name].like:
        assert f'that of `{origin}`' in lines[-1]
        continue
      value = str(value).lower() if isinstance(value, bool) else value
      assert any(f'`{value}`' in line for line in lines), (name, source)


@pytest.mark.parametrize('name', partitions.PARTITIONS)
def test_the_defaults_of_a_partition_stand_in_the_entries(entries, name):
  for setting in partitions.PARTITIONS[name].settings:
    if setting.default is not None:
      lines = '\n'.join(default_lines(entries[setting.name]))
      assert f'`{setting.default}`' in lines
