"""Runs on tables and texts: each way of using what has no label learns."""

import costs
import numpy as np
import pandas as pd
import pytest
import run_folders
import tensorflow as tf
from matplotlib import pyplot
from sklearn import datasets

from experiments import export, predict, run
from experiments.config.command_line import UsageError


@pytest.fixture(scope='module')
def measured(tmp_path_factory):
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


def _sentences(module):
  found = set()
  for name in dir(module):
    text = ' '.join(str(getattr(module, name).__doc__).split())
    found.update(s for s in text.split('. ') if 30 < len(s) < 300)
  return sorted(found)


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  """Sentences of docstrings: are they numpy's or pyplot's?"""
  parts = [
    pd.DataFrame({'text': _sentences(module)[:800], 'label': name})
    for name, module in (('numbers', np), ('pictures', pyplot))
  ]
  frame = pd.concat(parts).sample(frac=1, random_state=0)
  folder = tmp_path_factory.mktemp('texts')
  frame[:-300].to_csv(folder / 'train.csv', index=False)
  frame[-300:].to_csv(folder / 'test.csv', index=False)
  return folder


@pytest.fixture
def learn(tmp_path):
  """Trains more than so well; returns the run's folder, and a classifier.

  That is a function from examples to names of classes; it has the accuracy of
  the run's summary.
  """

  def train(folder, to_examples, least, *flags):
    run_dir = tmp_path / 'run'
    where = (f'--data_dir={folder}', f'--cache_dir={tmp_path}')
    accuracy = run_folders.train(run_dir, *where, *flags)['accuracy']
    assert accuracy > least
    assert export.main(['export', str(run_dir)]) == 0
    model = tf.saved_model.load(str(run_dir / 'classifier'))
    test = pd.read_csv(folder / 'test.csv')
    best = np.argmax(model(to_examples(test)), axis=1)
    predicted = np.unique(test['label'])[best]
    assert np.mean(predicted == test['label']) == pytest.approx(accuracy)
    return run_dir, predicted.tolist()

  return train


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
def test_it_learns_from_a_table(
  measured, learn, tmp_path, process, flags, least
):
  """63% of the test rows are benign."""
  run_dir, predicted = learn(
    measured,
    lambda test: np.float32(
      test.drop(columns=['label', 'client_id']).sort_index(axis=1)
    ),
    least,
    *(f'--process={process}', '--dataset=table', *flags),
    *('--total_rounds=30', '--rounds_per_evaluation=30'),
  )
  confusion = pd.read_csv(run_dir / 'confusion.csv', index_col=0)
  assert list(confusion.columns) == ['benign', 'malignant']
  # The columns as the user has them, labels or none, in any order.
  test = pd.read_csv(measured / 'test.csv')
  new = tmp_path / 'new.csv'
  test.drop(columns='label').iloc[:, ::-1].to_csv(new, index=False)
  found = predict.predict(run_dir, [new])
  assert found['predicted'].tolist() == predicted
  test.drop(columns='mean radius').to_csv(new, index=False)
  with pytest.raises(UsageError, match="'mean radius'.*missing"):
    predict.predict(run_dir, [new])
  with pytest.raises(UsageError, match='unknown ending.*csv or .parquet'):
    predict.predict(run_dir, [tmp_path / 'new.npz'])


@pytest.mark.runs
@pytest.mark.parametrize(
  'process, flags',
  [
    ('recommended', []),
    ('fedlabel', ['--mask_ratio=0.5']),
    ('ssjo', ['--mask_ratio=0.5']),
    ('fedul', ['--partition=u_sets', '--sets_per_client=5']),
  ],
)
def test_it_learns_from_texts(texts, learn, process, flags):
  run_dir, predicted = learn(
    texts,
    lambda test: tf.constant(test['text'].tolist()),
    # Four standard deviations above the share of the larger class.
    0.53 + 4 * (0.25 / 300) ** 0.5,
    *(f'--process={process}', '--dataset=text', '--text_length=40', *flags),
    *('--num_clients=10', '--clients_per_round=10'),
    *('--total_rounds=20', '--rounds_per_evaluation=20'),
  )
  found = predict.predict(run_dir, [str(texts / 'test.csv')])
  assert found['predicted'].tolist() == predicted


@pytest.mark.parametrize('task', ['reconstruction', 'rotation'])
def test_a_proxy_task_of_images_is_refused(texts, tmp_path, error_of, task):
  given = ('--process=ssjo', '--dataset=text', f'--proxy_task={task}')
  where = (f'--data_dir={texts}', f'--cache_dir={tmp_path}')
  assert error_of(run.main, *given, *where, '--dry_run')
