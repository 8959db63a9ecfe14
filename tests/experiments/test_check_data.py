"""The command that says what was understood of a user's data."""

import numpy as np
import pytest

from datasets.sources import catalogue
from experiments import check_data

IMAGES = np.random.default_rng(1).integers(0, 256, [30, 8, 8], np.uint8)
LABELS = np.arange(30) % 2


def _npz(folder):
  np.savez(folder / 'train.npz', images=IMAGES[:20], labels=LABELS[:20])
  np.savez(folder / 'test.npz', images=IMAGES[18:], labels=LABELS[18:])


def _table(folder):
  for name in ('train', 'test'):
    (folder / f'{name}.csv').write_text('label,a\nx,1\ny,2\n')


@pytest.mark.parametrize(
  'write, lines',
  [
    (
      _npz,
      ['--dataset=npz.', '0: 10, 1: 10', '2 of the 12 test examples are in'],
    ),
    (_table, ['--dataset=table.', 'vectors of 1', 'Fewer than 5']),
  ],
)
def test_a_folder_is_recognised(tmp_path, capsys, write, lines):
  write(tmp_path)
  assert check_data.main(['check_data', str(tmp_path)]) == 0
  printed = capsys.readouterr().out
  for line in lines:
    assert line in printed


@pytest.mark.parametrize(
  'names, dataset',
  [
    (['train', 'test'], 'image_folder'),
    (['train', 'test', 'prevalence.csv'], 'image_sets'),
    (['train.npz', 'priors.csv'], 'npz_sets'),
    (['train.parquet'], 'table'),
  ],
)
def test_signs(tmp_path, names, dataset):
  for name in names:
    (tmp_path / name).mkdir()
  assert catalogue.recognise(tmp_path) == dataset


def test_two_kinds_in_one_folder_are_not_guessed(tmp_path):
  for name in ('train.csv', 'train.npz'):
    (tmp_path / name).write_text('label,a\nx,1\ny,2\n')
  with pytest.raises(ValueError, match='table .*npz|npz .*table'):
    catalogue.recognise(tmp_path)


@pytest.mark.parametrize(
  'arguments, said',
  [
    (['nowhere'], 'FOLDER=nowhere is no folder'),
    (['.'], 'holds nothing that is known'),
    (['.', '--dataset=npzz'], "did you mean 'npz'"),
    (['.', '--dataset=npz'], 'train.npz: no such file'),
    ([], 'FOLDER is missing'),
  ],
)
def test_refusals(tmp_path, monkeypatch, error_of, arguments, said):
  monkeypatch.chdir(tmp_path)
  assert said.lower() in error_of(check_data.main, *arguments).lower()


def test_what_an_error_quotes_is_cut(tmp_path, error_of):
  _table(tmp_path)
  (tmp_path / 'train.csv').write_text('[' * 10**5)
  error = error_of(check_data.main, tmp_path)
  assert len(error) < 2_000 and str(tmp_path / 'train.csv') in error
