"""Runs on a user's folder of pictures, from the files to the end."""

import numpy as np
import pytest
import run_folders
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


ROBUST = ('--process=grouping_robust', '--server_examples=20', '--model=dense')


@pytest.fixture
def of_folder(folder):
  """The flags of a run on the folder, but for its process and its place."""
  return (
    *('--dataset=image_folder', '--image_folder_side=8'),
    *(f'--data_dir={folder / "data"}', f'--cache_dir={folder / "cache"}'),
  )


@pytest.mark.runs
def test_a_dry_run_understands_the_folder(folder, of_folder, capsys):
  where = f'--run_dir={folder / "run"}'
  assert run.main(['run', *of_folder, *ROBUST, where, '--dry_run']) == 0
  said = capsys.readouterr().out
  assert '--partition=native' in said and '--image_folder_side=8' in said
  assert 'in data: 180 train, 20 validation and 60 test examples' in said
  assert '120 of the training examples have no label' in said
  assert '2 clients with 60/60/60 examples' in said
  assert 'from 1 of 3 clients' in said
  assert not (folder / 'run').exists()


@pytest.mark.runs
def test_test_images_have_no_owners(of_folder, error_of):
  asked = ('--rounds_per_client_evaluation=1', '--dry_run')
  error = error_of(run.main, *of_folder, *ROBUST, *asked)
  assert 'image_folder' in error and 'leave the flag out' in error


@pytest.mark.dear
def test_three_rounds(folder, of_folder, tff_context):
  flags = ('--total_rounds=3', '--server_warmup_rounds=1')
  summary = run_folders.train(
    folder / 'run', *of_folder, *ROBUST, *flags, '--rounds_per_evaluation=1'
  )
  # Chance is .5.
  assert summary['accuracy'] > 0.8
  table = run_folders.metrics_of(folder / 'run')
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
def test_other_processes_learn(folder, of_folder, process):
  """Clients have labels of a third of their pictures."""
  flags = ('--total_rounds=15', '--rounds_per_evaluation=15')
  summary = run_folders.train(folder / 'run', *of_folder, *process, *flags)
  assert summary['accuracy'] > 0.8


@pytest.mark.runs
def test_fedul_learns_from_sets_of_labelled_pictures(folder, of_folder):
  """A set has pictures of all clients, and shares of the classes."""
  for unlabelled in list((folder / 'data').rglob('_unlabelled')):
    for path in list(unlabelled.iterdir()):
      name = path.stem.rstrip('0123456789')
      path.rename(unlabelled.with_name(name) / path.name)
    unlabelled.rmdir()
  flags = ('--num_clients=2', '--total_rounds=40', '--rounds_per_evaluation=40')
  summary = run_folders.train(
    folder / 'run', *of_folder, '--process=fedul', *flags
  )
  assert summary['flags']['partition'] == 'u_sets'
  assert summary['accuracy'] > 0.8
