"""The pages of `docs/reference/` that are made from records and results."""

import re

import pytest

from datasets.partition import partitions
from experiments.config import catalogue, settings
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES
from tools import settings_reference


@pytest.fixture(scope='module')
def entries():
  """The lines of each setting."""
  index, *pages = settings_reference.settings().values()
  _, *parts = re.split(r'^## `--(\w+)`\n', '\n'.join(pages), flags=re.M)
  assert re.findall(r'^\| \[`--(\w+)`', index, re.M) == parts[::2]
  return dict(zip(parts[::2], parts[1::2], strict=True))


def default_lines(entry):
  return re.search(r'Default:.*(\n  - .*)*', entry)[0].splitlines()


def test_every_setting_has_an_entry(entries):
  assert list(entries) == list(catalogue.known())


@pytest.mark.parametrize(
  'name, line',
  [
    # Who has it.
    ('supervised_rounds', 'Belongs to `--process=fedtrinet`.'),
    ('prior_noise', 'Belongs to `--partition=u_sets`, `own_sets`.'),
    # When it counts.
    ('noise_formula', 'Needs: no `--prior_noise=0`.'),
    ('mask', 'Needs: a process whose clients have labels'),
    ('local_epochs', 'In the place of `--local_steps`.'),
    # Whether it may change, and its other names.
    ('total_rounds', 'May change when a run is resumed.'),
    ('batch_size', 'Also called `--client_batch_size`.'),
    # The values of the record.
    ('momentum', 'Value: a number >= 0 and < 1.'),
    ('norm', 'Value: `none` or `batch` or `group`.'),
  ],
)
def test_an_entry_says(entries, name, line):
  assert f'- {line}' in entries[name]


def test_what_every_run_keeps_is_not_said(entries):
  assert 'Belongs to' not in entries['seed']
  assert 'May change' not in entries['seed']


def test_defaults(entries):
  # The last one counts.
  line = '  - `1` with `--process=fedul`, `fedpl`, `fedllp`, `fedllp_vat`'
  assert line in default_lines(entries['local_epochs'])
  # What no value means.
  assert default_lines(entries['split']) == ['Default: `own`.']


def test_no_entry_says_anything_twice(entries):
  for name, entry in entries.items():
    lines = [line for line in entry.splitlines() if line]
    assert len(set(lines)) == len(lines), name


def test_conditions_are_in_words(entries):
  facts = {name for name in PROCESSES['fedavg'].facts if '_' in name}
  for name, entry in entries.items():
    for line in re.findall('- Needs.*', entry):
      words = set(re.findall(r'\w+', line))
      assert not words & {*facts, 'function'}, name


@pytest.mark.parametrize('process', PROCESSES)
def test_each_default_of_a_run_stands_in_the_entry(entries, process):
  for source in catalogue.REGISTRIES['dataset']:
    resolved = settings.resolve({'process': process, 'dataset': source})
    own = catalogue.of_run(resolved.chosen)
    for name, value in resolved.values.items():
      origin = resolved.origins[name]
      if origin == 'your flag' or name not in own or name == 'run_dir':
        continue
      lines = default_lines(entries[name])
      if origin.startswith('--') and own[name].setting.like:
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


def test_the_pages_are_current():
  pages = settings_reference.pages()
  for name, text in pages.items():
    assert (settings_reference.DOCS / name).read_text() == text, (
      f'docs/reference/{name} is stale: run {settings_reference.COMMAND}'
    )
  for folder in ('settings', 'recipes'):
    found = (settings_reference.DOCS / folder).iterdir()
    assert {f'{folder}/{page.name}' for page in found} <= set(pages)


def test_every_process_has_a_row():
  (page,) = settings_reference.processes().values()
  rows = re.findall(r'^\| `(\w+)` \|', page, re.M)
  assert sorted(rows) == sorted(PROCESSES)


def test_recipes_have_published_and_own_figures():
  index, *pages = settings_reference.all_recipes().values()
  text = '\n'.join(pages)
  assert re.search(r'\| `c47_s5` \| [^|]+ \| 0.8295 \| 0\.4004 \(1\) \|', text)
  for table in recipes.tables():
    assert f'\n## {table}\n' in text
    assert f'[{table}](recipes/' in index
