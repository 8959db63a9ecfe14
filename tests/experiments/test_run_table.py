"""Runs on a table: each way of using what has no label learns."""

import json

import costs
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn import datasets

from experiments import export, predict, run
from experiments.config.usage import UsageError


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Breast cancer (scikit-learn): 30 measurements, ten owners."""
  bunch = datasets.load_breast_cancer(as_frame=True)
  frame = bunch.frame.sample(frac=1, random_state=0)
  names = {0: 'malignant', 1: 'benign'}
  frame['label'] = frame.pop('target').map(names)
  frame['client_id'] = np.arange(len(frame)) % 10
  folder = tmp_path_factory.mktemp('table')
  frame[:400].to_csv(folder / 'train.csv', index=False)
  frame[400:].to_csv(folder / 'test.csv', index=False)
  return folder


@pytest.mark.parametrize(
  'process, flags, least',
  costs.rest_in(
    'runs',
    [
      ('grouping', ['--server_examples=20'], 0.9),
      ('fedlabel', [], 0.9),
      ('ssjo', [], 0.85),
      (
        'fedul',
        ['--partition=u_sets', '--num_clients=5', '--sets_per_client=5'],
        0.85,
      ),
    ],
    dear=True,
  ),
)
def test_it_learns(folder, tmp_path, process, flags, least):
  code = run.main(
    [
      'run',
      f'--process={process}',
      '--dataset=table',
      f'--data_dir={folder}',
      f'--cache_dir={tmp_path}',
      f'--run_dir={tmp_path / "run"}',
      '--total_rounds=30',
      '--rounds_per_evaluation=30',
      *flags,
    ]
  )
  assert code == 0
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  # 63% of the test rows are benign.
  assert summary['accuracy'] > least
  confusion = pd.read_csv(tmp_path / 'run' / 'confusion.csv', index_col=0)
  assert list(confusion.columns) == ['benign', 'malignant']

  assert export.main(['export', str(tmp_path / 'run')]) == 0
  classify = tf.saved_model.load(str(tmp_path / 'run' / 'classifier'))
  test = pd.read_csv(folder / 'test.csv')
  x = test.drop(columns=['label', 'client_id']).to_numpy()
  predicted = np.array(['benign', 'malignant'])[
    np.argmax(classify(x.astype(np.float32)), axis=1)
  ]
  assert np.mean(predicted == test['label']) == pytest.approx(
    summary['accuracy']
  )
  # The columns as the user has them, labels or none, in any order.
  new = tmp_path / 'new.csv'
  test.drop(columns='label').iloc[:, ::-1].to_csv(new, index=False)
  table = predict.predict(tmp_path / 'run', [new])
  assert table['predicted'].tolist() == predicted.tolist()
  test.drop(columns='mean radius').to_csv(new, index=False)
  with pytest.raises(UsageError, match="'mean radius'.*missing"):
    predict.predict(tmp_path / 'run', [new])
  with pytest.raises(UsageError, match='unknown ending.*csv or .parquet'):
    predict.predict(tmp_path / 'run', [tmp_path / 'new.npz'])


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--model=small_cnn'], 'does not take the vectors of --dataset=table'),
    (['--augment_flip=true'], 'has vectors, not images'),
    (['--dataset=digits', '--vector_noise=1'], 'has images, not vectors'),
    (['--vector_noise=1', '--views=plain'], 'leaves examples as they are'),
  ],
)
def test_what_does_not_fit_is_refused(folder, capsys, flags, message):
  code = run.main(
    [
      'run',
      '--process=grouping',
      '--dataset=table',
      f'--data_dir={folder}',
      '--dry_run',
      *flags,
    ]
  )
  assert code == 2
  assert message in capsys.readouterr().err
