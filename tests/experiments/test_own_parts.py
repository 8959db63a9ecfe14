"""Networks, data sets and partitions of a user's own, as module:NAME.

The modules are in tests/support.
"""

import json

import numpy as np
import pytest
import run_folders
import tensorflow as tf

from experiments import export, run
from experiments.config import catalogue, flags, settings
from experiments.config.command_line import UsageError
from experiments.tables import recipes

_SMALL = (
  *('--process=fedavg', '--clients_per_round=3', '--local_epochs=1'),
  *('--total_rounds=2', '--rounds_per_evaluation=1'),
)


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


@pytest.fixture
def refused(error_of, tmp_path):
  """A function from arguments to the one line in which they are refused."""

  def run_and_read(*arguments):
    folder = tmp_path / 'run'
    error = error_of(run.main, *_SMALL, f'--run_dir={folder}', *arguments)
    assert not folder.exists()
    return error

  return run_and_read


@pytest.fixture(scope='module')
def finished(tmp_path_factory, cache):
  """A run with all parts of one's own, some of its flags in two words."""
  folder = tmp_path_factory.mktemp('finished') / 'run'
  run_folders.train(
    folder,
    *(*_SMALL, cache, '--dataset', 'own_source:SOURCE', '--stripes_size=40'),
    *('--model', 'own_network:build', '--rows', '5'),
    *('--partition', 'own_partition:PARTITION'),
  )
  return folder


@pytest.mark.dear
def test_a_run_on_parts_of_ones_own(finished):
  summary = run_folders.summary_of(finished)
  assert summary['rounds'] == 2 and 0 <= summary['accuracy'] <= 1
  assert summary['dataset'] == 'own_source:SOURCE'
  assert summary['data'] == '40 stripes'
  assert summary['flags']['stripes_size'] == 40
  assert (summary['clients'], summary['test_examples']) == (5, 10)
  assert summary['model'] == 'own_network:build'
  # 16 pixels to 2 classes, with biases.
  assert summary['bytes_up_per_client'] >= 4 * 34
  assert summary['flags']['partition'] == 'own_partition:PARTITION'
  split = json.loads((finished / 'split.json').read_text())
  assert split['partition'] == 'own_partition:PARTITION'
  assert split['arguments']['rows'] == 5
  with np.load(finished / 'split.npz', allow_pickle=False) as arrays:
    owners = np.repeat(range(5), np.diff(arrays['offsets']))
    np.testing.assert_array_equal(arrays['examples'] % 5, owners)
    np.testing.assert_array_equal(np.sort(arrays['examples']), range(40))


@pytest.mark.runs
def test_parts_of_ones_own_are_found_again(finished, capsys):
  """By the flag file of the run, and for its classifier."""
  assert run.main(['run', f'--flagfile={finished / "flags.txt"}']) == 0
  assert 'Resuming after round 2.' in capsys.readouterr().out
  # A folder that names a function is no reason to call it.
  assert export.main(['export', str(finished)]) == 2
  assert 'give --model, too' in capsys.readouterr().err
  own = '--model=own_network:build'
  assert export.main(['export', str(finished), own]) == 0
  classify = tf.saved_model.load(finished / 'classifier')
  assert classify(np.zeros((2, 4, 4, 1), np.uint8)).shape == (2, 2)


@pytest.mark.runs
@pytest.mark.parametrize(
  'own',
  [
    ('--dataset=digits', '--model=own_network:build', '--num_clients=4'),
    ('--dataset=own_source:SOURCE', '--model=dense', '--num_clients=4'),
    (
      *('--dataset=digits', '--model=dense', '--rows=5'),
      '--partition=own_partition:PARTITION',
    ),
  ],
)
def test_each_part_of_ones_own_goes_with_others(own, tmp_path, cache):
  assert run_folders.train(tmp_path, *_SMALL, *own, cache)['rounds'] == 2


@pytest.mark.parametrize(
  'flag, kind, known',
  [
    ('process', 'ProcessSpec', 'own_processes'),
    ('dataset', 'SourceSpec', 'own_source'),
    ('partition', 'PartitionSpec', 'own_partition'),
    ('model', 'function', 'own_network'),
  ],
)
def test_what_is_not_there_is_refused(flag, kind, known, refused):
  others = () if flag == 'dataset' else ('--dataset=digits',)

  def text_for(name):
    text = refused(*others, f'--{flag}={name}')
    assert f'--{flag}={name!r}' in text
    return text

  assert "no module 'no_such'" in text_for('no_such:NAME')
  assert "has no 'NOTHING'" in text_for(f'{known}:NOTHING')
  other = 'own_network:WIDTH' if flag == 'model' else 'own_network:build'
  assert f'is no {kind}' in text_for(other)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (
      ('--dataset=own_source:SOURCE', '--stripes_size=19'),
      '--stripes_size=19 must be an integer >= 20.',
    ),
    (
      ('--dataset=own_source:SOURCE', '--stripes_size=many'),
      '--stripes_size=many',
    ),
    (('--dataset=digits', '--stripes_size=30'), '--stripes_size is no flag'),
    (
      ('--dataset=own_source:SOURCE', '--data_dir=/nowhere'),
      'data_dir=/nowhere holds no stripes',
    ),
    (
      (
        *('--dataset=digits', '--partition=own_partition:PARTITION'),
        '--rows=51',
      ),
      '--rows=51 must be an integer between 2 and 50.',
    ),
    (
      (
        *('--dataset=digits', '--partition=own_partition:PARTITION'),
        '--num_clients=3',
      ),
      '--num_clients=3 has no effect: --partition=own_partition:PARTITION does',
    ),
  ],
)
def test_a_bad_setting_of_its_own_is_refused(arguments, message, refused):
  assert message in refused(*arguments)


@pytest.mark.parametrize('process', ['recommended', 'fedavg'])
def test_data_of_ones_own_are_checked_before_a_run(refused, process, cache):
  """The labels are read twice: where they decide, and for the run."""
  own = '--dataset=own_source:LISTS', f'--process={process}', cache
  assert 'labels of Split is of the type list' in refused(*own)


@pytest.mark.parametrize(
  'name, message',
  [
    ('OF_EVERY_RUN', 'its setting total_rounds is called like one of every'),
    ('OTHER_TYPE', 'its setting threshold is of the type str, and --threshold'),
    ('NO_FLAG', "a setting cannot be called 'two words'"),
    ('OF_ABSL', "a setting cannot be called 'flagfile'"),
    ('OF_MACHINE', 'its setting cores has the scope MACHINE'),
    (
      'NAMED_AS_ALIAS',
      'the name of its setting root_output_dir is an alias of --run_dir',
    ),
    (
      'ALIAS_IS_NAME',
      'the alias seed of its setting cores is the name of --se',
    ),
    (
      'ALIAS_IS_ALIAS',
      'the alias client_batch_size of its setting cores is an alias of --batch',
    ),
    (
      'ALIAS_OF_OTHERS',
      'its setting threshold has the alias sureness, which',
    ),
    ('ALIAS_IS_NO_FLAG', "a setting cannot be called 'two words'"),
    ('TWICE', 'it has two settings cores'),
    ('OF_EACH_OTHER', 'the alias cores of its setting width is the name of'),
    ('NO_RECORD', "its settings hold 'cores', which is no Setting"),
    ('SLASH', "its name '../one' cannot be a part of a folder's name"),
    ('BLANK', "its name 'my own' cannot be"),
    ('UNNAMED', "its name '' cannot be"),
    ('BUILT_IN', "its name 'grouping' is that of --process=grouping"),
  ],
)
def test_s4_a_part_that_cannot_have_flags_or_a_folder_is_refused(name, message):
  with pytest.raises(UsageError) as caught:
    flags.parse(['run', f'--process=own_processes:{name}'])
  text = str(caught.value)
  assert text.startswith(f'--process=own_processes:{name}: ')
  assert message in text and text.endswith(('.', '?'))


@pytest.mark.parametrize(
  'name, message',
  [
    ('ROWS', 'its setting rows is of the type int, and --rows'),
    ('SIZES', 'the name of its setting rows is an alias of --sizes'),
  ],
)
def test_settings_of_two_own_parts_do_not_share_a_flag(name, message):
  """`rows` of the partition is a whole number."""
  partition = '--partition=own_partition:PARTITION'
  with pytest.raises(UsageError, match=message):
    flags.parse(['run', f'--process=own_processes:{name}', partition])


@pytest.mark.parametrize(
  'name, parts',
  [
    ('MISSPELT', ("defaults names 'local_epoch', which is", 'local_epochs')),
    ('MISSPELT_DERIVED', ("derive names 'local_epoch'",)),
    (
      'BAD_DEFAULT',
      (
        '--learning_rate=-1.0 must be a number > 0.',
        'It is a default of --process=own_processes:BAD_DEFAULT',
        'or give --learning_rate',
      ),
    ),
    ('BAD_CHOICE', ('--schedule=cosin is unknown', 'It is a default of --pr')),
    ('BAD_PARTITION', ('--partition=natve', 'It is a default of --process=')),
    ('BAD_RECORD', ('--cores=0 must be', 'It is a default of --process=')),
    ('BAD_MODEL', ('--model=dens is unknown', 'It is a default of --pro')),
    ('NO_SEED', ('defaults takes the value of seed away',)),
    ('NO_MAPPING', ('derive gives None',)),
    (
      'DERIVE_FAILS',
      ('derive stops at', 'own_processes.py:', 'no such thing'),
    ),
    ('CHECK_FAILS', ('check stops at', 'own_processes.py:')),
    (
      'CONDITION_FAILS',
      ('used_when of the setting cores stops at', 'own_processes.py:'),
    ),
  ],
)
def test_mistakes_in_an_own_process_are_told_in_one_line(name, parts, refusal):
  process = f'own_processes:{name}'
  with refusal(f'--process={process}', *parts, error=UsageError):
    settings.make({'process': process, 'dataset': 'digits'})


def test_rounds_of_an_own_setting_are_shortened_and_shown():
  given = {
    'process': 'own_processes:COUNTS_ROUNDS',
    'dataset': 'digits',
    'total_rounds': 20,
    'calm_rounds': 5,
  }
  shorter = recipes.shorten(given, 0.5)
  assert shorter == {'total_rounds': 10, 'calm_rounds': 3}
  assert catalogue.phases_of(settings.make(given).used) == [('calm', 5)]


def test_what_a_user_gives_beside_a_bad_default_counts():
  given = {'process': 'own_processes:BAD_DEFAULT', 'dataset': 'digits'}
  assert settings.make({**given, 'learning_rate': 0.5}).learning_rate == 0.5
  with pytest.raises(UsageError) as caught:
    settings.make({**given, 'learning_rate': -2.0})
  assert str(caught.value) == '--learning_rate=-2.0 must be a number > 0.'
