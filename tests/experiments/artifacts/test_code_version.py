"""What a run says of its code, in checkouts made for the test."""

import pathlib
import shutil
import subprocess

import pytest

import tff_ssl
from experiments.artifacts import code_version


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
  assert code_version.describe(checkout) == {
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
  assert code_version.describe(checkout)['uncommitted_changes'] == is_change


def assert_no_commit(found, reason):
  assert (found['commit'], found['uncommitted_changes']) == (None, None)
  assert reason in found['no_commit_because']
  assert found['tff_ssl'] == tff_ssl.__version__


def test_without_a_checkout_the_reason_is_told(tmp_path, monkeypatch):
  monkeypatch.setenv('GIT_CEILING_DIRECTORIES', str(tmp_path.parent))
  assert_no_commit(code_version.describe(tmp_path), 'not a git repository')


def test_the_checkout_of_another_project_is_not_ours(checkout):
  inside = checkout / '.venv'
  inside.mkdir()
  assert_no_commit(code_version.describe(inside), 'not the top of a checkout')


def test_without_git_the_reason_is_told(checkout, monkeypatch):
  monkeypatch.setenv('PATH', str(pathlib.Path(checkout, 'bin')))
  assert_no_commit(code_version.describe(checkout), 'git is not installed')
