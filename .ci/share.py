"""Which further tests continuous integration runs after `make test`.

    python .ci/share.py

It prints a line for each call of make: first what the change touched, by path,
then one shard in turn, so that each is run every few landings. What would take
the sum above `_MINUTES` is printed as a comment.
"""

import pathlib
import re
import subprocess
from inspect import ismodule

from tff_ssl import algorithms

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of two slow cores, for all further tests together.
_MINUTES = 10
# Minutes of each target there, and in how many shards it is run in turn.
_TARGETS = {
  'contract': (9, 2),
  'parts': (9, 2),
  'runs': (9, 2),
  'ray': (10, 2),
  'notebooks': (5, 1),
  'cases': (3, 1),
  'tables': (2, 1),
}
_MINUTES_OF_A_PROCESS = 0.3
# Of paths; the first that matches decides.
_TOUCHED = (
  (r'(.*[/_])?(ray|cluster)', 'ray'),
  (r'(tests/docs|docs/_ext|(tests/)?(tutorials|examples))/', 'notebooks'),
  (r'tests/tff_parity/', 'cases'),
  (r'(tests/)?tff_ssl/(templates|objectives|aggregators|testing)/', 'contract'),
  (r'requirements/', 'contract'),
  (r'(tests/)?experiments/(recipes|tables)/', 'tables'),
  (r'(tests/)?(experiments|datasets)/', 'runs'),
  (r'(tests/)?tff_ssl/', 'parts'),
)
_PAGE = re.compile(r'(tests/)?tff_ssl/algorithms/(?:test_)?(\w+)\.py$')


def _git(*arguments):
  done = subprocess.run(
    ['git', *arguments], cwd=_ROOT, capture_output=True, text=True
  )
  return done.stdout.strip() if done.returncode == 0 else ''


def changed_paths() -> list[str]:
  """Paths that differ from the last landing, or else from the last commit."""
  base = _git('merge-base', 'HEAD', 'origin/main')
  if base in ('', _git('rev-parse', 'HEAD')):
    base = 'HEAD^'
  return _git('diff', '--name-only', base).splitlines()


def processes_of(page: str, with_users: bool = True) -> list[str]:
  """Names of the processes of a page of `tff_ssl/algorithms`.

  With users, also of the pages that import it, maybe by way of others.
  """
  modules = [each for each in vars(algorithms).values() if ismodule(each)]
  found = [getattr(algorithms, page, None)]
  for one in found if with_users and algorithms.records(found[0]) else ():
    # `found` grows meanwhile.
    found += [
      other
      for other in modules
      if any(value is one for value in vars(other).values())
      and other not in found
    ]
  return [spec.name for own in found for spec in algorithms.records(own)]


def touched(paths) -> tuple[list[str], list[str]]:
  """Targets, and names of processes, that changed paths ask for."""
  targets, processes = [], []
  for path in paths:
    page = _PAGE.match(path)
    if page and (names := processes_of(page[2], with_users=not page[1])):
      processes += names
      continue
    for pattern, target in _TOUCHED:
      if re.match(pattern, path):
        targets.append(target)
        break
  return list(dict.fromkeys(targets)), sorted(set(processes))


def shards() -> list[tuple[str, float]]:
  """All shards, as arguments of make, with the minutes that each takes."""
  return [
    (f'test-{target}' + (f' SHARD={k}/{n}' if n > 1 else ''), minutes / n)
    for target, (minutes, n) in _TARGETS.items()
    for k in range(1, n + 1)
  ]


def share(paths, commit: str) -> list[str]:
  """Arguments of make, one call each; a comment for what has no room.

  The hash of the commit says which further shard has its turn.
  """
  turns = shards()
  targets, processes = touched(paths)
  wanted = []
  if processes and 'contract' not in targets:
    minutes = _MINUTES_OF_A_PROCESS * len(processes)
    wanted.append((f'test-contract NAMES={",".join(processes)}', minutes))
  wanted += [(f'test-{target}', _TARGETS[target][0]) for target in targets]
  in_turn = turns[int(commit, 16) % len(turns)]
  if in_turn[0].split()[0] not in dict(wanted):
    wanted.append(in_turn)
  calls, left = [], _MINUTES
  for call, minutes in wanted:
    # What was touched first, however long it takes.
    if minutes > left and calls:
      calls.append(f'# no room for: make {call}')
      continue
    left -= minutes
    calls.append(call)
  return calls


if __name__ == '__main__':
  for line in share(changed_paths(), _git('rev-parse', 'HEAD') or '0'):
    print(line)
