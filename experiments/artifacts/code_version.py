"""The code that computes a run: its version, commit and uncommitted changes."""

import os
import pathlib
import subprocess

import tff_ssl

_ROOT = pathlib.Path(__file__).parents[2]
# The packages that decide the result of a run.
_CODE = ('tff_ssl', 'datasets', 'experiments')
_SECONDS = 10


def describe(root: pathlib.Path = _ROOT) -> dict[str, str | bool | None]:
  """Returns what is known of the code.

  Args:
    root: Folder of the code; by default, that of the running code.

  Returns:
    `tff_ssl`: the version. `commit`: the git commit, or `None` where the code
    is not in a checkout of its own. `uncommitted_changes`: whether code files
    were changed or added since that commit, or `None`. Where these are `None`,
    `no_commit_because` says why.
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
  done = subprocess.run(
    ['git', '-C', str(root), *arguments],
    check=True,
    capture_output=True,
    text=True,
    timeout=_SECONDS,
    # Without locks, so that it does not disturb a commit in the checkout.
    env={**_environment(), 'GIT_OPTIONAL_LOCKS': '0', 'LC_ALL': 'C'},
  )
  return done.stdout.strip()


def _environment() -> dict[str, str]:
  """Returns the environment without the variables that git hooks set."""
  of_hooks = ('GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE')
  return {k: v for k, v in os.environ.items() if k not in of_hooks}


def _reason(error: Exception) -> str:
  if isinstance(error, FileNotFoundError):
    return 'git is not installed'
  if isinstance(error, subprocess.CalledProcessError) and error.stderr:
    return error.stderr.strip().splitlines()[0]
  return str(error)
