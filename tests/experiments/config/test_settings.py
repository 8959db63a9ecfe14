"""Flags are accepted, or refused in one line that names flag and value."""

import dataclasses
import random
import subprocess
import sys

import pytest

from experiments.config import flags, parts_of_run, settings
from tff_ssl import algorithms, shared_settings
from tff_ssl.algorithms import PROCESSES
from tff_ssl.objectives.consistency import THRESHOLD

FLAGS = parts_of_run.all_settings()

# A command line that each process accepts, to which a test adds one flag.
MINIMAL = {'dataset': 'digits'}

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


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


def make(**given):
  return settings.make({**MINIMAL, **given})


def refusal(**given):
  """Returns the text of the refusal, which is one line."""
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  text = str(caught.value)
  assert '\n' not in text and text.endswith(('.', '?'))
  return text


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
    *('process', 'dataset', 'list', 'dry_run', 'export_form', 'help'),
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


def test_generated_flags_are_accepted_or_refused():
  rng = random.Random(20210831)
  accepted = 0
  for _ in range(2500):
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
      again.origins = made.origins
      assert again == made, given
  assert 300 < accepted < 2200, accepted


@pytest.mark.parametrize(
  'given',
  [
    {'bn_statistics': 'local'},
    {'num_groups': 1, 'server_replicas': 'per_group'},
    {'num_groups': 1, 'start_model': 'slot'},
    {'momentum': 0.0, 'client_momentum': 'slot'},
    {'rounds_per_gradient_diversity': 5},
    {'gradient_diversity_of': 'fixed_clients'},
    {'gradient_diversity_of': 'participants', 'gradient_diversity_clients': 5},
  ],
)
def test_options_without_effect_are_refused(given):
  name = list(given)[-1]
  assert refusal(process='grouping', **given).startswith(f'--{name}=')


@pytest.mark.parametrize(
  'given',
  [
    {'gradient_diversity_clients': 5},
    {'gradient_diversity_of': 'fixed_clients', 'gradient_diversity_clients': 5},
    {'gradient_diversity_of': 'participants'},
  ],
)
def test_gradient_diversity_has_a_period_where_it_is_measured(given):
  made = make(process='grouping', rounds_per_gradient_diversity=5, **given)
  assert made.rounds_per_gradient_diversity == 5
  assert given.items() <= made.used.items()
  assert ('gradient_diversity_clients' in made.used) == (
    'gradient_diversity_clients' in given
  )


def test_every_process_runs_on_its_defaults():
  for process in PROCESSES:
    made = make(process=process)
    unused = set(PROCESSES[process].setting_names) - set(made.used)
    # For lack of batch normalisation, of `local_epochs` and of a mask, and
    # where the data or the rule of pseudo-labels decide; of FedUL, for its base
    # and the uniform prior; where all clients weigh the same.
    assert unused <= {
      *('proximal_strength', 'test_prior', 'class_weights'),
      *('threshold', 'min_confidence'),
      *('bn_statistics', 'local_steps', 'local_epochs', 'mask'),
      *('labelled_batch_probability', 'unlabelled_steps'),
      *('control_update', 'server_learning_rate', 'global_momentum'),
      'max_client_weight',
    }
    assert made.run_dir == f'runs/{process}_digits_seed0'


@pytest.mark.parametrize(
  'given, texts',
  [
    ({'process': 'groping'}, ['--process=groping', "'grouping'?"]),
    ({'dataset': 'dgits'}, ['--dataset=dgits', "'digits'?"]),
    ({'partition': 'natve'}, ['--partition=natve', "'native'?"]),
    ({'norm': 'bach'}, ['--norm=bach', "'batch'?"]),
    ({'precision': 'float23'}, ['--precision=float23', "'float32'?"]),
    ({'schedule': 'cosin'}, ['--schedule=cosin', "'cosine'?"]),
    (
      {'num_groups': 5, 'clients_per_round': 4},
      ['--num_groups=5', '--clients_per_round=4'],
    ),
    (
      {'clients_per_round': 7, 'num_clients': 6},
      ['--clients_per_round=7', '--num_clients=6'],
    ),
    (
      {'local_steps': 3, 'local_epochs': 2},
      ['--local_steps=3', '--local_epochs=2', 'give one'],
    ),
    ({'server_examples': 0}, ['--server_examples=0', 'labels']),
    (
      {'schedule': 'cosine', 'schedule_steps': 9, 'schedule_warmup_steps': 9},
      ['--schedule_warmup_steps=9', '--schedule_steps=9'],
    ),
    (
      {'noniid_r': 0.5, 'partition': 'native', 'dataset': 'emnist'},
      ['--noniid_r=0.5', '--partition=native'],
    ),
    (
      {'num_clients': 5, 'partition': 'pooled'},
      ['--num_clients=5', '--partition=pooled'],
    ),
    (
      {'rounds_per_client_evaluation': 5},
      ['--rounds_per_client_evaluation=5', 'choose --partition=native'],
    ),
    (
      {
        'rounds_per_client_evaluation': 0,
        'dataset': 'mnist',
        'partition': 'native',
      },
      ['--rounds_per_client_evaluation=0', 'whose examples have owners'],
    ),
    ({'server_writers': 'everyone'}, ['--server_writers', '--partition=r']),
    ({'dirichlet_alpha': 0.5}, ['--dirichlet_alpha=0.5', '--partition=r']),
    (
      {'partition': 'dirichlet', 'dirichlet_alpha': 1e-4},
      ['--dirichlet_alpha=0.0001', 'between 0.001 and 1e+06'],
    ),
    (
      {'partition': 'dirichlet', 'min_client_examples': -1},
      ['--min_client_examples=-1', '>= 0'],
    ),
    (
      {'partition': 'dirichlet', 'noniid_r': 0.4},
      ['--noniid_r=0.4', '--partition=dirichlet'],
    ),
    (
      {'split': '80_5_15', 'dataset': 'emnist'},
      ['--split=80_5_15', '=native', '--split=90_10_per_client or own'],
    ),
    (
      {'split': '80_5_15', 'dataset': 'stl10'},
      ['--split=80_5_15', '--dataset=stl10', 'without labels'],
    ),
    ({'split': '80_5_51'}, ['--split=80_5_51', "'80_5_15'?"]),
    (
      {'emnist_only_digits': False},
      ['--emnist_only_digits=false', '--dataset=emnist'],
    ),
    ({'labelled_examples': 50}, ['--labelled_examples=50', 'grouping']),
    (
      {'dataset': 'stl10', 'noniid_r': 0.4},
      ['--noniid_r=0.4', '--dataset=stl10', '--noniid_r=0'],
    ),
    (
      {'dataset': 'stl10', 'partition': 'dirichlet'},
      ['--partition=dirichlet', '--dataset=stl10'],
    ),
    (
      {'dataset': 'stl10', 'process': 'fedavg'},
      ['--dataset=stl10', 'process fedavg', 'labels of all clients'],
    ),
    ({'mask_ratio': 0.5}, ['--mask_ratio=0.5', 'process grouping']),
    ({'mask': 'fixed'}, ['--mask=fixed', 'process grouping']),
    (
      {'process': 'fedavg', 'mask': 'fixed'},
      ['--mask=fixed', '--mask_ratio=0 hides no label'],
    ),
    (
      {'process': 'fedavg', 'mask_ratio': 0.0, 'mask': 'redrawn'},
      ['--mask=redrawn', '--mask_ratio=0 hides no label'],
    ),
    (
      {'process': 'grouping_supervised', 'mask_ratio': 0.5, 'mask': 'redrawn'},
      ['--mask=redrawn', 'process grouping_supervised', '--mask=fixed'],
    ),
    (
      {'process': 'fedavg', 'mask_ratio': 0.5, 'mask': 'fixd'},
      ['--mask=fixd', "'fixed'?"],
    ),
    ({'run_dir': ''}, ['--run_dir=', 'a folder']),
    ({'cache_dir': ''}, ['--cache_dir=', 'a folder']),
  ],
)
def test_hand_picked_refusals(given, texts):
  text = refusal(**{'process': 'grouping', **given})
  for part in texts:
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
def test_out_of_range(name, value):
  assert f'--{name}={value}' in refusal(process='grouping', **{name: value})


@pytest.mark.parametrize(
  'name, value, expected',
  [
    ('seed', 2**31, 'an integer >= 0 and <= 2147483647'),
    ('learning_rate', INF, 'a finite number > 0'),
    ('weight_decay', NAN, 'a finite number >= 0'),
  ],
)
def test_a_refusal_names_the_limit_that_a_value_breaks(name, value, expected):
  text = refusal(process='grouping', **{name: value})
  assert text == f'--{name}={value} must be {expected}.'


@pytest.mark.parametrize(
  'name, values',
  [
    ('noniid_r', (0.0, 1.0)),
    ('threshold', (0.0, 1.0)),
    ('momentum', (0.0, 0.99)),
    ('weight_decay', (0.0,)),
    ('seed', (0, 2**31 - 1)),
    ('server_warmup_rounds', (0,)),
  ],
)
def test_edges_are_inside(name, values):
  for value in values:
    made = make(process='grouping', **{name: value})
    assert getattr(made, name) == value


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
def test_foreign_flags_are_refused_and_own_ones_taken(process):
  for name, value in ALL.items():
    given = {'process': process, name: value}
    if name in FOREIGN[process]:
      text = refusal(**given)
      assert f'--{name}={value} has no effect' in text and process in text
      assert getattr(make(process=process), name) is None
    else:
      assert getattr(make(**given), name) == value


@pytest.fixture
def dealt(monkeypatch):
  """Adds a process whose labels are dealt to the clients."""
  spec = dataclasses.replace(
    PROCESSES['grouping'],
    name='dealt',
    settings=(THRESHOLD, *shared_settings.LOCAL),
    labels_at='dealt',
    has_server_training=False,
  )
  known = {**PROCESSES, 'dealt': spec}
  monkeypatch.setattr(algorithms, 'PROCESSES', known)


def test_labelled_examples_take_the_place_of_the_server_s(dealt):
  made = make(process='dealt', labelled_examples=70)
  assert made.labelled_examples == 70 and made.server_examples is None
  assert make(process='dealt').labelled_examples == 100
  text = refusal(process='dealt', server_examples=70)
  assert '--server_examples=70' in text and '--labelled_examples' in text
  text = refusal(process='dealt', dataset='emnist', server_writers='everyone')
  assert '--server_writers=everyone' in text
  assert '--labelled_examples=0' in refusal(
    process='dealt', labelled_examples=0
  )


def test_letters_flag_belongs_to_emnist():
  assert make(process='grouping', dataset='emnist').emnist_only_digits is True
  letters = make(process='grouping', dataset='emnist', emnist_only_digits=False)
  assert letters.used['emnist_only_digits'] is False
  assert 'emnist_only_digits' not in make(process='grouping').used


@pytest.mark.parametrize(
  'name',
  [
    name
    for name in FLAGS
    if name.startswith('schedule_') and name != 'schedule_decay'
  ],
)
def test_schedule_flags_need_the_cosine(name):
  assert '--schedule=cosine' in refusal(process='grouping', **{name: 2})
  made = make(process='grouping', schedule='cosine', **{name: 2})
  assert getattr(made, name) == 2


def test_folders_are_expanded_and_data_dir_comes_from_the_environment(
  monkeypatch,
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


def test_a_refusal_needs_no_tensorflow():
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM], capture_output=True, text=True, timeout=60
  )
  assert done.returncode == 0, done.stderr
  assert done.stderr.startswith('error: --process=groping is unknown')
  assert done.stderr.count('\n') == 1


def test_full_gradients_do_not_see_what_a_redrawn_mask_hides():
  given = {'process': 'scaffold', 'mask_ratio': 0.5, 'mask': 'redrawn'}
  assert make(**given).control_update == 'from_steps'
  text = refusal(**given, control_update='full_gradient')
  assert '--control_update=full_gradient' in text and '--mask=redrawn' in text


@pytest.mark.parametrize('value', ['1', '1,2.5', 'balanced'])
def test_class_weights(value):
  made = make(process='fedavg', class_weights=value)
  assert made.class_weights == value


@pytest.mark.parametrize('value', ['even', '1,0', '1,-2', '1,nan', ',', '1;2'])
def test_class_weights_that_are_none(value):
  text = refusal(process='fedavg', class_weights=value)
  assert f'--class_weights={value}' in text and 'balanced' in text
