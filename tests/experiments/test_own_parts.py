"""Networks, data sets and partitions of a user's own, as module:NAME."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from experiments import export, run
from experiments.config import flags
from experiments.config.usage import UsageError

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
  num_classes=2,
  input_shape=(4, 4, 1),
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
# Settings that a user's process cannot have.
_PROCESSES = """
import dataclasses

from tff_ssl.algorithms import fed_avg
from tff_ssl.setting import Scope, Setting

FED_AVG = fed_avg.SPECS[0]


def with_setting(*arguments, **more):
  return dataclasses.replace(
    FED_AVG, settings=(*FED_AVG.settings, Setting(*arguments, **more)))


OF_EVERY_RUN = with_setting('total_rounds', int, 'Rounds.', at_least=1)
OTHER_TYPE = with_setting('threshold', str, 'A name.')
NO_FLAG = with_setting('two words', int, 'Two.')
OF_ABSL = with_setting('flagfile', int, 'Two.')
OF_MACHINE = with_setting('cores', int, 'Cores.', scope=Scope.MACHINE)
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


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return f'--cache_dir={tmp_path_factory.mktemp("cache")}'


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


def test_a_network_of_ones_own(tmp_path, cache):
  name = 'own_network:build'
  digits = ('--dataset=digits', '--num_clients=4')
  summary = finish(tmp_path / 'run', *digits, f'--model={name}', cache)
  assert summary['model'] == name
  # 64 pixels to 10 classes, with biases.
  assert summary['bytes_up_per_client'] >= 4 * 650
  # Its classifier is built anew, by the same function.
  assert export.main([str(tmp_path / 'run')]) == 0
  classify = tf.saved_model.load(tmp_path / 'run' / 'classifier')
  assert classify(np.zeros((2, 8, 8, 1), np.uint8)).shape == (2, 10)


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
  ],
)
def test_a_setting_that_cannot_be_a_flag_is_refused(name, message):
  with pytest.raises(UsageError) as caught:
    flags.parse(['run', f'--process=own_processes:{name}'])
  text = str(caught.value)
  assert text.startswith(f'--process=own_processes:{name}: ')
  assert message in text and text.endswith(('.', '?'))
