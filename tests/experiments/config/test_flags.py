"""The command line: kinds, flag files, and what is refused."""

import os

import damage
import pytest

import tff_ssl
from experiments.config import flags, settings
from tff_ssl.common.setting import Setting


def parse(*arguments):
  return flags.parse(['program', *map(str, arguments)])


@pytest.fixture
def flag_file(tmp_path):
  """An argument that names a file with two flags."""
  path = tmp_path / 'flags.txt'
  path.write_text('--seed=1\n--process=grouping\n')
  return f'--flagfile={path}'


# One after another: nothing is left of those before.
@pytest.mark.parametrize(
  'arguments, expected',
  [
    (
      (
        *('--dataset=digits', '--num_clients=6', '--noniid_r=1'),
        *('--noaugment_flip', '--list'),
      ),
      {
        'dataset': 'digits',
        'num_clients': 6,
        'noniid_r': 1.0,
        'augment_flip': False,
        'list': True,
      },
    ),
    ((), {}),
    (('--seed=3',), {'seed': 3}),
    (('--total_rounds=4',), {'total_rounds': 4}),
    (('{file}', '--seed=2'), {'seed': 2, 'process': 'grouping'}),
    # Aliases.
    (('--client_learning_rate=0.5',), {'learning_rate': 0.5}),
    (('--client_batch_size=3',), {'batch_size': 3}),
    (('--client_epochs_per_round=2',), {'local_epochs': 2}),
    (('--root_output_dir=x',), {'run_dir': 'x'}),
    *(((h,), {'help': True}) for h in ('--help', '-h', '--h', '--help=true')),
  ],
)
def test_values_are_those_given_and_have_their_kind(
  arguments, expected, flag_file
):
  arguments = [flag_file if one == '{file}' else one for one in arguments]
  given = parse(*arguments)
  assert given == expected
  kinds = {name: type(value) for name, value in given.items()}
  assert kinds == {name: type(value) for name, value in expected.items()}


@pytest.mark.parametrize(
  'argument, message',
  [
    ('--num_client=3', 'num_clients'),
    ('--rounds=3', 'did you mean --total_rounds'),
    ('--num_rounds=3', 'did you mean --total_rounds'),
    ('--lr=1', 'did you mean --learning_rate'),
    ('--batch=3', 'did you mean --batch_size'),
    ('--version', f'this is tff_ssl {tff_ssl.__version__}.'),
    ('--num_clients=many', '--num_clients=many must be an integer >= 1.'),
    ('--num_clients=1.5', '--num_clients=1.5 must be an integer >= 1.'),
    ('--num_clients=', '--num_clients= must be an integer >= 1.'),
    ('--noniid_r=half', '--noniid_r=half must be a number between 0 and 1.'),
    ('--augment_flip=maybe', '--augment_flip=maybe must be true or false.'),
    ('--help=maybe', '--help=maybe must be true or false.'),
    ('--client_batch_size=a: b', '--batch_size=a: b must be an integer'),
    ('--seed', '--seed has no value: give --seed=VALUE.'),
    ('--process', '--process has no value: give --process=VALUE.'),
    ('--flagfile', '--flagfile has no value: give --flagfile=PATH.'),
    ('grouping', "'grouping' is no flag"),
    (
      '--flagfile=/nowhere/flags.txt',
      '--flagfile=/nowhere/flags.txt cannot be read: No such file or directory'
      '; give the path of a text file with a flag in each line.',
    ),
    ('--flagfile=/', '--flagfile=/ cannot be read: Is a directory; give'),
  ],
)
def test_refusals_are_one_line_that_names_the_flag(argument, message):
  with pytest.raises(flags.UsageError) as caught:
    parse(argument)
  assert message in str(caught.value)
  assert '\n' not in str(caught.value)


def test_long_paths_are_no_flags(tmp_path):
  path = f'/tmp/{"x" * 200}'
  values = {'data_dir': Setting('data_dir', str, 'A folder.')}
  read = flags.read(['run', '--data_dir', path, path], values)
  assert read == ({'data_dir': path}, [path])


def test_a_pipe_is_no_flag_file(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  with pytest.raises(flags.UsageError, match='is a pipe'):
    parse('--flagfile', str(tmp_path / 'pipe'))


def test_flag_file_of_very_many_lines(tmp_path):
  path = tmp_path / 'flags.txt'
  path.write_text('--seed=1\n' * 200_000)
  with pytest.raises(flags.UsageError, match='makes 200,001 arguments'):
    parse(f'--flagfile={path}')


def test_flag_file_that_is_no_text(tmp_path):
  path = tmp_path / 'flags.txt'
  path.write_bytes(b'\xff\xfe--seed=1\n')
  with pytest.raises(flags.UsageError, match='--flagfile .* not UTF-8'):
    parse(f'--flagfile={path}')


@pytest.mark.parts
def test_damaged_flag_files(tmp_path):
  path = tmp_path / 'flags.txt'
  path.write_text('--num_groups=2\n--dataset=digits\n--process=grouping\n')
  damage.try_all(
    path,
    lambda: settings.make(parse(f'--flagfile={path}')).used,
    {**damage.TEXT, 'a long name': lambda content: b'--' + b'a' * 5_000},
    may_differ=['flip'],
    names=[str(path), '--'],
  )
