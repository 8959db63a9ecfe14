"""The pages of `docs/reference/` that are made from records and results."""

import re

import pytest

from datasets.partition import partitions
from experiments.config import catalogue, resolving
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES
from tools import settings_reference


@pytest.fixture(scope='module')
def entries():
  """The lines of each setting."""
  page = settings_reference.all_settings()
  _, *parts = re.split(r'^### `--(\w+)`\n', page, flags=re.MULTILINE)
  return dict(zip(parts[::2], parts[1::2], strict=True))


def default_lines(entry):
  start = entry.index('- Default:')
  return entry[start : entry.index('\n- Of ')].splitlines()


def test_every_setting_has_an_entry(entries):
  assert list(entries) == list(catalogue.known())


@pytest.mark.parametrize(
  'name, line',
  [
    # Who has it.
    ('supervised_rounds', 'Of `--process=fedtrinet`.'),
    ('prior_noise', 'Of `--partition=u_sets`, `own_sets`.'),
    ('seed', 'Of every run.'),
    # When it counts.
    ('noise_formula', 'Needs: not `--prior_noise=0`.'),
    ('mask', 'Needs: a process whose clients have labels'),
    ('local_epochs', 'In the place of `--local_steps`.'),
    # What it may change, and its other names.
    ('total_rounds', 'Can change the run.'),
    ('num_clients', 'Can change the model.'),
    ('batch_size', 'Also called `--client_batch_size`.'),
    # The values of the record.
    ('momentum', 'Value: a number >= 0 and < 1.'),
    ('norm', 'Value: `none` or `batch` or `group`.'),
  ],
)
def test_an_entry_says(entries, name, line):
  assert f'- {line}' in entries[name]


def test_defaults(entries):
  # The last one counts.
  *_, last = default_lines(entries['local_epochs'])
  assert last == (
    '  - `1` with `--process=fedul`, `fedpl`, `fedllp`, `fedllp_vat`'
  )
  # What no value means.
  assert default_lines(entries['split']) == ['- Default: `own`.']


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
    resolved = resolving.resolve({'process': process, 'dataset': source})
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
  for name, text in settings_reference.PAGES.items():
    assert (settings_reference.DOCS / name).read_text() == text(), (
      f'docs/{name} is stale: run {settings_reference.COMMAND}'
    )


def test_every_process_has_a_row():
  rows = re.findall(r'^\| `(\w+)` \|', settings_reference.processes(), re.M)
  assert sorted(rows) == sorted(PROCESSES)


def test_recipes_have_published_and_own_figures():
  page = settings_reference.all_recipes()
  assert re.search(
    r'\| `c47_s5` \| [^|]+ \| 0.8295 \| [^|]*0\.4004 \(1, 0.01 ', page
  )
  for table in recipes.tables():
    assert f'\n## {table}\n' in page
