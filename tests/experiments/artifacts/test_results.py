"""What a finished run left is read as it was, or a sentence says what is not.

The mutants: each file cut off at several places, with a bit turned, empty, made
a folder, gone, or with what JSON can hold and no run writes.
"""

import json
import shutil

import numpy as np
import pytest

from experiments import report
from experiments.artifacts import durable_files, results, run_folder
from experiments.config.command_line import UsageError

FILES = {
  'metrics.csv': 'round,accuracy,test_loss\n1,.5,.7\n2,.75,.4\n',
  'confusion.csv': 'true class,0,1\n0,3,1\n1,0,4\n',
  'partition.csv': 'client,0,1\na,3,1\nb,0,4\n',
  'participation.csv': 'client,name,invited\n0,a,2\n1,b,1\n',
  'clients.csv': 'round,client,name,examples,accuracy\n2,0,a,3,.5\n',
  'versions.json': '{"python": "3.11"}\n',
}
SUMMARY = {
  'process': 'fedavg',
  'data': 'some digits',
  'seed': 0,
  'rounds': 2,
  'accuracy': np.float64(0.75),
  'test_loss': float('nan'),
  'flags': {'process': 'fedavg', 'run_dir': 'elsewhere', 'seed': 0},
}


@pytest.fixture
def folder(tmp_path):
  path = tmp_path / 'run'
  path.mkdir()
  for name, text in FILES.items():
    (path / name).write_text(text)
  sealed = results.sealed(SUMMARY, path)
  (path / run_folder.SUMMARY).write_text(json.dumps(sealed, indent=2))
  return path


def test_a_summary_is_read_as_it_was_written(folder):
  found = results.read(folder)
  assert found['accuracy'] == 0.75 and found['test_loss'] is None
  assert found['flags'] == SUMMARY['flags']
  assert set(found['files']) == set(FILES)
  assert results.read(folder.parent) is None
  # What is the user's own may change.
  (folder / 'notes.csv').write_text('mine')
  assert results.read(folder) == found


def _mutants(content):
  yield 'gone', None
  for size in (0, 1, len(content) // 2, len(content) - 2):
    yield f'cut off at {size}', content[:size]
  for place in (0, len(content) // 3, len(content) - 2):
    changed = bytearray(content)
    changed[place] ^= 1
    yield f'bit {place}', bytes(changed)
  yield 'longer', content + b'x'
  lines = content.splitlines(keepends=True)
  if len(lines) > 1:
    yield 'a line less', b''.join(lines[:-1])


@pytest.mark.parametrize('name', [*FILES, run_folder.SUMMARY])
def test_a_damaged_file_is_one_sentence(folder, name, tmp_path, capsys):
  content = (folder / name).read_bytes()
  page = tmp_path / 'page.html'
  tried = 0
  for what, mutant in _mutants(content):
    copy = tmp_path / f'copy_{tried}'
    shutil.copytree(folder, copy)
    (copy / name).unlink()
    if mutant is not None:
      (copy / name).write_bytes(mutant)
    tried += 1
    assert report.main(['report', str(copy), f'--html={page}']) == 2, what
    said = capsys.readouterr().err
    assert said.startswith('error: ') and said.count('\n') == 1, what
    assert name in said and 'Traceback' not in said, what
  assert tried >= 9 and not page.exists()
  (folder / name).unlink()
  (folder / name).mkdir()
  assert report.main(['report', str(folder)]) == 2
  assert name in capsys.readouterr().err


@pytest.mark.parametrize(
  'text',
  ['', 'no JSON', '[]', '3', 'null', '{}', '\xff', '[' * 100_000]
  + ['{"process": "a", "seed": 0, "rounds": 2, "flags": {}}'],
)
def test_what_is_no_summary_is_refused(tmp_path, text):
  (tmp_path / run_folder.SUMMARY).write_text(text, encoding='latin-1')
  with pytest.raises(UsageError, match=r'summary\.json is no summary'):
    results.read(tmp_path)


@pytest.mark.parametrize(
  'files', [{}, *({'files': files} for files in (3, None, {'../x': ''}, [{}]))]
)
def test_a_summary_that_somebody_else_sealed_is_refused(files, tmp_path):
  text = json.dumps(durable_files.seal({'process': 'a', **files}))
  (tmp_path / run_folder.SUMMARY).write_text(text)
  with pytest.raises(UsageError, match=r'summary\.json is no summary'):
    results.read(tmp_path)
