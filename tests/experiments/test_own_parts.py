"""Networks, data sets and partitions of a user's own, as module:NAME."""

import importlib
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from experiments import export, run
from experiments.config import flags, parts_of_run, settings
from experiments.config.usage import UsageError
from experiments.tables import shortening

_SMALL = (
  *('--process=fedavg', '--clients_per_round=3', '--local_epochs=1'),
  *('--total_rounds=2', '--rounds_per_evaluation=1'),
)
_MODEL = """
import tensorflow as tf

WIDTH = 8


def build(input_shape, num_classes, norm):
  assert norm == 'none'
  return tf.keras.Sequential([
    tf.keras.layers.Input(input_shape),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(num_classes),
  ])
"""
_SOURCE = """
import numpy as np

from datasets.sources.source import Source, Split
from datasets.sources.source_spec import SourceSpec
from tff_ssl.setting import Setting


def stripes(count):
  labels = np.arange(count, dtype=np.int32) % 2
  images = np.zeros((count, 4, 4, 1), np.uint8)
  images[labels == 0, :2] = 255
  images[labels == 1, 2:] = 255
  return Split(images, labels)


def load(data_dir, cache_dir, size=60):
  return Source(
    name='stripes',
    version=f'stripes-{size}',
    title=f'{size} stripes',
    train=stripes(size),
    test=stripes(10),
    num_classes=2,
    mean=(0.5,),
    stddev=(0.5,),
    background=0,
    mirrorable=True,
  )


def check_files(data_dir):
  if data_dir == '/nowhere':
    raise ValueError('data_dir=/nowhere holds no stripes: name another.')


SOURCE = SourceSpec(
  'stripes',
  'Images whose upper or lower half is white.',
  load,
  check_files,
  settings=(
    Setting(
      'stripes_size', int, 'Training images.', default=60, at_least=20
    ),
  ),
)
"""
_PARTITION = """
import numpy as np

from datasets.draws import assignment
from datasets.partition.partition_spec import PartitionSpec
from tff_ssl.setting import Setting


def in_rows(source, *, rows, server_examples, seed):
  examples = np.arange(len(source.train.labels))
  parts = np.array_split(examples, rows)
  sizes = [len(part) for part in parts]
  return assignment.Assignment(
    np.empty(0, np.int64),
    examples,
    np.concatenate([[0], np.cumsum(sizes)]),
    assignment.numbered_names(rows),
  )


PARTITION = PartitionSpec(
  'in_rows',
  'as many clients as asked for, in the order of the file',
  in_rows,
  settings=(
    Setting('rows', int, 'Clients.', default=4, at_least=2, at_most=50),
  ),
)
"""
# What a user's process cannot have.
_PROCESSES = """
import dataclasses

from tff_ssl.algorithms import fed_avg
from tff_ssl.setting import Scope, Setting, condition

FED_AVG = fed_avg.SPECS[0]


def changed(**more):
  return dataclasses.replace(FED_AVG, **{'name': 'own', **more})


def with_settings(*settings, **more):
  return changed(settings=(*FED_AVG.settings, *settings), **more)


def with_setting(*arguments, **more):
  return with_settings(Setting(*arguments, **more))


def fail(*arguments):
  raise RuntimeError('no such thing')


def answer(*arguments):
  return None


OF_EVERY_RUN = with_setting('total_rounds', int, 'Rounds.', at_least=1)
OTHER_TYPE = with_setting('threshold', str, 'A name.')
NO_FLAG = with_setting('two words', int, 'Two.')
OF_ABSL = with_setting('flagfile', int, 'Two.')
OF_MACHINE = with_setting('cores', int, 'Cores.', scope=Scope.MACHINE)
NAMED_AS_ALIAS = with_setting('root_output_dir', str, 'A folder.')
ALIAS_IS_NAME = with_setting('cores', int, 'Cores.', aliases=('seed',))
ALIAS_IS_ALIAS = with_setting(
  'cores', int, 'Cores.', aliases=('client_batch_size',))
ALIAS_OF_OTHERS = with_setting(
  'threshold', float, 'A bound.', aliases=('sureness',))
ALIAS_IS_NO_FLAG = with_setting('cores', int, 'Cores.', aliases=('two words',))
TWICE = with_settings(
  Setting('cores', int, 'Cores.'), Setting('cores', int, 'Cores.'))
OF_EACH_OTHER = with_settings(
  Setting('cores', int, 'Cores.'),
  Setting('width', int, 'Width.', aliases=('cores',)))
COUNTS_ROUNDS = with_setting(
  'calm_rounds', int, 'Calm ones.', rounds='share', phase='calm')
NO_RECORD = with_settings('cores')

SLASH = changed(name='own/one')
BLANK = changed(name='my own')
UNNAMED = changed(name='')
BUILT_IN = changed(name='grouping')

MISSPELT = changed(defaults={'local_epoch': 2})
MISSPELT_BY_FUNCTION = changed(defaults=lambda given: {'local_epoch': 2})
MISSPELT_DERIVED = changed(derive=lambda values, given: {'local_epoch': 2})
BAD_DEFAULT = changed(defaults={'learning_rate': -1.0})
BAD_CHOICE = changed(defaults={'schedule': 'cosin'})
BAD_PARTITION = changed(defaults={'partition': 'natve'})
BAD_RECORD = with_setting('cores', int, 'Cores.', default=0, at_least=1)
BAD_MODEL = changed(defaults={'model': 'dens'})
NO_SEED = changed(defaults={'seed': None})
NO_MAPPING = changed(defaults=answer)
FAILS = changed(defaults=fail)
DERIVE_FAILS = changed(derive=fail)
CHECK_FAILS = changed(check=fail)
CONDITION_FAILS = with_setting(
  'cores', int, 'Cores.', used_when=(condition('cores')(fail),))
"""


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
  """Writes the modules where they can be imported, for one test."""
  folder = tmp_path / 'modules'
  folder.mkdir()
  texts = {
    'own_network': _MODEL,
    'own_source': _SOURCE,
    'own_partition': _PARTITION,
    'own_processes': _PROCESSES,
  }
  for name, text in texts.items():
    (folder / f'{name}.py').write_text(text)
  monkeypatch.syspath_prepend(folder)
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)
  yield
  for name in texts:
    sys.modules.pop(name, None)


def finish(folder, *arguments):
  """Runs a command line, and returns what summary.json says."""
  assert run.main(['run', *_SMALL, f'--run_dir={folder}', *arguments]) == 0
  summary = json.loads((folder / 'summary.json').read_text())
  assert summary['rounds'] == 2 and 0 <= summary['accuracy'] <= 1
  return summary


def refusal(capsys, folder, *arguments):
  """Returns the one line in which a command line is refused."""
  argv = ['run', *_SMALL, f'--run_dir={folder}', *arguments]
  assert run.main(argv) == 2
  error = capsys.readouterr().err
  assert error.startswith('error: ') and error.count('\n') == 1
  assert not folder.exists()
  return error


@pytest.mark.runs
def test_a_network_of_ones_own(tmp_path, cache):
  name = 'own_network:build'
  digits = ('--dataset=digits', '--num_clients=4')
  summary = finish(tmp_path / 'run', *digits, f'--model={name}', cache)
  assert summary['model'] == name
  # 64 pixels to 10 classes, with biases.
  assert summary['bytes_up_per_client'] >= 4 * 650
  # Its classifier is built anew, by the same function.
  assert export.main(['export', str(tmp_path / 'run')]) == 0
  classify = tf.saved_model.load(tmp_path / 'run' / 'classifier')
  assert classify(np.zeros((2, 8, 8, 1), np.uint8)).shape == (2, 10)


@pytest.mark.runs
def test_a_data_set_of_ones_own(tmp_path, cache, capsys):
  own = ('--dataset=own_source:SOURCE', '--num_clients=4', '--model=dense')
  summary = finish(tmp_path / 'run', *own, '--stripes_size=40', cache)
  assert summary['dataset'] == 'own_source:SOURCE'
  assert summary['data'] == '40 stripes'
  assert summary['flags']['stripes_size'] == 40
  assert (summary['clients'], summary['test_examples']) == (4, 10)
  # Resumed, by its flag file, to the end.
  flag_file = tmp_path / 'run' / 'flags.txt'
  assert run.main(['run', f'--flagfile={flag_file}']) == 0
  assert 'Resuming after round 2.' in capsys.readouterr().out


@pytest.mark.runs
def test_a_partition_of_ones_own(tmp_path, cache):
  own = ('--dataset=digits', '--partition=own_partition:PARTITION')
  summary = finish(tmp_path / 'run', *own, '--rows=5', '--model=dense', cache)
  assert summary['clients'] == 5
  assert summary['flags']['partition'] == 'own_partition:PARTITION'
  split = json.loads((tmp_path / 'run' / 'split.json').read_text())
  assert split['partition'] == 'own_partition:PARTITION'
  assert split['arguments']['rows'] == 5
  with np.load(tmp_path / 'run' / 'split.npz', allow_pickle=False) as arrays:
    assert any(
      np.array_equal(arrays[name], np.arange(1437)) for name in arrays.files
    )


@pytest.mark.dear
def test_all_of_ones_own_at_once_with_flags_in_two_words(tmp_path, cache):
  own = (
    *('--dataset', 'own_source:SOURCE', '--model', 'own_network:build'),
    *('--partition', 'own_partition:PARTITION', '--rows', '3'),
  )
  summary = finish(tmp_path / 'run', *own, cache)
  assert (summary['data'], summary['clients']) == ('60 stripes', 3)


@pytest.mark.parametrize(
  'flag, kind, known',
  [
    ('process', 'ProcessSpec', 'own_processes'),
    ('dataset', 'SourceSpec', 'own_source'),
    ('partition', 'PartitionSpec', 'own_partition'),
    ('model', 'function', 'own_network'),
  ],
)
def test_what_is_not_there_is_refused(flag, kind, known, tmp_path, capsys):
  others = () if flag == 'dataset' else ('--dataset=digits',)

  def text_for(name):
    given = f'--{flag}={name}'
    text = refusal(capsys, tmp_path / 'run', *others, given)
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
def test_a_bad_setting_of_its_own_is_refused(
  arguments, message, tmp_path, capsys
):
  assert message in refusal(capsys, tmp_path / 'run', *arguments)


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
    ('SLASH', "its name 'own/one' cannot be a part of a folder's name"),
    ('BLANK', "its name 'my own' cannot be"),
    ('UNNAMED', "its name '' cannot be"),
    ('BUILT_IN', "its name 'grouping' is that of --process=grouping"),
  ],
)
def test_a_part_that_cannot_have_flags_or_a_folder_is_refused(name, message):
  with pytest.raises(UsageError) as caught:
    flags.parse(['run', f'--process=own_processes:{name}'])
  text = str(caught.value)
  assert text.startswith(f'--process=own_processes:{name}: ')
  assert message in text and text.endswith(('.', '?'))


def test_settings_of_two_own_parts_do_not_share_a_flag():
  """`rows` of the partition is a whole number."""
  module = sys.modules['own_processes'] = importlib.import_module(
    'own_processes'
  )
  module.ROWS = module.with_setting('rows', str, 'Rows.')
  module.SIZES = module.with_setting('sizes', int, 'S.', aliases=('rows',))
  partition = '--partition=own_partition:PARTITION'
  for name, message in (
    ('ROWS', 'its setting rows is of the type int, and --rows'),
    ('SIZES', 'the name of its setting rows is an alias of --sizes'),
  ):
    with pytest.raises(UsageError) as caught:
      flags.parse(['run', f'--process=own_processes:{name}', partition])
    assert message in str(caught.value)


@pytest.mark.parametrize(
  'name, parts',
  [
    ('MISSPELT', ("defaults names 'local_epoch', which is", 'local_epochs')),
    ('MISSPELT_BY_FUNCTION', ("defaults names 'local_epoch'",)),
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
    ('NO_MAPPING', ('defaults gives None',)),
    ('FAILS', ('defaults stops at', 'own_processes.py:', 'no such thing')),
    ('DERIVE_FAILS', ('derive stops at', 'own_processes.py:')),
    ('CHECK_FAILS', ('check stops at', 'own_processes.py:')),
    (
      'CONDITION_FAILS',
      ('used_when of the setting cores stops at', 'own_processes.py:'),
    ),
  ],
)
def test_mistakes_in_an_own_process_are_told_in_one_line(name, parts):
  process = f'own_processes:{name}'
  with pytest.raises(UsageError) as caught:
    settings.make({'process': process, 'dataset': 'digits'})
  text = str(caught.value)
  assert '\n' not in text and f'--process={process}' in text
  for part in parts:
    assert part in text


def test_rounds_of_an_own_setting_are_shortened_and_shown():
  given = {
    'process': 'own_processes:COUNTS_ROUNDS',
    'dataset': 'digits',
    'total_rounds': 20,
    'calm_rounds': 5,
  }
  shorter = shortening.shorten(given, 0.5)
  assert shorter == {'total_rounds': 10, 'calm_rounds': 3}
  assert parts_of_run.phases_of(settings.make(given).used) == [('calm', 5)]


def test_what_a_user_gives_beside_a_bad_default_counts():
  given = {'process': 'own_processes:BAD_DEFAULT', 'dataset': 'digits'}
  assert settings.make({**given, 'learning_rate': 0.5}).learning_rate == 0.5
  with pytest.raises(UsageError) as caught:
    settings.make({**given, 'learning_rate': -2.0})
  assert str(caught.value) == '--learning_rate=-2.0 must be a number > 0.'
