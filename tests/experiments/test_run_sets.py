"""Whole runs on sets without labels: a user's folder of images, to the end."""

import numpy as np
import pandas as pd
import pytest
import run_folders
import tensorflow as tf
from PIL import Image
from sklearn import datasets

from experiments import export, predict

SYSTEMS = ('north', 'south')
# Of each hospital of a system, the share of the second class.
SHARES = {'harbour': 0.2, 'hill': 0.8}

HAS_PICTURES = True


@pytest.fixture
def folder(tmp_path):
  """Two systems of two hospitals: digits 0 are 'healthy', digits 1 'ill'."""
  digits = datasets.load_digits()
  pools = [
    iter(np.uint8(digits.images[digits.target == label] * 15.9))
    for label in range(2)
  ]

  def write(label, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(next(pools[label])).save(path)

  rows = ['system,hospital,healthy,ill']
  for system in SYSTEMS:
    for hospital, share in SHARES.items():
      rows.append(f'{system},{hospital},{1 - share:.1f},{share:.1f}')
      for number in range(50):
        place = tmp_path / 'data' / 'train' / system / hospital
        write(int(number < 50 * share), place / f'{number}.png')
  for label, name in enumerate(('healthy', 'ill')):
    for number in range(50):
      write(label, tmp_path / 'data' / 'test' / name / f'{number}.png')
  (tmp_path / 'data' / 'prevalence.csv').write_text('\n'.join(rows) + '\n')
  return tmp_path


@pytest.fixture
def flags(folder):
  return (
    *('--dataset=image_sets', '--model=dense', '--clients_per_round=2'),
    *(f'--data_dir={folder / "data"}', f'--cache_dir={folder / "cache"}'),
  )


@pytest.mark.dear
def test_prevalences_in_classifier_out(folder, flags, tff_context):
  more = ('--batch_size=20', '--learning_rate=0.01', '--l1_weight=0')
  short = ('--process=fedul', '--total_rounds=6')
  summary = run_folders.train(folder / 'run', *flags, *short, *more)
  # Chance is .5.
  assert summary['accuracy'] > 0.8
  table = run_folders.metrics_of(folder / 'run')
  assert (table['clients_participating'] == 2).all()
  # Nobody's class is known, so that there is nothing to count or to measure.
  assert summary['measured_r'] is None
  assert not (folder / 'run' / 'partition.csv').exists()
  assert export.main(['export', str(folder / 'run')]) == 0
  classify = tf.saved_model.load(str(folder / 'run' / 'classifier'))
  files = sorted((folder / 'data' / 'test').glob('*/*.png'))
  images = np.stack([np.asarray(Image.open(path)) for path in files])
  found = np.argmax(classify(images[..., np.newaxis]), axis=1)
  ill = [path.parent.name == 'ill' for path in files]
  assert np.mean(found == ill) == pytest.approx(summary['accuracy'])
  # Each file by the names of the classes that the table has.
  table = predict.predict(folder / 'run', files)
  right = table['predicted'] == [path.parent.name for path in files]
  assert right.mean() == pytest.approx(summary['accuracy'])
  counts = pd.read_csv(folder / 'run' / 'confusion.csv', index_col=0)
  assert counts.index.tolist() == list(counts.columns) == ['healthy', 'ill']


@pytest.mark.runs
def test_baseline_on_whole_sets(folder, flags, tff_context):
  short = ('--process=fedllp_vat', '--total_rounds=1')
  run_folders.train(folder / 'run', *flags, *short)
  (loss,) = run_folders.metrics_of(folder / 'run')['train_loss']
  assert np.isfinite(loss)
