"""Flags are accepted, or refused in one line that names flag and value."""

import pathlib
import random

import pandas as pd
import pytest
import pythons

from experiments.config import catalogue, flags, settings
from tff_ssl.algorithms import PROCESSES

FLAGS = catalogue.known()
# Each refusal begins with the first part of what it says.
REFUSALS = pd.read_csv(
  pathlib.Path(__file__).with_name('refusals.csv'), keep_default_na=False
)

STRINGS = {
  'process': [*PROCESSES, 'groping', ''],
  'dataset': [
    *('digits', 'emnist', 'stl10', 'cifar10', 'npz', 'npz_sets', 'dgits', '')
  ],
  'partition': [
    *('r', 'native', 'pooled', 'dirichlet', 'u_sets', 'own_sets', 'iid', '')
  ],
  'sets_per_client': ['10', '3,4', '', '0', '1,x'],
  'model': ['dense', 'small_cnn', 'dense_encoder'],
  'test_prior': ['0.5,0.5', '0.2,0.3,0.5', '1,1', 'uniform', ''],
  'run_dir': ['runs/a b', '~/run', ''],
  'cache_dir': ['/tmp/cache', '~/cache', ''],
  'data_dir': ['/tmp/data', ''],
  'cluster': ['local', 'auto', '127.0.0.1:6379', ''],
}
INTEGERS = ['-1', '0', '1', '2', '5', '7', '64', '99999999999', '1.5', 'x']
FLOATS = ['-0.5', '0.0', '0.1', '0.5', '1.0', '1.5', 'nan', 'inf', '-inf', 'x']
VALUES = {
  int: INTEGERS,
  float: FLOATS,
  bool: ['true', 'false', 'x'],
}


def parsed(given):
  argv = ['program', *(f'--{name}={text}' for name, text in given.items())]
  return flags.parse(argv)


def as_text(value):
  return str(value).lower() if isinstance(value, bool) else str(value)


def generate(rng):
  """Returns random flags: mostly valid ones, so that some are accepted."""
  given = {}
  if rng.random() < 0.98:
    known = STRINGS['process'][: rng.choice([len(PROCESSES), None])]
    given['process'] = rng.choice(known)
  if rng.random() < 0.98:
    given['dataset'] = rng.choice(STRINGS['dataset'][: rng.choice([5, 7])])
  # Recipes and seeds are resolved before `settings.make`.
  elsewhere = {
    *('process', 'dataset', 'list', 'dry_run', 'json', 'export_form', 'help'),
    *('seeds', 'recipe', 'recipe_scale'),
  }
  others = [n for n in FLAGS if n not in elsewhere]
  for name in rng.sample(others, rng.choice([0, 1, 1, 2, 3, 6, 12])):
    choices = STRINGS.get(name) or [
      *FLAGS[name].choices,
      *VALUES.get(FLAGS[name].type, ['none such']),
    ]
    given[name] = rng.choice(choices)
  return given


@pytest.mark.parametrize(
  'draws', [50, pytest.param(2500, marks=pytest.mark.parts)]
)
def test_b1_generated_flags_are_accepted_or_refused(draws):
  rng = random.Random(20210831)
  accepted = 0
  for _ in range(draws):
    given = generate(rng)
    try:
      made = settings.make(parsed(given))
    except flags.UsageError as error:
      text = str(error)
      assert '\n' not in text, given
      missing = {'process', 'dataset'} - set(given)
      assert any(f'--{n} is missing' in text for n in missing) or any(
        f'--{n}={value}' in text for n, value in given.items()
      ), (given, text)
    else:
      accepted += 1
      # What a run folder keeps makes the same run again.
      kept = {name: as_text(value) for name, value in made.used.items()}
      again = settings.make(parsed(kept))
      # All of them are the user's now.
      again.origins, again.defaults = made.origins, made.defaults
      assert again == made, given
  # About a seventh, of as few as 50 draws.
  assert 0.08 < accepted / draws < 0.5, accepted


def test_every_process_runs_on_its_defaults(make):
  for process in PROCESSES:
    made = make(process=process)
    unused = set(PROCESSES[process].setting_names) - set(made.used)
    # For lack of batch normalisation, of `local_epochs` and of a mask, and
    # where the data or the rule of pseudo-labels decide; where the model in
    # training labels; of FedUL, for its base and the uniform prior; where all
    # clients weigh the same.
    assert unused <= {
      *('proximal_strength', 'test_prior', 'class_weights'),
      *('threshold', 'min_confidence', 'max_energy'),
      *('sharpness_radius', 'sharpness_threshold'),
      *('bn_statistics', 'local_steps', 'local_epochs', 'mask'),
      *('labelled_batch_probability', 'unlabelled_steps'),
      *('control_update', 'server_learning_rate', 'global_momentum'),
      'max_client_weight',
    }
    assert made.run_dir == f'runs/{process}_digits_seed0'


@pytest.mark.parametrize(
  'given, said', list(REFUSALS.itertuples(index=False, name=None))
)
def test_refusals(refusal, read_flags, given, said):
  text = refusal(**read_flags(given))
  first, *others = said.split(' & ')
  assert text.startswith(first)
  for part in others:
    assert part in text


@pytest.mark.parametrize('name', ['process', 'dataset'])
def test_what_a_run_needs(name):
  given = {'process': 'grouping', 'dataset': 'digits'}
  del given[name]
  with pytest.raises(flags.UsageError, match=f'--{name} is missing'):
    settings.make(given)


NAN, INF = float('nan'), float('inf')
OUT_OF_RANGE = {
  'noniid_r': (-0.01, 1.01, NAN, INF),
  'threshold': (-0.01, 2.0, NAN, INF),
  'momentum': (-0.1, 1.0, 1.1, NAN),
  **dict.fromkeys(
    ('learning_rate', 'server_learning_rate', 'server_weight'),
    (0.0, -1.0, NAN, INF),
  ),
  'weight_decay': (-1e-9, NAN, INF),
  **dict.fromkeys(
    (
      *('batch_size', 'local_steps', 'local_epochs', 'num_groups'),
      *('num_clients', 'clients_per_round', 'total_rounds', 'server_steps'),
      *('server_batch_size', 'rounds_per_evaluation'),
      'rounds_per_checkpoint',
    ),
    (0, -1, 2**31, 10**30),
  ),
  **dict.fromkeys(
    ('server_warmup_rounds', 'server_examples', 'seed'), (-1, 2**31)
  ),
}


@pytest.mark.parametrize(
  'name, value', [(n, v) for n, values in OUT_OF_RANGE.items() for v in values]
)
def test_out_of_range(refusal, name, value):
  assert f'--{name}={value}' in refusal(**{name: value})


# Flags of processes that another process must refuse, by hand.
_SUPERVISED = {'client_weighting': 'uniform'}
_FEDPROX = {'proximal_strength': 0.1}
_CONTROLS = {'control_update': 'full_gradient'}
_GROUPS = {'num_groups': 2}
_PSEUDO = {'threshold': 0.9, 'server_weight': 2.0}
_SERVER_DATA = {
  'server_steps': 2,
  'server_batch_size': 4,
  'server_examples': 50,
}
_SERVER = {**_SERVER_DATA, 'server_learning_rate': 0.1}
_CLIENTS = {'batch_size': 5, 'local_steps': 2, 'clients_per_round': 2}
_WARMUP = {'server_warmup_rounds': 3}
FOREIGN = {
  'grouping': _SUPERVISED | _FEDPROX | _CONTROLS,
  'fedavg_ssfl': _SUPERVISED | _FEDPROX | _GROUPS | _CONTROLS,
  'self_training': _SUPERVISED | _FEDPROX | _GROUPS | _CONTROLS,
  'server_only': (
    _SUPERVISED | _FEDPROX | _GROUPS | _PSEUDO | _CLIENTS | _WARMUP | _CONTROLS
  ),
  'fedavg': _FEDPROX | _GROUPS | _PSEUDO | _SERVER | _WARMUP | _CONTROLS,
  'fedprox': _GROUPS | _PSEUDO | _SERVER | _WARMUP | _CONTROLS,
  'fednova': _GROUPS | _PSEUDO | _SERVER | _WARMUP | _CONTROLS,
  # Those two have a server's step size.
  'fedadam': _FEDPROX | _GROUPS | _PSEUDO | _SERVER_DATA | _WARMUP | _CONTROLS,
  'scaffold': _FEDPROX | _GROUPS | _PSEUDO | _SERVER_DATA | _WARMUP,
}
ALL = {
  **(_SUPERVISED | _FEDPROX | _CONTROLS | _GROUPS | _PSEUDO | _SERVER),
  **(_CLIENTS | _WARMUP),
}


@pytest.mark.parametrize('process', FOREIGN)
def test_foreign_flags_are_refused_and_own_ones_taken(make, refusal, process):
  for name, value in ALL.items():
    given = {'process': process, name: value}
    if name in FOREIGN[process]:
      text = refusal(**given)
      assert f'--{name}={value} has no effect' in text and process in text
      assert getattr(make(process=process), name) is None
    else:
      assert getattr(make(**given), name) == value


@pytest.mark.parametrize(
  'name',
  [
    name
    for name in FLAGS
    if name.startswith('schedule_') and name != 'schedule_decay'
  ],
)
def test_schedule_flags_need_the_cosine(make, refusal, name):
  assert '--schedule=cosine' in refusal(**{name: 2})
  made = make(schedule='cosine', **{name: 2})
  assert getattr(made, name) == 2


def test_folders_are_expanded_and_data_dir_comes_from_the_environment(
  make, monkeypatch
):
  monkeypatch.setenv('HOME', '/home/x')
  monkeypatch.setenv('TFF_SSL_DATA_DIR', '/data')
  made = make(process='fedavg', run_dir='~/r', cache_dir='~/c')
  assert (made.run_dir, made.cache_dir) == ('/home/x/r', '/home/x/c')
  assert made.data_dir == '/data'
  assert make(process='fedavg', data_dir='/own').data_dir == '/own'


PROGRAM = """
import sys
from experiments.config import flags
from experiments import run
from experiments.config import settings
settings.make({'process': 'grouping', 'dataset': 'digits'})
assert run.main(['run', '--process=groping', '--dataset=digits']) == 2
heavy = {'tensorflow', 'tensorflow_federated', 'jax', 'pandas', 'matplotlib'}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_b1_a_refusal_needs_no_tensorflow():
  done = pythons.run('-c', PROGRAM)
  assert done.returncode == 0, done.stderr
  assert done.stderr.startswith('error: --process=groping is unknown')
  assert done.stderr.count('\n') == 1


def test_a_run_may_be_resumed_with_or_without_a_cluster(make):
  """The flag file comes first, and the command line wins."""
  alone = make().used
  far = make(cluster='10.0.0.2:6379', cluster_parts=16, part_timeout=9.0).used
  assert far.keys() - alone.keys() <= settings.FREE
  assert settings.make({**alone, 'cluster': 'auto'}).used['cluster'] == 'auto'
  assert settings.make({**far, 'cluster': ''}).used == alone
