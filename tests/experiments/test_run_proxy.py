"""Whole runs of processes with a proxy task: figures and pictures of it."""

import json

import pandas as pd
import pytest
from PIL import Image

from experiments import run

pytestmark = pytest.mark.runs

HAS_PICTURES = True
SMALL = (
  '--dataset=digits',
  '--num_clients=6',
  '--clients_per_round=6',
  '--learning_rate=0.01',
  '--rounds_per_evaluation=1',
)
PICTURE = 'reconstructions.png'
PRETRAINING_PICTURE = 'reconstructions_pretraining.png'
UNEQUAL_COLUMNS = ['seconds', 'python_mib', 'worker_mib']


def main(folder, *arguments):
  return run.main(['run', *SMALL, f'--run_dir={folder}', *arguments])


def files_of(folder):
  table = pd.read_csv(folder / 'metrics.csv')
  return table, json.loads((folder / 'summary.json').read_text())


def pictures_of(folder):
  return {path.name for path in folder.glob('reconstructions*.png')}


def first_half(table):
  """The first round with a test accuracy of one half, in plain Python."""
  rows = zip(table['round'], table['accuracy'], strict=True)
  return next((n for n, accuracy in rows if accuracy >= 0.5), None)


def test_joint_training_improves_the_proxy_task(tmp_path, cache, tff_context):
  folder = tmp_path / 'run'
  arguments = ('--process=ssjo', cache)
  assert main(folder, *arguments, '--total_rounds=4') == 0
  table, summary = files_of(folder)
  losses = table['test_proxy_loss']
  # Falling, from below that of a decoder that knows nothing: ln 2.
  assert losses.is_monotonic_decreasing and losses.is_unique
  assert 0.2 < losses.iloc[-1] < losses.iloc[0] < 0.69
  assert summary['test_proxy_loss'] == losses.iloc[-1]
  assert summary['rounds_to_half'] == first_half(table) is not None
  assert pictures_of(folder) == {PICTURE}
  with Image.open(folder / PICTURE) as picture:
    # Ten classes of 0.8 inches at 120 dots per inch.
    assert picture.width == 960


def test_a_resumed_run_has_the_same_rows(tmp_path, cache, tff_context):
  arguments = ('--process=sspt', '--pretraining_rounds=2', cache)
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  assert main(whole, *arguments, '--total_rounds=4') == 0
  assert main(parts, *arguments, '--total_rounds=3') == 0
  table, summary = files_of(parts)
  assert summary['rounds_to_half'] == first_half(table)
  earlier = {
    name: (parts / name).read_bytes() for name in (PICTURE, PRETRAINING_PICTURE)
  }
  assert main(parts, *arguments, '--total_rounds=4') == 0
  tables = [files_of(folder)[0] for folder in (whole, parts)]
  pd.testing.assert_frame_equal(
    *(table.drop(columns=UNEQUAL_COLUMNS) for table in tables)
  )
  assert tables[0]['test_proxy_loss'].notna().all()
  for folder in (whole, parts):
    assert pictures_of(folder) == {PICTURE, PRETRAINING_PICTURE}
  # The first stage was over before; the last round is another one.
  for name, content in earlier.items():
    same = (parts / name).read_bytes() == content
    assert same == (name == PRETRAINING_PICTURE)
    assert (parts / name).read_bytes() == (whole / name).read_bytes()


def test_rotations_have_a_loss_and_no_picture(tmp_path, cache, tff_context):
  folder = tmp_path / 'run'
  arguments = ('--process=ssjo', '--proxy_task=rotation', cache)
  assert main(folder, *arguments, '--total_rounds=1') == 0
  table, summary = files_of(folder)
  assert 0 < summary['test_proxy_loss'] == table['test_proxy_loss'].iloc[0] < 3
  assert not pictures_of(folder)
