"""The recipes of Cho et al. hold its tables (Cho et al., "Local or Global")."""

import pytest

from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES

# As printed, in percent: EMNIST, CIFAR10, CIFAR100, OrganAMNIST, BloodMNIST.
TABLE_2 = """
fedavg_100        78.36  44.67  24.67  71.09  70.53
fedprox_100       78.60  44.72  24.87  73.34  74.53
fedavg            63.05  28.83  11.33  41.90  53.18
fedprox           63.31  31.09  11.37  48.28  56.53
fedavg_uda        68.98  31.32  10.80  55.14  53.18
fedavg_fixmatch   67.98  23.99  10.16  52.76  47.92
fedprox_uda       71.93  31.99  10.57  54.15  59.48
fedprox_fixmatch  70.56  22.38  10.02  55.49  50.88
fedtrinet         60.31  29.56  10.53  50.82  59.38
fedmatch          63.48  31.94  10.86  48.99  58.89
fedlabel          79.33  46.05  18.42  69.43  71.46
"""
# alpha = 1: CIFAR10, OrganAMNIST.
FIGURE_7 = """
fedavg_100        57.17  81.49
fedprox_100       57.45  82.07
fedavg            40.11  59.74
fedprox           41.45  61.86
fedavg_uda        42.07  63.05
fedavg_fixmatch   38.51  70.14
fedprox_uda       42.08  65.12
fedprox_fixmatch  42.94  70.58
fedtrinet         42.67  74.16
fedmatch          44.23  72.57
fedlabel          48.89  79.76
"""
# 20% and 50% of the labels, CIFAR10.
FIGURE_2 = """
local   32.57  41.21
global  37.51  38.43
both    44.51  50.53
"""
# Seconds of FedTriNet, FedMatch and FedLabel.
TABLE_3 = {'fedtrinet': 7.81, 'fedmatch': 11.24, 'fedlabel': 3.76}
DATASETS = ('emnist', 'cifar10', 'cifar100', 'organamnist', 'bloodmnist')
# Section 5.1: clients, and how many of them take part.
CLIENTS = {
  **dict.fromkeys(DATASETS[:3], ('100', '10')),
  'emnist_balanced': ('100', '10'),
  'organamnist': ('10', '3'),
  'bloodmnist': ('5', '5'),
}
# Section 5.1; FedTriNet takes their encoders.
MODELS = {
  **dict.fromkeys(DATASETS, 'resnet18'),
  'cifar10': 'resnet34',
  'cifar100': 'resnet50',
  'emnist_balanced': 'small_cnn',
}
PICTURES = ('1', '5', '6', '8', '9', '10', '11', '12')
OWN = 'fedlabel_emnist47'
OWN_SCARCE = 'fedlabel_emnist47_2percent'
OWN_LONG = 'fedlabel_300rounds'
TABLES = [name for name in recipes.tables() if name.startswith('fedlabel')]
OWN_RUNS = [
  recipe
  for table in TABLES
  for recipe in recipes.load(table).values()
  if recipe.same_as is None
]


def figures(text, columns):
  """Returns the figures of a table by the names of our rows."""
  lines = [line.split() for line in text.strip().splitlines()]
  return {
    f'{column}_{system}': round(float(cell) / 100, 4)
    for system, *cells in lines
    for column, cell in zip(columns, cells, strict=True)
  }


def published(table):
  return {row: r.published for row, r in recipes.load(table).items()}


def texts(recipe):
  """Returns the flags of a row as written."""
  return dict(part[2:].split('=') for part in recipe.flags_text.split())


def changed(recipe, other):
  """Returns the flags in which a row is not another one."""
  here, there = texts(recipe), texts(other)
  return {
    name: here.get(name)
    for name in here.keys() | there.keys()
    if here.get(name) != there.get(name)
  }


def test_there_is_a_table_for_each_in_the_paper():
  assert set(TABLES) == {
    *('fedlabel_table2', 'fedlabel_figure2', 'fedlabel_figure7'),
    'fedlabel_table3',
    *(f'fedlabel_figure{number}' for number in PICTURES),
    *(OWN, OWN_SCARCE, OWN_LONG),
  }


@pytest.mark.parametrize(
  'table, text, columns',
  [
    ('fedlabel_table2', TABLE_2, DATASETS),
    ('fedlabel_figure7', FIGURE_7, ('cifar10', 'organamnist')),
    ('fedlabel_figure2', FIGURE_2, ('cifar10_20percent', 'cifar10_50percent')),
  ],
)
def test_figures_in_print(table, text, columns):
  assert published(table) == figures(text, columns)


def test_costs_in_print():
  rows = recipes.load('fedlabel_table3')
  assert {
    row: r.published for row, r in rows.items() if r.published is not None
  } == {f'{system}_seconds': x for system, x in TABLE_3.items()}
  measured = {'seconds': 'seconds', 'forward': 'forward_passes'}
  for row, recipe in rows.items():
    system, _, what = row.partition('_')
    what = measured.get(what, 'backward_passes')
    assert str(recipe.measure) == f'{what}_per_client'
    assert recipe.run_name == f'fedlabel_table2:cifar10_{system}'


def test_figure_1_varies_the_share_of_labels():
  for row, recipe in recipes.load('fedlabel_figure1').items():
    flags = texts(recipe)
    dataset, system, share = row.split('_')
    assert (flags['dataset'], flags['process']) == (dataset, system)
    fraction = int(share.removesuffix('percent')) / 100
    assert float(flags['labelled_fraction']) == fraction


def test_pictures_and_own_tables_have_no_published_figure():
  own = (OWN, OWN_SCARCE, OWN_LONG)
  for table in (*(f'fedlabel_figure{n}' for n in PICTURES), *own):
    assert table.startswith('fedlabel_')
    assert set(published(table).values()) == {None}


@pytest.mark.parametrize('recipe', OWN_RUNS, ids=lambda recipe: recipe.name)
def test_rows_have_the_setting_of_section_5_1(recipe):
  flags = texts(recipe)
  dataset = flags['dataset']
  assert (flags['num_clients'], flags['clients_per_round']) == CLIENTS[dataset]
  assert (flags['partition'], flags['split']) == ('dirichlet', '80_5_15')
  model = MODELS[dataset]
  if flags['process'] == 'fedtrinet':
    model = {'small_cnn': 'cnn_encoder'}.get(model, f'{model}_encoder')
  assert flags['model'] == model
  is_low = recipe.table == 'fedlabel_figure7'
  assert flags['dirichlet_alpha'] == ('1.0' if is_low else '0.1')
  fraction = 0.05 if dataset in DATASETS[3:] else 0.2
  if recipe.row.endswith('_100'):
    fraction = 1
  elif recipe.table in ('fedlabel_figure5', 'fedlabel_figure12'):
    fraction = {'cifar10': 0.5, 'organamnist': 0.2}[dataset]
  elif '50percent' in recipe.row:
    fraction = 0.5
  elif recipe.table == OWN_SCARCE or recipe.row.startswith('p2_'):
    fraction = 0.02
  assert float(flags['labelled_fraction']) == fraction
  assert recipe.seeds == (0, 1, 2) or recipe.table == OWN


@pytest.mark.parametrize(
  'recipe',
  [r for r in OWN_RUNS if r.table != 'fedlabel_figure8'],
  ids=lambda recipe: recipe.name,
)
def test_all_systems_take_as_many_gradient_steps(recipe):
  flags = {name: int(v) for name, v in texts(recipe).items() if v.isdigit()}
  if recipe.table == 'fedlabel_figure12':
    assert flags['unlabelled_steps'] == 16
    return
  # FedTriNet and FedMatch train twice in a round, with as many steps each.
  is_double = texts(recipe)['process'] in ('fedtrinet', 'fedmatch')
  trainings = 2 if is_double else 1
  wanted = {'fedavg_16steps': 16, 'fedlabel_32steps': 64}.get(recipe.row, 32)
  steps = trainings * flags.get('local_steps', 0)
  steps += flags.get('labelled_steps', 0) + flags.get('unlabelled_steps', 0)
  assert (steps, flags['batch_size']) == (wanted, 64)
  assert flags.get('labelled_batch_size', 64) == 64


def test_a_shortened_fedtrinet_lowers_its_threshold_in_fewer_rounds():
  rows = [r for r in OWN_RUNS if texts(r)['process'] == 'fedtrinet']
  assert len(rows) == 5 + 2 + 2 + 1
  for recipe in rows:
    assert recipe.flags()['threshold_rounds'] == 35
    assert recipe.flags(scale=0.2)['threshold_rounds'] == 7


def test_fedmatch_steps_as_far_on_labels_as_the_other_systems():
  rows = [r for r in OWN_RUNS if texts(r)['process'] == 'fedmatch']
  assert len(rows) == 5 + 2 + 2 + 1
  weight = PROCESSES['fedmatch'].default_of('supervised_weight')
  for recipe in rows:
    table = recipes.load(recipe.table)
    fedavg = table[recipe.row.replace('fedmatch', 'fedavg')]
    rate, other = (float(texts(r)['learning_rate']) for r in (recipe, fedavg))
    assert rate * weight == pytest.approx(other)


@pytest.mark.parametrize(
  'table, flag, values, rows',
  [
    ('figure6', 'consistency_weight', {'0.0', '5.0'}, 4 * 6),
    ('figure8', 'labelled_steps', {'5', '80'}, 2 * 6),
    ('figure12', 'labelled_steps', {'5', '80'}, 2 * 6),
    ('figure10', 'threshold', {'0.1', '0.3', '0.9'}, 4 * 5),
    ('figure11', 'confidence', {'entropy'}, 4 * 2),
  ],
)
def test_ablations_differ_from_the_table_in_one_thing(
  table, flag, values, rows
):
  known = recipes.load(f'fedlabel_{table}')
  assert len(known) == rows
  base = recipes.load(
    'fedlabel_figure5' if table == 'figure12' else 'fedlabel_table2'
  )
  seen = set()
  for recipe in known.values():
    reference = base[f'{recipe.row.partition("_")[0]}_fedlabel']
    if recipe.same_as is not None:
      assert recipe.same_as == reference.name
      assert recipe.row.endswith(texts(reference)[flag])
      continue
    other = changed(recipe, reference)
    seen.add(other.pop(flag))
    # Without its weight, the consistency has nothing else to choose.
    without = {'consistency_view': None, 'kl_direction': None}
    is_off = flag == 'consistency_weight' and recipe.row.endswith('0.0')
    assert other == (without if is_off else {})
  assert values <= seen


def test_figure_9_is_with_and_without_strong_augmentation():
  rows = recipes.load('fedlabel_figure9')
  assert len(rows) == 2 * 5
  for row, recipe in rows.items():
    if 'weak' in row:
      strong = rows[row.replace('weak', 'strong')]
      assert changed(recipe, strong) == {'augmentation': 'weak'}
      assert float(texts(recipe)['threshold']) == float(
        row.partition('beta')[2]
      )


def test_own_evidence_has_three_seeds_for_what_is_claimed():
  rows = recipes.load(OWN)
  three = {row for row, recipe in rows.items() if recipe.seeds == (0, 1, 2)}
  assert three == {
    *('fedlabel', 'fedavg', 'fedavg_100', 'fedavg_uda', 'fedprox_uda'),
    *('fedavg_fixmatch', 'fedprox_fixmatch'),
    *('fedlabel_truth', 'fedlabel_truth_mean'),
  }
  assert all(rows[row].seeds == (0,) for row in rows.keys() - three)
  # With alpha = .1 the last round's accuracy swings more than seeds differ.
  assert {str(r.measure) for r in rows.values()} == {'mean_of_last@5'}
  fedlabel = rows['fedlabel']
  off = dict.fromkeys(('consistency_view', 'kl_direction'))
  alone = {**off, 'consistency_weight': None, 'confidence': None}
  assert changed(rows['fedlabel_lambda0'], fedlabel) == {
    **off,
    'consistency_weight': '0.0',
  }
  assert changed(rows['fedlabel_mean'], fedlabel) == {
    'server_learning_rate': '0.5'
  }
  for expert in ('local', 'global'):
    assert changed(rows[f'fedlabel_{expert}'], fedlabel) == {
      **alone,
      'experts': expert,
    }
  assert changed(rows['fedlabel_truth'], fedlabel) == {
    **alone,
    **dict.fromkeys(('threshold', 'expert_view')),
    'experts': 'truth',
  }
  assert changed(rows['fedlabel_truth_mean'], rows['fedlabel_truth']) == {
    'server_learning_rate': '0.5'
  }
  assert changed(rows['fedavg_16steps'], rows['fedavg']) == {
    'local_steps': texts(fedlabel)['labelled_steps']
  }
  assert changed(rows['fedlabel_32steps'], fedlabel) == dict.fromkeys(
    ('labelled_steps', 'unlabelled_steps'), texts(rows['fedavg'])['local_steps']
  )
  with_momentum = {row for row in rows if row.endswith('_momentum')}
  assert len(with_momentum) == 3
  for row, recipe in rows.items():
    if row in with_momentum:
      assert changed(recipe, rows[row.removesuffix('_momentum')]) == {
        'learning_rate': '0.03',
        'momentum': '0.9',
        'nesterov': 'true',
        'weight_decay': '0.0001',
      }
    else:
      flags = texts(recipe)
      # Eqs. 1 and 9.
      assert (flags['momentum'], flags['weight_decay']) == ('0.0', '0.0')


def test_scarce_labels_are_all_that_is_changed():
  known = recipes.load(OWN)
  rows = recipes.load(OWN_SCARCE)
  assert len(rows) == 8
  for row, recipe in rows.items():
    assert recipe.measure == known[row].measure
    assert recipe.seeds == (0, 1, 2)
    assert changed(recipe, known[row]) == {'labelled_fraction': '0.02'}


def test_long_training_is_all_that_is_changed():
  known = recipes.load(OWN)
  rows = recipes.load(OWN_LONG)
  longer = {'total_rounds': '300', 'rounds_per_evaluation': '10'}
  scarcer = {**longer, 'labelled_fraction': '0.02'}
  systems = {'fedavg', 'fedavg_uda', 'fedlabel', 'fedlabel_local'}
  assert rows.keys() == {
    'fedavg_100',
    *(f'{share}_{row}' for share in ('p20', 'p2') for row in systems),
  }
  for row, recipe in rows.items():
    other = known[row.removeprefix('p20_').removeprefix('p2_')]
    assert recipe.measure == other.measure
    assert recipe.seeds == (0, 1, 2)
    is_scarce = row.startswith('p2_')
    assert changed(recipe, other) == (scarcer if is_scarce else longer)
