"""What a run says of its code, in checkouts made for the test."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tff_ssl
from experiments.artifacts import run_folder, versions


def git(folder, *arguments):
  done = subprocess.run(
    ['git', '-C', folder, *arguments], check=True, capture_output=True
  )
  return done.stdout.decode().strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
  """A checkout of one commit with a file of the code and another."""
  if shutil.which('git') is None:
    pytest.skip('needs git')
  for name in ('GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE'):
    monkeypatch.delenv(name, raising=False)
  for name in ('tff_ssl/a.py', 'README.md'):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('1\n')
  git(tmp_path, 'init', '--quiet')
  git(tmp_path, 'add', '.')
  who = ('-c', 'user.name=a', '-c', 'user.email=a@b.invalid')
  git(tmp_path, *who, 'commit', '--quiet', '--no-gpg-sign', '-m', 'one')
  return tmp_path


def test_a_checkout_has_a_commit(checkout):
  commit = (checkout / '.git' / 'refs' / 'heads').rglob('*')
  (commit,) = [path.read_text().strip() for path in commit if path.is_file()]
  assert versions.describe_code(checkout) == {
    'tff_ssl': tff_ssl.__version__,
    'commit': commit,
    'uncommitted_changes': False,
  }


@pytest.mark.parametrize(
  'name, is_change',
  [
    ('tff_ssl/a.py', True),
    ('experiments/new.py', True),
    ('README.md', False),
    ('runs/summary.json', False),
  ],
)
def test_changes_of_the_code_are_told(name, is_change, checkout):
  (checkout / name).parent.mkdir(exist_ok=True)
  (checkout / name).write_text('2\n')
  assert versions.describe_code(checkout)['uncommitted_changes'] == is_change


def assert_no_commit(found, reason):
  assert (found['commit'], found['uncommitted_changes']) == (None, None)
  assert reason in found['no_commit_because']
  assert found['tff_ssl'] == tff_ssl.__version__


def test_without_a_checkout_the_reason_is_told(tmp_path, monkeypatch):
  monkeypatch.setenv('GIT_CEILING_DIRECTORIES', str(tmp_path.parent))
  assert_no_commit(versions.describe_code(tmp_path), 'not a git repository')


def test_the_checkout_of_another_project_is_not_ours(checkout):
  inside = checkout / '.venv'
  inside.mkdir()
  assert_no_commit(versions.describe_code(inside), 'not the top of a checkout')


def test_without_git_the_reason_is_told(checkout, monkeypatch):
  monkeypatch.setenv('PATH', str(pathlib.Path(checkout, 'bin')))
  assert_no_commit(versions.describe_code(checkout), 'git is not installed')


@pytest.fixture
def folder(tmp_path):
  with run_folder.RunFolder(tmp_path / 'run') as opened:
    yield opened


def test_versions(folder):
  versions.write(folder)
  written = json.loads((folder.path / 'versions.json').read_text())
  assert written['numpy'] == np.__version__
  assert written['python'] == sys.version.split()[0]
  # Also where it is not installed, as in a checkout.
  assert written['tff_ssl'] == tff_ssl.__version__
  assert 'commit' in written and 'uncommitted_changes' in written


def test_versions_of_a_run_that_goes_on_with_other_code(folder, monkeypatch):
  code = {'tff_ssl': '1', 'commit': 'abc', 'uncommitted_changes': False}
  monkeypatch.setattr(versions, 'describe_code', lambda: dict(code))
  folder.keep()
  assert versions.write(folder, 0) is None
  assert versions.write(folder, 3) is None
  code['commit'] = 'def'
  note = versions.write(folder, 5)
  written = json.loads((folder.path / 'versions.json').read_text())
  assert 'first 5 rounds' in note and 'abc' in note and 'def' in note
  assert written['commit'] == 'def'
  found = [(v['from_round'], v['commit']) for v in written['code']]
  assert found == [(0, 'abc'), (5, 'def')]
