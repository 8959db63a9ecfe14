"""Runs on a user's folder of pictures, from the files to the end."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn import datasets

from experiments import export, predict, run

NAMES = ('one', 'zero')
CLIENTS = ('hill', 'lake', 'moor')


@pytest.fixture
def folder(tmp_path):
  """Digits 0 and 1, enlarged to pictures of other sizes and forms."""
  digits = datasets.load_digits()
  pools = {
    name: iter(np.uint8(digits.images[digits.target == label] * 15.9))
    for label, name in enumerate(reversed(NAMES))
  }

  def write(name, path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(next(pools[name])).resize((24, 24))
    wide = Image.new('L', (24 + number % 5, 24))
    wide.paste(picture)
    wide.save(path.with_suffix(('.png', '.jpg')[number % 2]))

  root = tmp_path / 'data'
  for name in NAMES:
    for number in range(30):
      for client in CLIENTS:
        kind = '_unlabelled' if number % 3 else name
        write(name, root / 'train' / client / kind / f'{name}{number}', number)
      write(name, root / 'test' / name / str(number), number)
    for number in range(10):
      write(name, root / 'validation' / name / str(number), number)
  return tmp_path


def main(
  folder,
  *arguments,
  process=(
    '--process=grouping_robust',
    '--server_examples=20',
    '--model=dense',
  ),
):
  return run.main(
    [
      *('run', '--dataset=image_folder', '--image_folder_side=8', *process),
      f'--data_dir={folder / "data"}',
      f'--cache_dir={folder / "cache"}',
      f'--run_dir={folder / "run"}',
      *arguments,
    ]
  )


@pytest.mark.runs
def test_a_dry_run_understands_the_folder(folder, capsys):
  assert main(folder, '--dry_run') == 0
  said = capsys.readouterr().out
  assert '--partition=native' in said and '--image_folder_side=8' in said
  assert 'images in data: 180 train, 60 test, 20 validation examples' in said
  assert '120 of the training images have no label' in said
  assert '2 clients with 60/60/60 examples' in said
  assert 'from 1 of 3 writers' in said
  assert not (folder / 'run').exists()


def test_what_cannot_be_learnt_is_one_sentence(folder, capsys):
  place = folder / 'data' / 'test' / 'one'
  place.rename(place.with_name('seven'))
  assert main(folder) == 2
  error = capsys.readouterr().err
  assert error.startswith('error: ') and error.count('\n') == 1
  assert "test/seven: no training image has the class 'seven'" in error


@pytest.mark.runs
def test_test_images_have_no_owners(folder, capsys):
  assert main(folder, '--rounds_per_client_evaluation=1', '--dry_run') == 2
  error = capsys.readouterr().err
  assert 'image_folder' in error and 'leave the flag out' in error


@pytest.mark.dear
def test_three_rounds(folder, tff_context):
  flags = ('--total_rounds=3', '--server_warmup_rounds=1')
  assert main(folder, *flags, '--rounds_per_evaluation=1') == 0
  summary = json.loads((folder / 'run' / 'summary.json').read_text())
  # Chance is .5.
  assert summary['accuracy'] > 0.8
  table = pd.read_csv(folder / 'run' / 'metrics.csv')
  assert len(table) == 3
  assert table['validation_accuracy'].between(0, 1).all()
  assert (table['mask_rate'].iloc[1:] > 0).all()

  # New pictures have any size, as those of the folder.
  assert export.main(['export', str(folder / 'run')]) == 0
  files = sorted((folder / 'data' / 'test').rglob('*.*'))
  found = predict.predict(folder / 'run', files)
  truth = [file.parent.name for file in files]
  assert np.mean(found['predicted'] == truth) == pytest.approx(
    summary['accuracy']
  )


@pytest.mark.runs
@pytest.mark.parametrize(
  'process',
  [
    ('--process=fedlabel', '--model=dense'),
    ('--process=ssjo', '--model=dense_encoder'),
    ('--process=fedavg', '--model=dense', '--class_weights=balanced'),
  ],
)
def test_other_processes_learn(folder, process):
  """Clients have labels of a third of their pictures."""
  flags = ('--total_rounds=15', '--rounds_per_evaluation=15')
  assert main(folder, *flags, process=process) == 0
  summary = json.loads((folder / 'run' / 'summary.json').read_text())
  assert summary['accuracy'] > 0.8


@pytest.mark.runs
def test_fedul_learns_from_sets_of_labelled_pictures(folder):
  """A set has pictures of all clients, and shares of the classes."""
  for unlabelled in list((folder / 'data').rglob('_unlabelled')):
    for path in list(unlabelled.iterdir()):
      name = path.stem.rstrip('0123456789')
      path.rename(unlabelled.with_name(name) / path.name)
    unlabelled.rmdir()
  flags = ('--num_clients=2', '--total_rounds=40', '--rounds_per_evaluation=40')
  assert main(folder, *flags, process=('--process=fedul',)) == 0
  summary = json.loads((folder / 'run' / 'summary.json').read_text())
  assert summary['flags']['partition'] == 'u_sets'
  assert summary['accuracy'] > 0.8
