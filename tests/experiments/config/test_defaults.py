"""What comes from the data set or the process where a flag is not given."""

import pathlib

import numpy as np
import pandas as pd
import pytest

from datasets.sources import catalogue
from experiments.config import settings
from experiments.config.command_line import UsageError
from tff_ssl import algorithms
from tff_ssl.algorithms import PROCESSES
from tff_ssl.objectives import surrogate_sets

DEFAULTS = pd.read_csv(
  pathlib.Path(__file__).with_name('defaults.csv'),
  comment='#',
  keep_default_na=False,
)


@pytest.mark.parametrize(
  'given, others', list(DEFAULTS.itertuples(index=False, name=None))
)
def test_settings_beside_given_flags(make, read_flags, given, others):
  """An empty value says that the run has no use for the setting."""
  made = make(**read_flags(given))
  wanted = {**read_flags(given), **read_flags(others)}
  have = {name: getattr(made, name) for name in wanted}
  assert {k: '' if v is None else v for k, v in have.items()} == wanted


def test_every_process_has_defaults_on_every_data_set():
  for process in PROCESSES:
    for dataset, source in catalogue.SOURCES.items():
      # Who needs labels that there are not, or has labels where nobody has.
      labels_at = PROCESSES[process].needs.labels_at
      if source.has_unlabelled and labels_at == 'clients':
        continue
      if source.has_unlabelled and labels_at == 'sets' and not source.has_sets:
        continue
      if source.has_sets and labels_at not in ('clients', 'sets'):
        continue
      if source.form == 'tokens' and not PROCESSES[process].needs.tokens:
        continue
      made = settings.make({'process': process, 'dataset': dataset})
      assert source.has_native_split or made.partition != 'native'
      assert None in (made.local_steps, made.local_epochs)
      assert made.total_rounds >= 1


@pytest.mark.parametrize(
  'process', ['fedavg_uda', 'fedlabel', 'sage', 'server_only']
)
@pytest.mark.parametrize(
  'dataset', ['text', 'examples.package_docstrings:SPEC']
)
def test_texts_have_a_rate_of_their_own(process, dataset):
  def rates(**given):
    made = settings.make(given)
    return made.learning_rate, made.momentum

  of_texts = rates(process='fedavg', dataset=dataset)
  assert rates(process=process, dataset=dataset) == of_texts
  assert rates(process=process, dataset='emnist') != of_texts


@pytest.mark.parametrize(
  'folder, name',
  [('/data/letters', '_letters'), ('/data/my letters/', '_my_letters')],
)
def test_a_folder_of_ones_own_data_has_its_own_runs(make, folder, name):
  made = make(dataset='npz', data_dir=folder)
  assert made.run_dir == f'runs/grouping_npz{name}_seed0'
  made = make(dataset='emnist', data_dir=folder)
  assert made.run_dir == 'runs/grouping_emnist_seed0'


@pytest.fixture
def owned(tmp_path):
  """A folder whose train.npz has client_ids."""
  np.savez(tmp_path / 'train.npz', client_ids=np.arange(3))
  return str(tmp_path)


def test_owners_in_a_users_files_are_the_clients(owned, tmp_path_factory):
  def make(process='grouping', **given):
    given = {'process': process, 'dataset': 'npz', **given}
    return settings.make({'data_dir': owned, **given})

  made = make()
  assert (made.partition, made.num_clients) == ('native', None)
  assert made.noniid_r is None and made.server_writers == 'spread'
  # Who asks for another one gets it, with its own defaults.
  other = make(partition='r')
  assert (other.partition, other.num_clients) == ('r', 20)
  assert make('fedul').partition == 'u_sets'
  assert make('fedavg', setting='central').partition == 'pooled'
  empty = str(tmp_path_factory.mktemp('empty'))
  assert make(data_dir=empty).partition == 'r'
  # A run goes on as it began, whatever lies in the folder then.
  assert make(**{**made.used, 'data_dir': empty}).partition == 'native'
  began = make(data_dir=empty).used
  assert make(**{**began, 'data_dir': owned}).partition == 'r'


def test_owners_are_found_by_the_environment_too(owned, monkeypatch):
  monkeypatch.setenv('TFF_SSL_DATA_DIR', owned)
  given = {'process': 'grouping', 'dataset': 'npz'}
  assert settings.make(given).partition == 'native'


def test_what_native_clients_do_not_take_is_refused_with_who_does(owned):
  given = {'process': 'fedavg', 'dataset': 'npz', 'data_dir': owned}
  with pytest.raises(UsageError) as caught:
    settings.make({**given, 'noniid_r': 0.4})
  assert '--partition=native does not use it' in str(caught.value)
  assert '(--partition=r does)' in str(caught.value)


@pytest.mark.parametrize('base', ['fednova', 'scaffold'])
def test_a_base_process_says_what_is_so_of_fedul(base):
  spec = algorithms.PROCESSES['fedul'].over(base)
  keeps_state = base == 'scaffold'
  assert spec.takes('client_state_dir') == keeps_state
  assert spec.has_gradient_diversity != keeps_state
  assert spec.needs.sgd


def test_a_prior_is_numbers_between_commas():
  assert surrogate_sets.parse_prior('0.25, 0.75') == (0.25, 0.75)
