"""Recipes are complete, can be run, and hold the papers' figures."""

import pytest

from experiments import run
from experiments.config import flags, settings
from experiments.tables import recipes

ALL = [
  recipe
  for table in recipes.tables()
  for recipe in recipes.load(table).values()
]
HEADER = 'row,flags,published,source,seeds,note'
MEASURED = 'row,flags,published,measure,source,seeds,note'
ROW = (
  '--process=grouping --dataset=digits --total_rounds=200 '
  '--server_warmup_rounds=3 --rounds_per_evaluation=50'
)

# By hand from the paper, in percent (Zhang et al. 2021, arXiv 2008.11364).
PUBLISHED = {
  'ssfl_table2': {
    'c10_fedavg': 83.07,
    'c30_fedavg': 79.05,
    'c47_fedavg': 65.48,
    'c10_s2': 84.43,
    'c30_s3': 83.12,
    'c47_s5': 82.95,
  },
  'ssfl_table_j1': {
    'c10_fedavg': 83.69,
    'c10_s2': 83.94,
    'c20_fedavg': 82.36,
    'c20_s2': 83.66,
    'c30_fedavg': 79.41,
    'c30_s2': 81.31,
  },
  'ssfl_table_h1': {'r0.4_s5': 81.88, 'r0.6_s5': 81.40},
  'ssfl_figure5': {
    'cifar10_r0.0': 93.42,
    'cifar10_r1.0': 81.7,
    'svhn_r0.0': 95.32,
    'svhn_r1.0': 92.49,
    'emnist_r0.0': 84.43,
    'emnist_r1.0': 82.69,
  },
  'ssfl_table_f1': {
    'k47_fedavg': 84.71,
    'k47_s5': 84.97,
    'k20_fedavg': 86.14,
    'k20_s2': 86.27,
    'k10_fedavg': 86.19,
    'k10_s2': 86.29,
  },
  'ssfl_table1': {
    'cifar10_k10_c10': 92.86,
    'cifar10_k20_c20': 92.93,
    'cifar10_k30_c30': 92.12,
    'cifar10_k20_c10': 93.19,
    'cifar10_k30_c10': 92.84,
    'svhn_k10_c10': 95.49,
    'svhn_k20_c20': 94.99,
    'svhn_k30_c30': 78.77,
    'svhn_k20_c10': 95.43,
    'svhn_k30_c10': 93.56,
    'svhn_k30_c30_e120': 94.93,
  },
  'ssfl_table3': {
    'client_iid_fedmatch': 53.51,
    'client_iid_grouping': 71.61,
    'client_noniid_fedmatch': 54.26,
    'client_noniid_grouping': 69.05,
    'server_iid_fedmatch': 46.81,
    'server_iid_grouping': 63.32,
    'server_noniid_fedmatch': 47.11,
    'server_noniid_grouping': 63.24,
  },
  'ssfl_table4': {
    'supervised_fedavg': 78.52,
    'data_sharing_b25': 81.82,
    'grouping': 92.96,
  },
  'ssfl_table5': {
    't2_easgd': 91.12,
    't8_easgd': 88.88,
    't2_overlap_sgd': 91.63,
    't8_overlap_sgd': 91.45,
    't2_grouping': 94.22,
    't8_grouping': 93.58,
    't32_grouping': 91.92,
  },
  'ssfl_table_e1': {
    'cifar10_c3': 82.48,
    'cifar10_c6': 92.08,
    'cifar10_c10': 92.84,
    'cifar10_c30': 92.12,
    'svhn_c3': 92.83,
    'svhn_c6': 93.42,
    'svhn_c10': 93.56,
    'svhn_c30': 78.77,
  },
  'ssfl_table_g1': {
    'cifar10_fixmatch': 95.74,
    'svhn_fixmatch': 97.72,
    'emnist_fixmatch': 83.70,
    'cifar10_grouping': 92.86,
    'cifar10_grouping_as_table1': 92.86,
    'svhn_grouping': 95.49,
    'svhn_grouping_as_table1': 95.49,
    'emnist_grouping': 81.63,
  },
  'ssfl_table_i1': {
    'self_training': 74.25,
    'crl_bn': 78.96,
    'crl_gn': 81.71,
    'grouping': 82.81,
  },
  # Curves only.
  'ssfl_figure2': {},
  'ssfl_figure3': {},
  'ssfl_figure4': {},
  'ssfl_figure6': {},
  'ssfl_figure_b1': {},
  'ssfl_figure_c1': {},
  'ssfl_figure_d': {},
  'balanced_small_cnn': {},
  'balanced_table4': {},
  'balanced_table5': {},
  'cifar10_table3': {},
  'gain_balanced': {},
  'gain_resnet9': {},
  'gain_writers': {},
  'method_costs': {},
  'native_writers': {},
  'native_writers_paper_steps': {},
  'robustness': {},
}
# Their figures are in test_label_hungry_recipes.
LABEL_HUNGRY = {
  'label_hungry_chart2',
  'label_hungry_chart3',
  'label_hungry_chart4',
  'label_hungry_controls',
  'label_hungry_tuned',
}
# Theirs are in test_fedlabel_recipes.
FEDUL = {
  f'fedul_{table}'
  for table in (
    *('table1', 'table2', 'd8', 'e9', 'e10', 'e11', 'e12', 'e13'),
    *('small_cnn', 'small_cnn_code', 'converged'),
  )
}
FEDLABEL = {name for name in recipes.tables() if name.startswith('fedlabel_')}
# Table A.1: epochs of 65,536 / 64 = 1,024 steps, base rate, warm-up epochs.
TABLE_A1 = {
  'emnist_balanced': (100, 0.03, 0),
  'cifar10': (300, 0.146, 5),
  'svhn': (40, 0.146, 5),
  # No row of Table A.1: that of CIFAR-10.
  'stl10': (300, 0.146, 5),
}
# Methods of others in these tables, which have settings of their own.
OF_OTHERS = ('easgd', 'overlap_sgd', 'fedmatch', 'fedmatch_server', 'fixmatch')
SSFL = [recipe for recipe in ALL if recipe.table.startswith('ssfl')]


@pytest.fixture
def table(tmp_path):
  """Writes a table of one's own and returns its path."""

  def write(*lines, header=HEADER, name='own.csv'):
    path = tmp_path / name
    path.write_text('\n'.join([header, *lines]) + '\n')
    return str(path)

  return write


@pytest.mark.parametrize('recipe', ALL, ids=lambda recipe: recipe.name)
def test_every_row_can_be_run(recipe):
  from tff_ssl import models

  made = recipes.make({'recipe': recipe.name})
  assert made.model in {**models.MODELS, **models.ENCODERS}
  assert recipes.changes(made) == {}
  assert made.total_rounds / made.rounds_per_evaluation >= 10
  assert recipe.seeds and (recipe.published is None or recipe.source)
  tenth = recipes.make({'recipe': recipe.name, 'recipe_scale': 0.1})
  assert tenth.total_rounds == pytest.approx(made.total_rounds / 10, abs=0.5)
  assert tenth.rounds_per_evaluation <= max(1, tenth.total_rounds // 10)


@pytest.mark.parametrize(
  'row, given, gone',
  [
    ('ssfl_table2:c47_s5', {'process': 'fedavg_ssfl'}, 'num_groups'),
    ('ssfl_table2:c47_s5', {'process': 'server_only'}, 'local_steps'),
    ('ssfl_table2:c47_s5', {'schedule': 'constant'}, 'schedule_steps'),
    ('ssfl_figure2:r0_crl_bn', {'norm': 'group'}, 'bn_statistics'),
  ],
)
def test_flags_that_an_override_makes_useless_are_left_out(row, given, gone):
  made = recipes.make({'recipe': row, **given})
  assert getattr(made, gone) is None
  assert {*given, gone} <= set(recipes.changes(made))


def test_gradient_diversity_of_participants_beside_a_recipe():
  """What is measured is no part of a recipe."""
  row = 'balanced_small_cnn:c10_s2'
  assert recipes.make({'recipe': row}).gradient_diversity_clients == 10
  of_participants = {'gradient_diversity_of': 'participants'}
  made = recipes.make({'recipe': row, **of_participants})
  assert made.gradient_diversity_clients is None
  assert made.rounds_per_gradient_diversity == 50
  assert recipes.changes(made) == {}


def test_other_rounds_are_another_run():
  made = recipes.make({'recipe': 'ssfl_table2:c47_s5', 'total_rounds': 7})
  assert recipes.changes(made) == {'total_rounds': (6400, 7)}


def test_published_figures_are_those_of_the_paper():
  assert set(recipes.tables()) == {
    *PUBLISHED,
    *LABEL_HUNGRY,
    *FEDLABEL,
    *FEDUL,
  }
  for name, figures in PUBLISHED.items():
    printed = {
      recipe.row: recipe.published
      for recipe in recipes.load(name).values()
      if recipe.published is not None and not recipe.row.endswith('_as_coded')
    }
    assert printed == {row: round(x / 100, 4) for row, x in figures.items()}


def texts(recipe):
  """Returns the flags of a row as written."""
  return dict(part[2:].split('=') for part in recipe.flags_text.split())


def by_others(recipe):
  return texts(recipe)['process'] in OF_OTHERS


@pytest.mark.parametrize('table', ['ssfl_table2', 'ssfl_figure6'])
def test_rows_as_coded_have_the_figure_of_their_table(table):
  rows = recipes.load(table)
  coded = [row for row in rows if row.endswith('_as_coded')]
  assert len(coded) == 6
  for row in coded:
    plain = rows[row.removesuffix('_as_coded')]
    assert rows[row].published == plain.published
    assert rows[row].flags_text.startswith(plain.flags_text)


@pytest.mark.parametrize(
  'recipe',
  [r for r in SSFL if not by_others(r)],
  ids=lambda recipe: recipe.name,
)
def test_rows_have_the_settings_of_table_a1(recipe):
  flags = texts(recipe)
  epochs, rate, warmup = TABLE_A1[flags['dataset']]
  if recipe.run_name.endswith('_e120'):
    epochs = 120
  steps = int(flags['local_steps'])
  assert int(flags['total_rounds']) * steps == epochs * 1024
  assert int(flags['schedule_warmup_steps']) == warmup * 1024
  assert float(flags['learning_rate']) == rate
  assert (flags['batch_size'], flags['momentum']) == ('64', '0.9')
  assert flags['weight_decay'] == '0.0001'
  assert flags.get('server_steps', flags['local_steps']) == str(steps)
  is_large = flags['dataset'] in ('cifar10', 'stl10')
  assert int(flags['schedule_steps']) == 1024 * (1024 if is_large else epochs)


def test_methods_of_others_have_their_own_settings():
  rows = {
    r.name: recipes.make({'recipe': r.name}) for r in SSFL if by_others(r)
  }
  assert len(rows) == 4 + 4 + 3
  for made in rows.values():
    examples = made.total_rounds * made.local_steps * made.batch_size
    if made.process in ('easgd', 'overlap_sgd'):
      assert examples == 300 * 65536
      assert (made.num_clients, made.clients_per_round) == (16, 16)
      assert (made.momentum, made.weight_decay) == (0.9, 1e-4)
      is_easgd = made.process == 'easgd'
      assert (made.learning_rate, made.batch_size) == (
        (0.146, 64) if is_easgd else (0.1, 128)
      )
    elif made.process == 'fixmatch':
      assert examples == 2**20 * 64
      assert made.schedule_steps == 2**20
      assert made.ema_decay == pytest.approx(0.999**made.local_steps, abs=1e-6)
      assert (made.learning_rate, made.weight_decay) == (0.03, 5e-4)
      assert made.unlabelled_ratio == 7
      # FixMatch mirrors all images but house numbers.
      assert made.augment_flip == (made.dataset != 'svhn')
    else:
      assert (made.learning_rate, made.momentum) == (0.001, 0)
      assert (made.total_rounds, made.local_steps) == (200, 100)
      at_server = made.process == 'fedmatch_server'
      assert made.server_examples == (5000 if at_server else None)
      # 5,000 of 50,000.
      assert made.mask_ratio == (None if at_server else 0.9)


# Table A.2: R, T, N_s, C, K and S of rows whose figure is in print.
TABLE_A2 = {
  'ssfl_table1': {
    f'{dataset}_k{k}_c{c}': (0.4, 16, 1000, c, k, 2)
    for dataset in ('cifar10', 'svhn')
    for k, c in ((10, 10), (20, 20), (30, 30), (20, 10), (30, 10))
  },
  'ssfl_table3': {
    'client_iid_grouping': (0, 100, 5000, 5, 100, 2),
    'client_noniid_grouping': (1, 100, 5000, 5, 100, 2),
    'client_iid_fedmatch': (0, 100, None, 5, 100, None),
    'client_noniid_fedmatch': (1, 100, None, 5, 100, None),
    'server_iid_grouping': (0, 100, 5000, 5, 100, 2),
    'server_noniid_grouping': (1, 100, 5000, 5, 100, 2),
    'server_iid_fedmatch': (0, 100, 5000, 5, 100, None),
    'server_noniid_fedmatch': (1, 100, 5000, 5, 100, None),
  },
  'ssfl_table4': {
    'supervised_fedavg': (0.29, 32, None, 10, 10, None),
    # Before the shared examples bring it down.
    'data_sharing_b25': (1.0, 32, None, 10, 10, None),
    'data_sharing_b5': (1.0, 32, None, 10, 10, None),
    'fedavg': (0.4, 32, 1000, 10, 10, None),
    'grouping': (0.4, 32, 1000, 10, 10, 2),
  },
  'ssfl_table5': {
    **{
      f't{t}_{method}': (0.4, t, None, 16, 16, None)
      for t in (2, 8)
      for method in ('easgd', 'overlap_sgd')
    },
    **{f't{t}_fedavg': (0.4, t, 1000, 16, 16, None) for t in (2, 8, 32)},
    **{f't{t}_grouping': (0.4, t, 1000, 16, 16, 2) for t in (2, 8, 32)},
  },
  'ssfl_table_e1': {
    f'{dataset}_c{c}': (0.4, 16, 1000, c, 30, 2)
    for dataset in ('cifar10', 'svhn')
    for c in (3, 6, 10, 30)
  },
  'ssfl_table_g1': {
    'cifar10_grouping': (0.4, 16, 4000, 10, 10, 2),
    'svhn_grouping': (0.4, 16, 1000, 20, 20, 2),
    'emnist_grouping': (0.4, 16, 4700, 47, 47, 5),
  },
  'ssfl_table_i1': {
    'self_training': (0, 16, 1000, 2, 10, None),
    'crl_bn': (0, 16, 1000, 2, 10, None),
    'crl_gn': (0, 16, 1000, 2, 10, None),
    'grouping': (0, 16, 1000, 2, 10, 2),
  },
}


@pytest.mark.parametrize('table', TABLE_A2)
def test_rows_have_the_settings_of_table_a2(table):
  others = {
    'ssfl_table1': {'svhn_k30_c30_e120'},
    'ssfl_table_g1': {
      *('cifar10_grouping_as_table1', 'svhn_grouping_as_table1'),
      *('cifar10_fixmatch', 'svhn_fixmatch', 'emnist_fixmatch'),
    },
  }
  rows = recipes.load(table)
  assert set(rows) == {*TABLE_A2[table], *others.get(table, ())}
  for row, wanted in TABLE_A2[table].items():
    made = recipes.make({'recipe': f'{table}:{row}'})
    assert (
      made.noniid_r,
      made.local_steps,
      made.server_examples or made.labelled_examples,
      made.clients_per_round,
      made.num_clients,
      made.num_groups,
    ) == wanted


@pytest.mark.parametrize('table', ['ssfl_figure3', 'ssfl_figure4'])
def test_figures_3_and_4_are_figure_2_with_gradient_diversity(table):
  start = {'ssfl_figure3': 'r0', 'ssfl_figure4': 'r0.4'}[table]
  rows = recipes.load(table)
  assert len(rows) == 5
  for row, recipe in rows.items():
    measured = recipe.flags()
    assert measured.pop('gradient_diversity_clients') == 10
    assert measured.pop('rounds_per_gradient_diversity') == 64
    assert measured == recipes.find(f'ssfl_figure2:{start}_{row}').flags()


def test_figure_6_is_table_2_with_gradient_diversity():
  rows = recipes.load('ssfl_figure6')
  plain = recipes.load('ssfl_table2')
  assert set(rows) == {row for row in plain if '_control_' not in row}
  for row, recipe in rows.items():
    measured = recipe.flags()
    clients = measured.pop('gradient_diversity_clients')
    assert clients == measured['clients_per_round']
    assert measured.pop('rounds_per_gradient_diversity') == 64
    assert measured == plain[row].flags()
  read = recipes.load('ssfl_figure_d')
  assert {r.run_name for r in read.values()} == {r.name for r in rows.values()}


def test_native_writers_are_six_systems_at_four_sizes():
  rows = recipes.load('native_writers')
  assert len(rows) == 24
  assert {recipe.seeds for recipe in rows.values()} == {(0, 1, 2)}
  for size in (50, 100, 200, 1000):
    weights = {
      name: recipes.make({'recipe': f'native_writers:ns{size}_{name}'})
      for name in ('fedavg_ssfl', 'control_s2', 'control_s5', 'grouping_s5')
    }
    assert [made.server_weight for made in weights.values()] == [1, 2, 5, 1]
    assert {made.server_examples for made in weights.values()} == {size}
    assert {made.server_warmup_rounds for made in weights.values()} == {10}


def test_flags_beside_a_recipe_win_and_are_told():
  given = {'recipe': 'native_writers:ns50_grouping_s2', 'seed': 4}
  made = recipes.make(given)
  assert (made.num_groups, made.seed) == (2, 4)
  assert made.run_dir == 'runs/native_writers/ns50_grouping_s2_seed4'
  assert recipes.changes(recipes.make(given | {'run_dir': 'x'})) == {}
  other = recipes.make(given | {'num_groups': 3, 'local_steps': 2})
  assert recipes.changes(other) == {
    'num_groups': (2, 3),
    'local_epochs': (1, None),
    'local_steps': (None, 2),
  }
  facts = recipes.facts(other)
  assert facts['recipe_changes'] == [
    'local_epochs',
    'local_steps',
    'num_groups',
  ]
  assert facts['recipe_rounds'] == 200
  plain = settings.make({'process': 'fedavg', 'dataset': 'digits'})
  assert recipes.facts(plain) == recipes.changes(plain) == {}


def test_the_runner_says_what_is_no_longer_the_recipe(tmp_path, capsys):
  argv = [
    *('run', '--recipe=ssfl_table2:c10_s2', '--data_dir=/nowhere'),
    *(f'--cache_dir={tmp_path / "cache"}', f'--run_dir={tmp_path / "run"}'),
  ]
  assert run.main([*argv, '--learning_rate=0.5', '--total_rounds=9']) == 2
  assert capsys.readouterr().out == (
    'No longer the recipe ssfl_table2:c10_s2: learning_rate 0.03 -> 0.5, '
    'server_learning_rate 0.03 -> 0.5, total_rounds 6400 -> 9.\n'
  )
  assert run.main(argv) == 2
  assert capsys.readouterr().out == ''


def test_scale_shortens_rounds_schedule_and_warmup(table):
  path = table(f'a,{ROW} --schedule=cosine --schedule_scale=2,,,0,')
  made = recipes.make({'recipe': f'{path}:a', 'recipe_scale': 0.25, 'seed': 1})
  assert (made.total_rounds, made.schedule_scale) == (50, 0.5)
  assert made.server_warmup_rounds == 1
  assert made.rounds_per_evaluation == 5
  assert made.run_dir == 'runs/own/a_scale0.25_seed1'
  assert recipes.changes(made) == {}
  made = recipes.make({'recipe': f'{path}:a'})
  assert (made.total_rounds, made.schedule_scale) == (200, 2)
  assert (made.server_warmup_rounds, made.rounds_per_evaluation) == (3, 50)
  # The same scale of the clock alone is a change.
  made = recipes.make({'recipe': f'{path}:a', 'schedule_scale': 0.5})
  assert recipes.changes(made) == {'schedule_scale': (2.0, 0.5)}


@pytest.mark.parametrize(
  'given, message',
  [
    ({'recipe': 'ssfl_tabel2:c10_s2'}, "Did you mean 'ssfl_table2'"),
    ({'recipe': 'ssfl_table2:c10_s22'}, "Did you mean 'ssfl_table2:c10_s2'"),
    ({'recipe': 'ssfl_table2'}, 'must be TABLE:ROW'),
    ({'recipe': '/nowhere.csv:a'}, '/nowhere.csv cannot be read'),
    ({'recipe_scale': 0.5}, 'only --recipe uses it'),
    (
      {'recipe': 'ssfl_table2:c10_s2', 'clients_per_round': 1},
      'flags of --recipe=ssfl_table2:c10_s2 count as given',
    ),
    *(
      ({'recipe': 'ssfl_table2:c10_s2', 'recipe_scale': x}, 'above 0')
      for x in (0.0, -1.0, 1.1, float('nan'))
    ),
  ],
)
def test_refusals(given, message):
  with pytest.raises(flags.UsageError, match=message) as caught:
    recipes.make(given)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'lines, message',
  [
    ((f'a,{ROW},1.2,,0,',), "published='1.2' .* in \\[0, 1\\]"),
    ((f'a,{ROW},nan,,0,',), "published='nan'"),
    ((f'a/b,{ROW},,,0,',), "'a/b' .* cannot name a folder"),
    ((f'a,{ROW},,,"0,0",',), '--seeds=0,0'),
    ((f'a,{ROW},,,,',), '--seeds= '),
    ((f'a,{ROW},,,0,', f'a,{ROW},,,0,'), "two rows 'a'"),
    ((f'a,{ROW},,,0',), 'not 6 cells'),
    ((f'a,{ROW},,,0,,more',), 'not 6 cells'),
    ((f'a,{ROW} --seed=1,,,0,',), 'none of .*seed'),
    (('a,--process=grouping --dataset=digits,,,0,',), '--total_rounds'),
    ((f'a,{ROW} --tau=1,,,0,',), 'own.csv:a cannot be read: --tau is no flag'),
    ((f"a,{ROW} --model='x,,,0,",), 'own.csv:a cannot be read: No closing'),
  ],
)
def test_refused_tables(table, lines, message):
  path = table(*lines)
  with pytest.raises(flags.UsageError, match=message):
    recipes.make({'recipe': f'{path}:a'})


def test_an_empty_table_has_no_columns(tmp_path):
  path = tmp_path / 'empty.csv'
  path.touch()
  with pytest.raises(flags.UsageError, match=r'has the columns \[\]: give row'):
    recipes.load(str(path))


@pytest.mark.parametrize('header', ['row,flags', f'{HEADER},measure'])
def test_table_with_other_columns(table, header):
  with pytest.raises(flags.UsageError, match='has the columns'):
    recipes.load(table('a,b', header=header))


COMMON = f'common,{ROW} --learning_rate=0.1,,,,'


def test_a_row_takes_the_common_flags(table):
  path = table(
    COMMON,
    'a,,0.5,T,"0,1",n',
    'b,--learning_rate=0.2 --momentum=0.5,,,0,',
    'c,--learning_rate= --rounds_per_evaluation=,,,0,',
    'd,same_as=own.csv:a,,,,',
  )
  rows = recipes.load(path)
  assert list(rows) == ['a', 'b', 'c', 'd']
  alone = recipes.load(table(f'a,{ROW},,,0,', name='alone.csv'))['a'].flags()
  common = {**alone, 'learning_rate': 0.1}
  assert rows['a'].flags() == rows['d'].flags() == common
  assert (rows['a'].published, rows['a'].seeds) == (0.5, (0, 1))
  assert rows['b'].flags() == {**common, 'learning_rate': 0.2, 'momentum': 0.5}
  del alone['rounds_per_evaluation']
  assert rows['c'].flags() == alone


def test_a_row_overrides_a_common_flag_however_it_is_written(table):
  path = table(
    'common,--process=fedavg --augment_flip=true --views=plain,,,,',
    "a,--dataset='digits' --noaugment_flip --views auto --total_rounds=20,,,0,",
  )
  given = recipes.load(path)['a'].flags()
  assert (given['augment_flip'], given['views']) == (False, 'auto')
  assert given['dataset'] == 'digits'


@pytest.mark.parametrize(
  'lines, message',
  [
    ((f'a,{ROW},,,0,', COMMON), "'common' of .*own.csv must be the first"),
    ((COMMON, COMMON), "'common' of .*own.csv must be the first"),
    ((f'common,{ROW},0.5,,0,',), "'common' .* has published, seeds: .* name"),
    (('common,--momentum,,,,',), "common: '--momentum' must be --NAME=VALUE"),
    (('common,--momentum=,,,,',), "common: '--momentum=' must be"),
    (('common,momentum=1,,,,',), "common: 'momentum=1' must be"),
    (('common,--a=1 --a=2,,,,',), "'--a=2' must be .* each NAME once"),
    (("common,--a='1,,,,",), 'own.csv:common cannot be read: No closing'),
    ((COMMON, "a,--a='1,,,0,"), 'own.csv:a cannot be read: No closing'),
    ((COMMON, 'a,,,0,'), 'not 6 cells'),
    (('common,--total_rounds=9,,,',), 'not 6 cells'),
    ((COMMON, 'a,--momentum=,,,0,'), 'own.csv:a cannot be read: --momentum='),
    ((COMMON, 'a,--total_rounds=,,,0,'), 'own.csv:a must give --total_rounds'),
  ],
)
def test_refused_common_rows(table, lines, message):
  path = table(*lines)
  with pytest.raises(flags.UsageError, match=message):
    recipes.make({'recipe': f'{path}:a'})


def test_the_common_row_is_no_experiment(table):
  path = table(COMMON, 'a,,,,0,')
  with pytest.raises(flags.UsageError, match='Did you mean|must be one of'):
    recipes.make({'recipe': f'{path}:common'})


def test_measures_of_rows(table):
  path = table(
    f'a,{ROW},0.5,,T,0,',
    f'b,{ROW},40,rounds_to@0.5,T,0,',
    f'c,{ROW},,accuracy@30,T,0,',
    header=MEASURED,
  )
  rows = recipes.load(path)
  assert [str(row.measure) for row in rows.values()] == [
    *('accuracy', 'rounds_to@0.5', 'accuracy@30'),
  ]
  assert [row.published for row in rows.values()] == [0.5, 40, None]
  facts = [
    recipes.facts(recipes.make({'recipe': f'{path}:{row}'})) for row in rows
  ]
  assert [fact.get('measure') for fact in facts] == [
    *(None, 'rounds_to@0.5', 'accuracy@30'),
  ]


@pytest.mark.parametrize(
  'line, message',
  [
    (f'a,{ROW},,accuracy@,,0,', "own.csv:a: measure='accuracy@' must be"),
    (f'a,{ROW},1.5,best_accuracy,,0,', "published='1.5' must be an accuracy"),
    (f'a,{ROW},0.5,rounds_to@0.5,,0,', "published='0.5' must be a whole"),
    (f'a,{ROW},0.5,,0,', 'has not 7 cells'),
  ],
)
def test_refused_measures(table, line, message):
  with pytest.raises(flags.UsageError, match=message):
    recipes.load(table(line, header=MEASURED))


def test_rows_that_read_the_run_of_another(table):
  path = table(f'a,{ROW},0.5,T,"0,2",', f'c,{ROW} --seed=1,,,0,')
  other = table(
    'all,same_as=own.csv:a,0.25,T 2,,',
    'one,same_as=own.csv:a,,,7,',
    name='other.csv',
  )
  rows = recipes.load(other)
  own = recipes.load(path)['a']
  assert [row.run_name for row in rows.values()] == [own.name, own.name]
  assert [row.seeds for row in rows.values()] == [(0, 2), (7,)]
  assert rows['all'].published == 0.25
  made = recipes.make({'recipe': f'{other}:all', 'seed': 2})
  assert made.recipe == f'{other}:all'
  assert made.run_dir == 'runs/own/a_seed2'
  plain = recipes.make({'recipe': own.name, 'seed': 2})
  assert {**made.used, 'recipe': own.name} == plain.used
  assert recipes.changes(made) == {}
  # What a folder says of its run does not depend on the row that asked for it.
  assert recipes.facts(made) == recipes.facts(plain)


@pytest.mark.parametrize(
  'cell, message',
  [
    ('same_as=own.csv:a --momentum=0.5', 'same_as=TABLE:ROW and nothing else'),
    ('same_as=a', 'same_as=TABLE:ROW and nothing else'),
    ('same_as=', 'same_as=TABLE:ROW and nothing else'),
    ('--momentum=0.5 same_as=own.csv:a', "'same_as=own.csv:a' is no flag"),
    ('same_as=own.csv:aa', "names no row: .* Did you mean '.*own.csv:a'"),
    ('same_as=none.csv:a', 'names no row: .*none.csv cannot be read'),
    ('same_as=ssfl_tabel2:c10_s2', "names no row: .* mean 'ssfl_table2'"),
    ('same_as=own.csv:b', 'without a run of its own: name .*own.csv:a, which'),
  ],
)
def test_refused_readings(table, cell, message):
  table(f'a,{ROW},,,0,', 'b,same_as=own.csv:a,,,,')
  other = table(f'r,{cell},,,0,', name='other.csv')
  with pytest.raises(flags.UsageError, match=message) as caught:
    recipes.make({'recipe': f'{other}:r'})
  assert 'other.csv:r' in str(caught.value)


def test_a_row_that_names_itself(table):
  path = table('a,same_as=own.csv:a,,,,')
  with pytest.raises(flags.UsageError, match='without a run of its own'):
    recipes.load(path)


@pytest.mark.parametrize('text', ['', '1,', '1,1', 'a', '-1', '0 1', '1,01'])
def test_refused_seeds(text):
  with pytest.raises(flags.UsageError, match=f'--seeds={text}'):
    recipes.parse_seeds(text)


def test_seeds():
  assert recipes.parse_seeds('3,0,12') == (3, 0, 12)


@pytest.mark.parametrize(
  'table', ['native_writers', 'native_writers_paper_steps']
)
def test_results_on_writers_keep_the_labels_that_they_were_made_with(table):
  rows = recipes.load(table).values()
  assert {row.flags()['server_writers'] for row in rows} == {'held_out'}
