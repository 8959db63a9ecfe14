"""The example of a user's own algorithm does what its page says."""

import shutil

import numpy as np
import pandas as pd
import pytest
import pythons
import run_folders
import tensorflow as tf

from examples import own_algorithm
from experiments import report, run
from experiments.tables import recipes
from tff_ssl.testing import CHECKS
from tff_ssl.testing import __main__ as testing_command

_NAME = 'examples.own_algorithm:SPEC'
_OWN = f'--process={_NAME}'
_SMALL = (*run_folders.SMALL, '--rounds_per_evaluation=1')


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return f'--cache_dir={tmp_path_factory.mktemp("cache")}'


@pytest.fixture(scope='module')
def finished(tmp_path_factory, cache):
  """A run of two rounds."""
  folder = tmp_path_factory.mktemp('own') / 'run'
  more = ('--sent_share=0.2', '--total_rounds=2')
  run_folders.train(folder, _OWN, *_SMALL, *more, cache)
  return folder


@pytest.mark.parametrize('share, kept', [(0.25, 3), (0.01, 1), (1.0, 12)])
def test_keeps_the_largest_entries(share, kept):
  tensor = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
  least = np.sort(np.abs(tensor), axis=None)[-kept]
  expected = np.where(np.abs(tensor) >= least, tensor, 0)
  sent = own_algorithm.largest_entries(tf.constant(tensor), share)
  np.testing.assert_array_equal(sent, expected)
  assert np.count_nonzero(sent) == kept


def test_nan_stays():
  tensor = tf.constant([3.0, float('nan'), 1.0, 2.0])
  assert np.isnan(own_algorithm.largest_entries(tensor, 0.25)).any()


@pytest.mark.notebooks
def test_keeps_all_promises(capsys):
  assert testing_command.main(['tff_ssl.testing', _NAME]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert f'{len(CHECKS)} of {len(CHECKS)} promises kept' in lines[-1]


def test_help_and_refusals_come_without_tensorflow():
  code = (
    'import sys; from experiments import run; '
    f"shared = ['run', '{_OWN}', '--dataset=digits']; "
    "run.main([*shared, '--help']); "
    "ended = run.main([*shared, '--sent_share=2']); "
    "sys.exit(ended if 'tensorflow' not in sys.modules else 'imported')"
  )
  ended = pythons.run('-c', code)
  assert ended.returncode == 2, ended.stderr
  assert '  --sent_share=0.1  (algorithm)\n' in ended.stdout
  assert 'Share sent. A number > 0 and <= 1.' in ended.stdout
  assert '--sent_share=2.0 must be a number > 0 and <= 1.' in ended.stderr


@pytest.mark.parametrize(
  'arguments, message',
  [
    ((_OWN, '--sent_share=0'), '--sent_share=0.0 must be a number > 0'),
    ((_OWN, '--sent_share=half'), '--sent_share=half'),
    ((_OWN, '--sent_shar=0.5'), 'did you mean --sent_share?'),
    (
      (_OWN, '--threshold=0.5'),
      '--threshold=0.5 has no effect: the process sparse_fed_avg does not',
    ),
    ((_OWN, '--augmentation=weak'), '--augmentation=weak has no effect'),
    ((_OWN, '--local_steps=2', '--local_epochs=1'), 'exclude each other'),
    # A setting of this process alone.
    (('--process=fedavg', '--sent_share=0.5'), '--sent_share is no flag'),
  ],
)
def test_refusals(arguments, message, error_of):
  assert message in error_of(run.main, *arguments, '--dataset=digits')


@pytest.mark.notebooks
def test_a_run_records_the_setting_and_its_process(finished, capsys):
  summary = run_folders.summary_of(finished)
  assert summary['process'] == _NAME and summary['rounds'] == 2
  assert summary['flags']['sent_share'] == 0.2
  assert '--sent_share=0.2\n' in (finished / 'flags.txt').read_text()
  assert 0 <= summary['accuracy'] <= 1
  output = finished.parent / 'report'
  assert report.main(['report', str(finished), f'--output={output}']) == 0
  table = capsys.readouterr().out
  assert _NAME in table


@pytest.mark.notebooks
def test_resumes_from_its_flag_file_bit_for_bit(
  finished, cache, tmp_path, capsys
):
  three = ('--total_rounds=3', '--sent_share=0.2')
  whole = run_folders.train(tmp_path / 'a', _OWN, *_SMALL, *three, cache)
  cut = tmp_path / 'cut'
  shutil.copytree(finished, cut)
  flag_file = f'--flagfile={cut / "flags.txt"}'
  changed = ('run', flag_file, f'--run_dir={cut}', '--sent_share=0.3')
  assert run.main([*changed]) == 2
  rows = [line.split() for line in capsys.readouterr().err.splitlines()]
  assert ['sent_share', '0.2', '0.3'] in rows
  resumed = run_folders.train(cut, flag_file, '--total_rounds=3')
  assert 'Resuming after round 2.' in capsys.readouterr().out
  assert resumed['weights_sha256'] == whole['weights_sha256']


@pytest.mark.notebooks
def test_a_whole_update_is_that_of_fed_avg(cache, tmp_path):
  runs = {'own': (_OWN, '--sent_share=1'), 'library': ('--process=fedavg',)}
  short = (*_SMALL, '--total_rounds=2', cache)
  own, library = (
    run_folders.train(tmp_path / name, *arguments, *short)['weights_sha256']
    for name, arguments in runs.items()
  )
  assert own == library
  own, library = (
    run_folders.metrics_of(tmp_path / name)['train_loss'] for name in runs
  )
  pd.testing.assert_series_equal(own, library)


def test_a_row_of_a_table_of_ones_own(tmp_path):
  table = tmp_path / 'own.csv'
  row = f'a,{_OWN} --dataset=digits --total_rounds=4 --sent_share=0.2,,,0,'
  table.write_text(f'row,flags,published,source,seeds,note\n{row}\n')
  same = recipes.make({'recipe': f'{table}:a'})
  assert same.used['sent_share'] == 0.2 and not recipes.changes(same)
  assert recipes.facts(same)['recipe'] == f'{table}:a'
  other = recipes.make({'recipe': f'{table}:a', 'sent_share': 0.5})
  assert recipes.changes(other) == {'sent_share': (0.2, 0.5)}
