"""What comes from the data set where a flag is not given."""

import numpy as np
import pytest

from datasets.sources import catalogue
from experiments.config import defaults, settings
from experiments.config.usage import UsageError
from tff_ssl.algorithms import PROCESSES


def resolve(**given):
  given = {'process': 'grouping', 'dataset': 'digits', **given}
  return defaults.resolve(given).values


def test_every_process_has_defaults_on_every_data_set():
  for process in PROCESSES:
    for dataset, source in catalogue.SOURCES.items():
      # Who needs labels that there are not, or has labels where nobody has.
      labels_at = PROCESSES[process].labels_at
      if source.has_unlabelled and labels_at == 'clients':
        continue
      if source.has_unlabelled and labels_at == 'sets' and not source.has_sets:
        continue
      if source.has_sets and labels_at not in ('clients', 'sets'):
        continue
      if source.form == 'tokens' and not PROCESSES[process].takes_tokens:
        continue
      made = settings.make({'process': process, 'dataset': dataset})
      assert source.has_native_split or made.partition != 'native'
      assert None in (made.local_steps, made.local_epochs)
      assert made.total_rounds >= 1


def test_given_values_win():
  values = resolve(seed=7, momentum=0.5)
  assert (values['seed'], values['momentum']) == (7, 0.5)
  assert values['run_dir'] == 'runs/grouping_digits_seed7'


@pytest.mark.parametrize(
  'folder, name',
  [('/data/letters', '_letters'), ('/data/my letters/', '_my_letters')],
)
def test_a_folder_of_ones_own_data_has_its_own_runs(folder, name):
  values = resolve(dataset='npz', data_dir=folder)
  assert values['run_dir'] == f'runs/grouping_npz{name}_seed0'
  values = resolve(dataset='emnist', data_dir=folder)
  assert values['run_dir'] == 'runs/grouping_emnist_seed0'


def test_few_clients_are_all_asked():
  assert resolve(num_clients=4)['clients_per_round'] == 4
  assert resolve(num_clients=40)['clients_per_round'] == 10
  assert resolve(num_clients=4, clients_per_round=3)['clients_per_round'] == 3


def test_all_clients_are_asked_where_a_process_needs_all():
  """By default, as many as in Table 5 of Zhang et al."""

  def clients(**given):
    values = resolve(process='easgd', **given)
    return values.get('num_clients'), values['clients_per_round']

  assert clients() == (16, 16)
  assert clients(num_clients=40) == (40, 40)
  assert clients(num_clients=4, partition='dirichlet') == (4, 4)
  # One client holds all the data.
  assert clients(partition='pooled')[1] == 1
  with pytest.raises(UsageError) as caught:
    settings.make(
      {
        'process': 'easgd',
        'dataset': 'digits',
        'num_clients': 40,
        'clients_per_round': 16,
      }
    )
  assert str(caught.value) == (
    '--clients_per_round=16 is less than --num_clients=40, and --process=easgd '
    'is defined for rounds of all clients: leave --clients_per_round out.'
  )


@pytest.mark.parametrize(
  'given, kept, dropped',
  [
    ({}, 'local_epochs', 'local_steps'),
    ({'local_steps': 3}, 'local_steps', 'local_epochs'),
    ({'dataset': 'cifar10'}, 'local_steps', 'local_epochs'),
    (
      {'dataset': 'cifar10', 'local_epochs': 1},
      'local_epochs',
      'local_steps',
    ),
  ],
)
def test_steps_and_epochs_replace_each_other(given, kept, dropped):
  values = resolve(**given)
  assert kept in values and dropped not in values


def test_partition_of_the_user_takes_what_belongs_to_it():
  used = settings.make(
    {'process': 'grouping', 'dataset': 'digits', 'partition': 'pooled'}
  ).used
  assert not {'noniid_r', 'num_clients'} & set(used)
  pooled = resolve(partition='pooled')
  assert (pooled['clients_per_round'], pooled['num_groups']) == (1, 1)
  native = resolve(dataset='emnist')
  assert native['server_writers'] == 'spread' and 'noniid_r' not in native
  cut = resolve(dataset='emnist', partition='r')
  assert (cut['noniid_r'], cut['num_clients']) == (0.4, 100)


def test_clients_are_evaluated_where_writers_have_test_examples():
  def interval(**given):
    made = settings.make({'process': 'fedavg', **given})
    return made.rounds_per_client_evaluation

  assert interval(dataset='emnist') == 50
  assert interval(dataset='emnist', partition='r') is None
  assert interval(dataset='digits') is None
  # Only the files tell whether there are owners of test examples.
  assert interval(dataset='npz', partition='native') == 0
  given = {'partition': 'native', 'rounds_per_client_evaluation': 7}
  assert interval(dataset='npz', **given) == 7


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


def test_dirichlet_takes_what_belongs_to_it():
  cut = resolve(dataset='emnist', partition='dirichlet')
  assert (cut['num_clients'], cut['min_client_examples']) == (100, 10)
  assert 'noniid_r' not in cut and 'server_writers' not in cut
  assert resolve(partition='dirichlet')['num_clients'] == 20
  assert 'dirichlet_alpha' not in resolve()


def test_paper_values_of_stl10():
  """Zhang et al., appendix I: K = 10, C = 2, T = 16, N_s = 1000, R = 0."""
  values = resolve(dataset='stl10')
  names = ('num_clients', 'clients_per_round', 'local_steps')
  assert [values[name] for name in names] == [10, 2, 16]
  assert (values['server_examples'], values['noniid_r']) == (1000, 0.0)


@pytest.mark.parametrize(
  'dataset, clients', [('organamnist', (10, 3)), ('bloodmnist', (5, 5))]
)
def test_cross_silo_values_of_fedlabel(dataset, clients):
  """Section 5.1: alpha = 0.1, 30% of 10 and all of 5 clients, 5% labels."""
  made = settings.make({'process': 'fedlabel', 'dataset': dataset})
  assert (made.num_clients, made.clients_per_round) == clients
  assert (made.partition, made.dirichlet_alpha) == ('dirichlet', 0.1)
  assert made.mask_ratio == 0.95
  given = {'process': 'fedavg', 'dataset': dataset}
  assert settings.make(given).mask_ratio == 0.0
  given = {'process': 'fedlabel', 'dataset': 'cifar10'}
  assert settings.make(given).mask_ratio == 0.8


def test_letters_have_more_labels():
  digits = resolve(dataset='emnist')
  letters = resolve(dataset='emnist', emnist_only_digits=False)
  assert digits['emnist_only_digits'] and not letters['emnist_only_digits']
  assert digits['server_examples'] / 10 == letters['server_examples'] / 62


def test_server_learns_at_the_rate_of_the_clients_unless_told():
  assert resolve(learning_rate=0.2)['server_learning_rate'] == 0.2
  assert resolve(server_learning_rate=0.5)['server_learning_rate'] == 0.5


def test_paper_values_of_the_cosine_schedule():
  """Zhang et al.: E M / B steps, c = 7/16; here 100 epochs of 1,024 steps."""
  values = resolve(schedule='cosine')
  assert values['schedule_coefficient'] == 0.4375
  assert values['schedule_steps'] == 102_400
  assert 'schedule_scale' in values
  assert 'schedule_scale' not in resolve()


def test_federated_optimizers_step_as_their_papers_do():
  """Reddi et al. leave the rate to tuning; Algorithm 1 of SCAFFOLD is SGD."""
  assert resolve(process='fedadam')['server_learning_rate'] == 0.01
  assert resolve(process='fednova')['proximal_strength'] == 0
  assert resolve(process='fedlabel')['server_learning_rate'] == 1
  values = resolve(process='scaffold')
  assert (values['server_learning_rate'], values['momentum']) == (1, 0)
  assert values['client_weighting'] == 'uniform'
  assert resolve(process='easgd')['elastic_rate'] == 0.9
  values = resolve(process='overlap_sgd')
  names = ('pull', 'anchor_momentum', 'learning_rate', 'momentum')
  assert [values[name] for name in names] == [0.6, 0.7, 0.1, 0.9]
