"""Runs on texts: each way of using what has no label learns."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from matplotlib import pyplot

from experiments import export, predict, run

_FLAGS = (
  *('--num_clients=10', '--clients_per_round=10', '--text_length=40'),
  *('--total_rounds=20', '--rounds_per_evaluation=20'),
)


def _sentences(module):
  found = set()
  for name in dir(module):
    text = ' '.join(str(getattr(module, name).__doc__).split())
    found.update(s for s in text.split('. ') if 30 < len(s) < 300)
  return sorted(found)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
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
def test_it_learns(folder, tmp_path, process, flags, capsys):
  code = run.main(
    [
      'run',
      f'--process={process}',
      '--dataset=text',
      f'--data_dir={folder}',
      f'--cache_dir={tmp_path}',
      f'--run_dir={tmp_path / "run"}',
      *_FLAGS,
      *flags,
    ]
  )
  assert code == 0
  summary = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  # Four standard deviations above the share of the larger class.
  assert summary['accuracy'] > 0.53 + 4 * (0.25 / 300) ** 0.5

  assert export.main(['export', str(tmp_path / 'run')]) == 0
  test = pd.read_csv(folder / 'test.csv')
  classify = tf.saved_model.load(str(tmp_path / 'run' / 'classifier'))
  best = np.argmax(classify(tf.constant(test['text'].tolist())), axis=1)
  predicted = np.array(['numbers', 'pictures'])[best]
  assert np.mean(predicted == test['label']) == pytest.approx(
    summary['accuracy']
  )
  capsys.readouterr()
  table = predict.predict(tmp_path / 'run', [str(folder / 'test.csv')])
  assert table['predicted'].tolist() == predicted.tolist()


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--process=semifl'], 'does not take the texts of --dataset=text'),
    (['--process=fedmatch'], 'does not take the texts of --dataset=text'),
    (['--model=dense'], 'does not take the tokens of --dataset=text'),
    (['--vector_noise=1'], 'has tokens, not vectors'),
    (['--dataset=digits', '--token_shuffle=1'], 'has images, not tokens'),
    (['--token_dropout=1'], '--token_dropout=1.0 must be'),
  ],
)
def test_what_does_not_fit_is_refused(folder, capsys, flags, message):
  argv = ['run', '--process=grouping', '--dataset=text', '--dry_run']
  assert run.main([*argv, f'--data_dir={folder}', *flags]) == 2
  assert message in capsys.readouterr().err


def test_a_proxy_task_of_images_is_refused(folder, capsys, tmp_path):
  argv = ['run', '--process=ssjo', '--dataset=text', '--dry_run']
  argv += [f'--data_dir={folder}', f'--cache_dir={tmp_path}']
  for task in ('reconstruction', 'rotation'):
    assert run.main([*argv, f'--proxy_task={task}']) == 2
    assert capsys.readouterr().err.count('\n') == 1
