"""The classifier of a run as a SavedModel."""

import json
import shutil
import sys

import costs
import numpy as np
import pytest
import run_folders
import tensorflow as tf

from datasets.sources import catalogue
from experiments import export
from experiments.running import classifiers
from tff_ssl.common import user_modules


@pytest.mark.parametrize(
  'process, flags',
  costs.rest_in(
    'runs',
    [
      ('ssjo', ['--mask_ratio=0.5', '--norm=batch']),
      ('fedmatch', ['--num_helpers=1']),
    ],
    dear=True,
  ),
)
def test_it_classifies_as_the_run_did(
  process, flags, tmp_path, cache, tff_context
):
  folder = tmp_path / 'run'
  short = (f'--process={process}', '--dataset=digits', '--total_rounds=2')
  summary = run_folders.train(folder, *short, cache, *flags)
  assert export.main(['export', str(folder)]) == 0
  classify = tf.saved_model.load(str(folder / 'classifier'))
  names = json.loads((folder / 'classifier' / 'classes.json').read_text())
  assert names == {'class_names': list('0123456789')}
  test = catalogue.load('digits', data_dir=None, cache_dir='').test
  logits = classify(test.examples)
  accuracy = np.mean(np.argmax(logits, axis=1) == test.labels)
  assert accuracy == pytest.approx(summary['accuracy'])
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(test.labels, logits)
  assert np.mean(losses) == pytest.approx(summary['test_loss'], rel=1e-5)
  # A digit in 255 steps of 0 to 1 is the same digit, whatever the type.
  for dtype in (np.float32, np.float64):
    scaled = classify((test.examples / 255).astype(dtype))
    np.testing.assert_allclose(scaled, logits, rtol=1e-4, atol=1e-4)
  with pytest.raises(tf.errors.InvalidArgumentError, match=r'in \[0, 1\]'):
    classify(test.examples.astype(np.float32))
  with pytest.raises(ValueError, match='matching concrete function'):
    classify(test.examples.astype(np.int64))
  with pytest.raises(tf.errors.InvalidArgumentError, match='images'):
    classify(np.full([1, 8, 8, 1], np.nan, np.float32))
  serve = classify.signatures['serving_default']
  # TensorFlow casts numpy's arrays to the type of a signature.
  with pytest.raises(tf.errors.InvalidArgumentError, match=r'in \[0, 1\]'):
    serve(images=test.examples)
  served = serve(images=(test.examples[:3] / 255).astype(np.float32))
  both = classify.with_probabilities(test.examples[:3])
  np.testing.assert_allclose(served['logits'], both['logits'], atol=1e-4)
  np.testing.assert_allclose(served['logits'], logits[:3], rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
    served['probabilities'], tf.nn.softmax(logits[:3]), rtol=1e-4, atol=1e-5
  )


def begun(folder):
  folder.mkdir()
  (folder / 'flags.txt').write_text('--process=fedavg\n--dataset=digits\n')


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda folder: None, 'holds no run: name a folder'),
    (lambda folder: folder.mkdir(), 'holds no run: name a folder'),
    (
      lambda folder: (folder / 'classifier').mkdir(parents=True),
      'classifier exists: name another folder',
    ),
    (begun, 'holds no checkpoint'),
  ],
)
def test_what_cannot_be_exported(make, message, tmp_path, error_of):
  folder = tmp_path / 'run'
  make(folder)
  before = sorted(tmp_path.rglob('*'))
  assert message in error_of(export.main, folder)
  assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.parametrize('given', [False, True])
def test_a_network_is_imported_where_the_user_names_it(
  given, tmp_path, monkeypatch, capsys
):
  """And not because the run folder does."""
  name = 'canary_of_export:f'
  (tmp_path / 'canary_of_export.py').write_text('f = len\n')
  monkeypatch.syspath_prepend(tmp_path)
  folder = tmp_path / 'run'
  folder.mkdir()
  (folder / 'flags.txt').write_text('--process=grouping\n')

  def export_it(run_dir, output):
    user_modules.load('model', name)
    output.mkdir()
    return 3

  monkeypatch.setattr(classifiers, 'export', export_it)
  own = [f'--model={name}'] if given else []
  code = export.main(['export', str(folder), *own])
  assert code == (0 if given else 2)
  assert ('canary_of_export' in sys.modules) == given
  error = capsys.readouterr().err
  assert given or 'give --model, too' in error
  sys.modules.pop('canary_of_export', None)


@pytest.mark.runs
def test_the_data_may_be_gone_and_a_classifier_not_trained_yet(
  tmp_path, tff_context, error_of
):
  digits = catalogue.load('digits', data_dir=None, cache_dir='')
  data, cache, folder = (tmp_path / name for name in ('data', 'cache', 'run'))
  data.mkdir()
  for name, split in (('train', digits.train), ('test', digits.test)):
    np.savez(data / f'{name}.npz', images=split.examples, labels=split.labels)
  run_folders.train(
    folder,
    *('--process=sspt', '--dataset=npz', f'--data_dir={data}'),
    *(f'--cache_dir={cache}', '--num_clients=2', '--clients_per_round=2'),
    *('--mask_ratio=0.5', '--pretraining_rounds=1', '--total_rounds=2'),
  )
  shutil.rmtree(data)
  shutil.rmtree(cache)
  output = tmp_path / 'new' / 'model'
  assert export.main(['export', str(folder), f'--output={output}']) == 0
  assert tf.saved_model.load(str(output))(digits.test.examples).shape == (
    360,
    10,
  )
  assert [path.name for path in output.parent.iterdir()] == ['model']
  first, last = sorted((folder / 'checkpoints').glob('round_*'))
  shutil.rmtree(last)
  error = error_of(export.main, folder)
  assert 'train no classifier (--pretraining' in error
  (first / 'classifier.npz').write_bytes(b'')
  error = error_of(export.main, folder)
  assert 'has a sound classifier.npz' in error
  assert 'classifier.npz does not match its SHA-256' in error
