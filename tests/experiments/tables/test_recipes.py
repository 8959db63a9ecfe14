"""Recipes can be run, and tables of them are read or refused."""

import damage
import pytest

from experiments import run
from experiments.config import flags, settings
from experiments.config.command_line import UsageError
from experiments.tables import recipes
from tff_ssl import models

TABLES = [list(recipes.load(table).values()) for table in recipes.tables()]
HEADER = 'row,flags,published,source,seeds,note'
MEASURED = 'row,flags,published,measure,source,seeds,note'
ROW = (
  '--process=grouping --dataset=digits --total_rounds=200 '
  '--server_warmup_rounds=3 --rounds_per_evaluation=50'
)
COMMON = f'common,{ROW} --learning_rate=0.1,,,,'


@pytest.fixture
def table(tmp_path):
  """Writes a table of one's own and returns its path."""

  def write(*lines, header=HEADER, name='own.csv'):
    path = tmp_path / name
    path.write_text('\n'.join([header, *lines]) + '\n')
    return str(path)

  return write


def check_runs(recipe):
  made = recipes.make({'recipe': recipe.name})
  assert made.model in {**models.MODELS, **models.ENCODERS}
  assert recipes.changes(made) == {}
  assert made.total_rounds / made.rounds_per_evaluation >= 10
  tenth = recipes.make({'recipe': recipe.name, 'recipe_scale': 0.1})
  assert tenth.total_rounds == pytest.approx(made.total_rounds / 10, abs=0.5)
  assert tenth.rounds_per_evaluation <= max(1, tenth.total_rounds // 10)


@pytest.mark.parametrize(
  'recipe', [rows[0] for rows in TABLES], ids=lambda recipe: recipe.name
)
def test_the_first_row_of_a_table_can_be_run(recipe):
  check_runs(recipe)


@pytest.mark.tables
@pytest.mark.parametrize(
  'recipe', sum(TABLES, []), ids=lambda recipe: recipe.name
)
def test_every_row_can_be_run(recipe):
  check_runs(recipe)


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


def test_flags_beside_a_recipe_win_and_are_told():
  given = {'recipe': 'native_writers:ns50_grouping_s2', 'seed': 4}
  made = recipes.make(given)
  assert (made.num_groups, made.seed) == (2, 4)
  assert made.run_dir == 'runs/native_writers/ns50_grouping_s2_seed4'
  assert recipes.changes(recipes.make(given | {'run_dir': 'x'})) == {}
  own = {'num_groups': 3, 'local_steps': 2, 'total_rounds': 7}
  other = recipes.make(given | own)
  changes = {
    'num_groups': (2, 3),
    'local_epochs': (1, None),
    'local_steps': (None, 2),
    'total_rounds': (200, 7),
  }
  assert recipes.changes(other) == changes
  facts = recipes.facts(other)
  assert facts['recipe_changes'] == sorted(changes)
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
def test_refusals(given, message, refusal):
  with refusal(error=flags.UsageError, match=message):
    recipes.make(given)


@pytest.mark.parametrize(
  'lines, message',
  [
    ((f'a,{ROW},1.2,,0,',), "published='1.2' .* in \\[0, 1\\]"),
    ((f'a,{ROW},nan,,0,',), "published='nan'"),
    ((f'a,{ROW},,,"0,0",',), '--seeds=0,0'),
    ((f'a,{ROW},,,,',), '--seeds= '),
    ((f'a,{ROW},,,0,', f'a,{ROW},,,0,'), "two rows 'a'"),
    ((f'a,{ROW},,,0',), 'not 6 cells'),
    ((f'a,{ROW},,,0,,more',), 'not 6 cells'),
    ((f'a,{ROW} --seed=1,,,0,',), 'none of .*seed'),
    (('a,--process=grouping --dataset=digits,,,0,',), '--total_rounds'),
    ((f'a,{ROW} --tau=1,,,0,',), 'own.csv:a cannot be read: --tau is no flag'),
    ((f"a,{ROW} --model='x,,,0,",), 'own.csv:a cannot be read: No closing'),
    # A row that names itself.
    (('a,same_as=own.csv:a,,,,',), 'that is same_as=own.csv:a itself'),
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
    ((COMMON, 'a,--cache_dir=/x,,,0,'), 'and none of .*cache_dir, .*cluster, '),
    ((COMMON, 'a,--cluster=host:1,,,0,'), 'and none of .*cache_dir, .*cluster'),
  ],
)
def test_refused_tables(table, lines, message):
  path = table(*lines)
  with pytest.raises(flags.UsageError, match=message):
    recipes.make({'recipe': f'{path}:a'})


@pytest.mark.parametrize(
  'name',
  [
    *('.', '..', '../a', '../../a', 'a/b', 'a/../../b', '/a', '//a', './a'),
    *('~', '~root', '.a', '-a', '--a', '$HOME', '`a`', '$(a)', 'a;b', 'a|b'),
    *('..\\a', 'c:a', 'a b', 'a\tb', '%2e%2e', 'a*', 'a?', '\u2024\u2024/a'),
    *('\uff0e\uff0e', 'a\u202eb', 'e\u0301'),
  ],
)
def test_s4_a_row_names_a_folder_beside_the_others(table, name):
  path = table(f'{name},{ROW},,,0,')
  with pytest.raises(flags.UsageError, match='cannot name a folder'):
    recipes.load(path)


@pytest.mark.parametrize(
  'header, line, message',
  [
    ('row,flags', 'a,b', 'has the columns'),
    (f'{HEADER},measure', 'a,b', 'has the columns'),
    (MEASURED, f'a,{ROW},,accuracy@,,0,', ":a: measure='accuracy@' must be"),
    (MEASURED, f'a,{ROW},1.5,best_accuracy,,0,', "published='1.5' must be an"),
    (MEASURED, f'a,{ROW},0.5,rounds_to@0.5,,0,', "published='0.5' must be a w"),
    (MEASURED, f'a,{ROW},0.5,,0,', 'has not 7 cells'),
  ],
)
def test_refused_columns(table, header, line, message):
  with pytest.raises(flags.UsageError, match=message):
    recipes.load(table(line, header=header))


def test_an_empty_table_has_no_columns(tmp_path):
  path = tmp_path / 'empty.csv'
  path.touch()
  with pytest.raises(flags.UsageError, match=r'has the columns \[\]: give row'):
    recipes.load(str(path))


def test_the_common_row_is_no_experiment(table):
  path = table(COMMON, 'a,,,,0,')
  with pytest.raises(flags.UsageError, match='Did you mean|must be one of'):
    recipes.make({'recipe': f'{path}:common'})


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


def test_a_row_with_the_flags_of_another_and_its_own(table):
  path = table(COMMON, 'a,--momentum=0.5,0.9,,"0,2",')
  other = table(
    'common,--num_groups=7,,,,',
    'b,same_as=own.csv:a --process=fedavg_ssfl --server_warmup_rounds=,,,,',
    'c,same_as=own.csv:a --momentum=0.25 --num_groups=3,,,1,',
    name='other.csv',
  )
  a, (b, c) = recipes.load(path)['a'], recipes.load(other).values()
  expected = {**a.flags(), 'process': 'fedavg_ssfl'}
  del expected['server_warmup_rounds']
  assert b.flags() == expected
  assert c.flags() == {**a.flags(), 'momentum': 0.25, 'num_groups': 3}
  assert (b.seeds, c.seeds) == ((0, 2), (1,))
  assert (b.published, b.same_as, b.run_name) == (None, None, f'{other}:b')
  made = recipes.make({'recipe': b.name})
  assert made.run_dir == 'runs/other/b_seed0'
  assert recipes.changes(made) == {}


@pytest.mark.parametrize(
  'cell, message',
  [
    ('same_as=a', 'must be same_as=TABLE:ROW, and behind it nothing or flags'),
    ('same_as=', 'must be same_as=TABLE:ROW'),
    ('same_as= --momentum=0.5', 'must be same_as=TABLE:ROW'),
    ('same_as=own.csv:a momentum=0.5', "cannot be read: 'momentum=0.5' is no"),
    ('same_as=own.csv:a --momentun=1', 'cannot be read: --momentun is no flag'),
    ("same_as=own.csv:a --model='x", 'cannot be read: No closing'),
    ('same_as=own.csv:c --momentum=1', "own.csv:c: '--views' must be --NAME=V"),
    ('--momentum=0.5 same_as=own.csv:a', "'same_as=own.csv:a' is no flag"),
    ('same_as=own.csv:aa', "names no row: .* Did you mean '.*own.csv:a'"),
    ('same_as=none.csv:a', 'names no row: .*none.csv cannot be read'),
    ('same_as=ssfl_tabel2:c10_s2', "names no row: .* mean 'ssfl_table2'"),
    ('same_as=own.csv:b', 'a row that is same_as=own.csv:a itself: name that'),
  ],
)
def test_refused_readings(table, cell, message):
  same = 'b,same_as=own.csv:a,,,,'
  table(f'a,{ROW},,,0,', same, f'c,{ROW} --views auto,,,0,')
  other = table(f'r,{cell},,,0,', name='other.csv')
  with pytest.raises(flags.UsageError, match=message) as caught:
    recipes.make({'recipe': f'{other}:r'})
  assert 'other.csv:r' in str(caught.value)


def test_rows_of_ones_own_stand_behind_those_of_a_table(table):
  path = table(f'a,{ROW} --server_examples=50,,,"0,1",')
  mine = table('b,same_as=own.csv:a --process=fedavg_ssfl,,,,', name='mine.csv')
  assert list(recipes.load_with(path, None)) == ['a']
  rows = recipes.load_with(path, mine)
  assert list(rows) == ['a', 'b']
  assert (rows['b'].name, rows['b'].seeds) == (f'{mine}:b', (0, 1))


@pytest.mark.parametrize(
  'line, message',
  [
    (None, 'must be the path of a CSV file'),
    ('b,same_as=own.csv:b,,,,', 'mine.csv:b: .* names no row'),
    (f'a,{ROW},,,0,', "has a row 'a' of its own: rename yours"),
    # Other labels than those of any row; other flags may differ.
    (f'b,{ROW},,,0,', "the data and the labels of 'b': begin its flags with s"),
    ('b,same_as=own.csv:a --server_examples=60,,,,', "the labels of 'b'"),
    ('b,same_as=own.csv:a --noniid_r=0.5,,,,', "the labels of 'b'"),
    ('b,same_as=own.csv:a --tau=1,,,,', '--tau is no flag'),
  ],
)
def test_refused_rows_of_ones_own(table, tmp_path, line, message):
  path = table(f'a,{ROW} --server_examples=50,,,0,')
  added = str(tmp_path)
  if line is not None:
    added = table(line, name='mine.csv')
  with pytest.raises(UsageError, match=f'^--add_rows={added}.*{message}'):
    recipes.load_with(path, added)


@pytest.mark.parametrize('text', ['', '1,', '1,1', 'a', '-1', '0 1', '1,01'])
def test_refused_seeds(text):
  with pytest.raises(flags.UsageError, match=f'--seeds={text}'):
    recipes.parse_seeds(text)


def test_seeds():
  assert recipes.parse_seeds('3,0,12') == (3, 0, 12)


def test_damaged_tables(table, tmp_path):
  path = table(COMMON, 'a,--num_groups=2,0.9,here,"0,1",', 'b,,,here,0,a note')

  def read():
    rows = recipes.load(path)
    used = [recipes.make({'recipe': f'{path}:{row}'}).used for row in 'ab']
    return {name: str(row) for name, row in rows.items()}, used

  # Words of a note.
  may_differ = ['flip', 'a quote', 'a byte less']
  damage.try_all(tmp_path / 'own.csv', read, damage.CSV, may_differ=may_differ)


PRETRAINED = {
  'total_rounds': 200,
  'pretraining_rounds': 100,
  'rounds_per_evaluation': 10,
  'evaluation_offset': 1,
}
# Every round is evaluated: there is nothing to offset.
LEAST = {'rounds_per_evaluation': 1, 'evaluation_offset': 0}


@pytest.mark.parametrize(
  'given, scale, shorter',
  [
    (
      PRETRAINED,
      0.2,
      {
        'total_rounds': 40,
        'pretraining_rounds': 20,
        'rounds_per_evaluation': 4,
        'evaluation_offset': 1,
      },
    ),
    (PRETRAINED, 0.05, {'total_rounds': 10, 'pretraining_rounds': 5, **LEAST}),
    # A round each at least.
    (PRETRAINED, 0.001, {'total_rounds': 2, 'pretraining_rounds': 1, **LEAST}),
    (
      {'total_rounds': 100, 'supervised_rounds': 40},
      0.1,
      {'total_rounds': 10, 'supervised_rounds': 4},
    ),
    # A round with pseudo-labels is left.
    (
      {'total_rounds': 100, 'supervised_rounds': 99},
      0.02,
      {'total_rounds': 2, 'supervised_rounds': 1},
    ),
    *(
      ({'total_rounds': 40, name: n}, 0.25, {'total_rounds': 10, name: fewer})
      for name in (
        *('server_warmup_rounds', 'warmup_rounds', 'helper_interval'),
        'threshold_rounds',
      )
      for n, fewer in ((5, 2), (0, 0))
    ),
    # Only what is given is shortened.
    (
      {'total_rounds': 30, 'schedule': 'constant', 'learning_rate': 0.1},
      0.1,
      {'total_rounds': 3},
    ),
    # The rate ends where it would: .97 ** 4.
    (
      {'total_rounds': 100, 'schedule': 'exponential', 'schedule_decay': 0.97},
      0.25,
      {'total_rounds': 25, 'schedule_decay': pytest.approx(0.88529281)},
    ),
  ],
)
def test_what_shrinks_with_the_rounds(given, scale, shorter):
  assert recipes.shorten(given, scale) == shorter


def test_a_schedule_that_there_is_not_is_refused():
  with pytest.raises(UsageError, match="--schedule=cosin .*'cosine'"):
    recipes.shorten({'total_rounds': 10, 'schedule': 'cosin'}, 0.5)
