"""The command line: kinds, flag files, and what is refused."""

import pytest

from experiments import flags

NAMES = [flag.name for group in flags.GROUPS.values() for flag in group]


def parse(*arguments):
  return flags.parse(['program', *map(str, arguments)])


def test_values_have_their_kind():
  given = parse(
    '--dataset=digits',
    '--num_clients=6',
    '--noniid_r=1',
    '--noaugment_flip',
    '--list',
  )
  assert given == {
    'dataset': 'digits',
    'num_clients': 6,
    'noniid_r': 1.0,
    'augment_flip': False,
    'list': True,
  }
  assert type(given['noniid_r']) is float


def test_what_is_not_given_is_absent():
  assert parse() == {}


def test_two_parses_share_nothing():
  assert parse('--seed=3') == {'seed': 3}
  assert parse('--total_rounds=4') == {'total_rounds': 4}


def test_the_last_value_counts_also_after_a_flag_file(tmp_path):
  path = tmp_path / 'flags.txt'
  path.write_text('--seed=1\n--process=grouping\n')
  assert parse(f'--flagfile={path}', '--seed=2') == {
    'seed': 2,
    'process': 'grouping',
  }


def test_every_name_is_defined_once():
  assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
  'argument, message',
  [
    ('--num_client=3', 'num_client'),
    ('--num_clients=many', '--num_clients=many'),
    ('--num_clients=1.5', '--num_clients=1.5'),
    ('--noniid_r=half', '--noniid_r=half'),
    ('--augment_flip=maybe', '--augment_flip=maybe'),
    ('--seed', 'seed'),
    ('grouping', "'grouping' is no flag"),
    ('--flagfile=/nowhere/flags.txt', '/nowhere/flags.txt'),
    ('--flagfile=/', "'/'"),
  ],
)
def test_refusals_are_one_line_that_names_the_flag(argument, message):
  with pytest.raises(flags.UsageError) as caught:
    parse(argument)
  assert message in str(caught.value)
  assert '\n' not in str(caught.value)


def test_misspelt_flag_gets_the_nearest():
  with pytest.raises(flags.UsageError, match='num_clients'):
    parse('--num_client=3')


def test_flag_file_that_is_no_text(tmp_path):
  path = tmp_path / 'flags.txt'
  path.write_bytes(b'\xff\xfe--seed=1\n')
  with pytest.raises(flags.UsageError, match='--flagfile .* not UTF-8'):
    parse(f'--flagfile={path}')


def test_help_holds_every_group_and_flag_within_80_columns():
  lines = flags.help_text().splitlines()
  assert [line[:-1] for line in lines if line[-1:] == ':'] == list(flags.GROUPS)
  shown = [line.split()[0] for line in lines if line.startswith('  --')]
  assert shown == [f'--{name}' for name in NAMES]
  assert max(map(len, lines)) <= 80
