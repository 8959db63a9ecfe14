"""The code that computes a run: versions, commit and uncommitted changes."""

import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess

import tff_ssl
from experiments.artifacts import run_folder

_ROOT = pathlib.Path(__file__).parents[2]
# The packages that decide the result of a run, ours and others'.
_CODE = ('tff_ssl', 'datasets', 'experiments')
_PACKAGES = (
  'numpy',
  'tensorflow',
  'tensorflow-datasets',
  'tensorflow-federated',
)
_SECONDS = 10


def write(folder: run_folder.RunFolder, first_round: int = 0) -> str | None:
  """Writes the versions of Python, the platform, packages and this code.

  `code` in the file gets an entry for each start whose code differs from that
  of the start before, with the number of rounds done at that time. Then a note
  for the user is returned.
  """
  try:
    file = folder.path / run_folder.VERSIONS
    earlier = json.loads(file.read_text())['code']
    last = {k: v for k, v in earlier[-1].items() if k != 'from_round'}
  except (OSError, ValueError, KeyError, IndexError, TypeError):
    earlier, last = [], None
  now = describe_code()
  if last != now:
    earlier = [*earlier, {'from_round': first_round, **now}]
  versions = {
    'python': platform.python_version(),
    'platform': platform.platform(),
    **{package: _version(package) for package in _PACKAGES},
    **now,
    'code': earlier,
  }
  folder.write(run_folder.VERSIONS, json.dumps(versions, indent=2) + '\n')
  if last in (None, now):
    return None
  return (
    f'Note: the first {first_round} rounds were computed by other code '
    f'(commit {last.get("commit")}, now {now["commit"]}), which may give '
    'other results; versions.json lists both.'
  )


def _version(package: str) -> str | None:
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None


def describe_code(root: pathlib.Path = _ROOT) -> dict[str, str | bool | None]:
  """Returns what is known of the code in a folder, by default the running one.

  `commit` is `None` where the code is not in a checkout of its own, and
  `no_commit_because` says why; `uncommitted_changes` is then `None`, too. Else
  it says whether code files were changed or added since that commit.
  """
  version = {'tff_ssl': tff_ssl.__version__}
  try:
    top = pathlib.Path(_git(root, 'rev-parse', '--show-toplevel'))
    if not top.samefile(root):
      # Such as an environment inside another project's checkout.
      raise OSError(f'{root} is not the top of a checkout')
    commit = _git(root, 'rev-parse', 'HEAD')
    changes = _git(root, 'status', '--porcelain', '--', *_CODE)
  except (OSError, subprocess.SubprocessError) as error:
    return {
      **version,
      'commit': None,
      'uncommitted_changes': None,
      'no_commit_because': _reason(error),
    }
  return {**version, 'commit': commit, 'uncommitted_changes': bool(changes)}


def _git(root: pathlib.Path, *arguments: str) -> str:
  # Those that git hooks set name another checkout.
  of_hooks = ('GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE')
  environment = {k: v for k, v in os.environ.items() if k not in of_hooks}
  done = subprocess.run(
    ['git', '-C', str(root), *arguments],
    check=True,
    capture_output=True,
    text=True,
    timeout=_SECONDS,
    # Without locks, so that it does not disturb a commit in the checkout.
    env={**environment, 'GIT_OPTIONAL_LOCKS': '0', 'LC_ALL': 'C'},
  )
  return done.stdout.strip()


def _reason(error: Exception) -> str:
  if isinstance(error, FileNotFoundError):
    return 'git is not installed'
  if isinstance(error, subprocess.CalledProcessError) and error.stderr:
    return error.stderr.strip().splitlines()[0]
  return str(error)
