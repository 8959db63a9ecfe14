"""Whether two versions of the code compute the same weights, bit for bit.

    git worktree add ../before COMMIT
    python -m benchmarks.same_results --before=../before --after=.

A change that is to alter no result is compared with the commit before it: every
process on digits for three rounds, some recipes at a small scale, a run that
one version begins and the other one ends, and an exported classifier. What is
compared are SHA-256 of final weights and of logits. Both versions run in the
environment of this command, on this machine, one after the other.

Recipes need the data that they name (`TFF_SSL_DATA_DIR`); `--only` chooses
cases by the beginnings of their names.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tff_ssl.algorithms import PROCESSES

_ROUNDS = 3
_DIGITS = ('--dataset=digits', f'--total_rounds={_ROUNDS}')
_RECIPES = {
  'native_writers:ns100_grouping_s2': 0.02,
  'balanced_small_cnn:c10_s5': 0.005,
  'ssfl_table2:c10_s2': 0.0003,
  'fedlabel_emnist47:fedlabel': 0.02,
  'label_hungry_chart2:fed_ssjo_m90_fixed': 0.02,
  'fedul_small_cnn:iid_m10_fedul': 0.05,
}
# Runs each command line given as JSON on standard input, in one process, since
# TensorFlow takes seconds to import; prints the exit codes.
_DRIVER = """
import json, logging, runpy, sys
logging.getLogger('tensorflow').setLevel(logging.ERROR)
for command, *arguments in json.load(sys.stdin):
  # As from a shell: `main` takes its arguments otherwise in some versions.
  sys.argv = [command, *arguments]
  try:
    runpy.run_module(f'experiments.{command}', run_name='__main__')
  except SystemExit as end:
    if end.code:
      sys.exit(f'exit code {end.code} of {command} {" ".join(arguments)}')
"""
# Prints the SHA-256 of an exported classifier's logits for random images.
_LOGITS = """
import hashlib, sys
import numpy as np
import tensorflow as tf
images = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 1), np.uint8)
logits = tf.saved_model.load(sys.argv[1])(images)
print(hashlib.sha256(logits.numpy().tobytes()).hexdigest())
"""


def cases() -> dict[str, tuple[str, ...]]:
  """Returns the flags of each run, by name."""
  found = {}
  for name, spec in PROCESSES.items():
    # Else clients would not train in these rounds.
    warms_up = 'server_warmup_rounds' in spec.setting_names
    warmup = ('--server_warmup_rounds=1',) if warms_up else ()
    found[f'process/{name}'] = (f'--process={name}', *_DIGITS, *warmup)
  for name, scale in _RECIPES.items():
    found[f'recipe/{name}'] = (f'--recipe={name}', f'--recipe_scale={scale}')
  return found


def chosen(names: Sequence[str], only: str | None) -> list[str]:
  """Returns the names that begin with one of `only`, separated by commas."""
  beginnings = tuple((only or '').split(','))
  found = [name for name in names if name.startswith(beginnings)]
  if not found:
    raise ValueError(f'--only={only} chooses none of {list(names)}.')
  return found


def differences(before: dict, after: dict) -> list[str]:
  """Returns the names whose values differ or are in one table alone."""
  return sorted(
    name
    for name in {*before, *after}
    if before.get(name) != after.get(name) or before.get(name) is None
  )


def _drive(tree: pathlib.Path, commands: Sequence[Sequence[str]]) -> None:
  """Runs commands of one version."""
  subprocess.run(
    [sys.executable, '-c', _DRIVER],
    cwd=tree,
    input=json.dumps(commands),
    text=True,
    check=True,
    stdout=subprocess.DEVNULL,
    env={**os.environ, 'PYTHONPATH': str(tree)},
  )


def _weights(folder: pathlib.Path) -> str:
  return json.loads((folder / 'summary.json').read_text())['weights_sha256']


def _run_all(
  tree: pathlib.Path, folder: pathlib.Path, names: Sequence[str]
) -> dict[str, str]:
  """Returns the SHA-256 of the final weights of each case."""
  commands = [
    (
      *('run', *cases()[name], '--seed=0'),
      *(f'--run_dir={folder / name}', f'--cache_dir={folder / "cache"}'),
    )
    for name in names
  ]
  _drive(tree, commands)
  return {name: _weights(folder / name) for name in names}


def _run_on(
  trees: Sequence[pathlib.Path], folder: pathlib.Path
) -> tuple[str, str]:
  """Begins a run with one version, ends and exports it with another.

  Returns:
    The SHA-256 of its weights and of the logits of the exported classifier.
  """
  arguments = (
    *('--process=scaffold', '--dataset=digits', f'--run_dir={folder / "run"}'),
    f'--cache_dir={folder / "cache"}',
  )
  first, last = trees
  _drive(first, [('run', *arguments, '--total_rounds=2')])
  _drive(
    last,
    [('run', *arguments, '--total_rounds=4'), ('export', str(folder / 'run'))],
  )
  logits = subprocess.run(
    [sys.executable, '-c', _LOGITS, str(folder / 'run' / 'classifier')],
    text=True,
    check=True,
    capture_output=True,
  )
  return _weights(folder / 'run'), logits.stdout.strip()


def main(argv: Sequence[str] | None = None) -> int:
  """Compares two versions; the exit code is 1 if a result differs."""
  parser = argparse.ArgumentParser(
    prog='python -m benchmarks.same_results',
    description=__doc__.partition('\n')[0],
  )
  parser.add_argument('--before', type=pathlib.Path, required=True)
  parser.add_argument('--after', type=pathlib.Path, default=pathlib.Path())
  parser.add_argument('--only', help='beginnings of names, such as process/')
  flags = parser.parse_args(argv)
  before, after = flags.before.resolve(), flags.after.resolve()
  names = chosen([*cases(), 'resume'], flags.only)
  runs = [name for name in names if name != 'resume']
  found = []
  with tempfile.TemporaryDirectory() as folder:
    for tree, label in ((before, 'before'), (after, 'after')):
      own = pathlib.Path(folder, label)
      table = _run_all(tree, own, runs) if runs else {}
      if 'resume' in names:
        table['resume'], table['export'] = _run_on(
          (before, tree), own / 'resume'
        )
      found.append(table)
  differ = differences(*found)
  for name in found[1]:
    print(f'{"DIFFERS" if name in differ else "equal  "} {name}')
  print(f'{len(found[1]) - len(differ)} of {len(found[1])} are equal.')
  return int(bool(differ))


if __name__ == '__main__':
  sys.exit(main())
