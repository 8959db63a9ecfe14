"""What the source tree looks like, in numbers, beside another checkout's.

    git worktree add ../before COMMIT
    python -m benchmarks.structure --against=../before

They show where a change has to be made in many places. A cell is empty where a
checkout has nothing to measure. The stack is that of a run on digits up to the
first loss; `--skip_stack` spares its seconds, and those of the dry run whose
path through the modules is followed.
"""

import argparse
import ast
import collections
import dataclasses
import io
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Sequence

_ROOT = pathlib.Path(__file__).parents[1]
_PACKAGES = ('tff_ssl', 'datasets', 'experiments')
_MODULES = tuple(f'{name}/**/*.py' for name in _PACKAGES)
# What is maintained as the product: the packages, and what keeps the pages.
_PRODUCT = (*_MODULES, 'tools/**/*.py')
_SMALL_FILE = 80
# What knows settings by name. A checkout from before the rooms of `experiments`
# has some of it in the folder itself.
_KNOWS_SETTINGS = (
  'tff_ssl/**/*.py',
  'datasets/**/*.py',
  'experiments/config/**/*.py',
  'experiments/parts/**/*.py',
  'experiments/*flag*.py',
  'experiments/default*.py',
  'experiments/setting*.py',
  'experiments/worker_settings.py',
)
# The classes of records; `Flag` is the former one.
_RECORDS = ('Setting', 'Flag')
# Prints the file of each call from the command to the loss, outermost first.
_STACK = """
import json, sys, tempfile, traceback
from experiments import run
from tff_ssl.objectives import consistency

class Reached(BaseException):
  pass

def stop(*arguments):
  frames = traceback.walk_stack(sys._getframe(1))
  raise Reached([frame.f_code.co_filename for frame, _ in frames][::-1])

consistency.ConsistencyRegularization.__call__ = stop
with tempfile.TemporaryDirectory() as folder:
  try:
    run.main([
      'run', '--process=grouping', '--dataset=digits',
      f'--run_dir={folder}/run', f'--cache_dir={folder}/cache',
    ])
  except Reached as reached:
    print('\\n' + json.dumps(reached.args[0]))
"""
# Prints the file of each function of the packages that a command line comes to
# for the first time, from the command to the builder of the process.
_PATH = """
import inspect, json, os, sys, tempfile
from experiments import run

root, seen, files = os.getcwd() + os.sep, set(), []

class Reached(BaseException):
  pass

def follow(frame, event, _):
  code = frame.f_code
  if event != 'call' or code in seen or not code.co_filename.startswith(root):
    return
  seen.add(code)
  name = code.co_filename.removeprefix(root)
  # Bodies of modules and classes, which imports run, are no functions.
  is_function = code.co_flags & inspect.CO_OPTIMIZED
  if name.startswith('experiments/') and is_function and code.co_name[0] != '<':
    files.append(name)
  if name == 'tff_ssl/algorithms/grouping.py' and code.co_name == (
    'build_grouping_ssfl'
  ):
    raise Reached

with tempfile.TemporaryDirectory() as folder:
  sys.setprofile(follow)
  try:
    run.main([
      'run', '--process=grouping', '--dataset=digits', '--dry_run',
      f'--run_dir={folder}/run', f'--cache_dir={folder}/cache',
    ])
  except Reached:
    pass
  finally:
    sys.setprofile(None)
print('\\n' + json.dumps(files))
"""


def measure(root: pathlib.Path, with_stack: bool = True) -> dict[str, str]:
  """Returns the measures of a checkout, as texts, by name.

  Args:
    root: The checkout.
    with_stack: Whether to run it up to the first loss.

  Raises:
    RuntimeError: If ruff or the run fails.
  """
  complex_limit, argument_limit = _limits()
  settings = declarations(root)
  places = literals(root, settings)
  arguments = builder_arguments(root)
  complexity = _ruff(root, 'C901', 'mccabe.max-complexity', _PACKAGES)
  too_many = _ruff(root, 'PLR0913', 'pylint.max-args', _PACKAGES)
  lines = lines_by_file(root)
  measures = {
    'lines of the product': f'{sum(n.all for n in lines.values()):,}',
    'of these, code': f'{sum(n.code for n in lines.values()):,}',
    'of these, comments': f'{sum(n.comments for n in lines.values()):,}',
    'files': str(len(lines)),
    f'files of at most {_SMALL_FILE} lines': str(
      sum(n.all <= _SMALL_FILE for n in lines.values())
    ),
    'lines of code in a function': _largest(bodies(root)),
    'settings': str(len(settings)),
    'places that name a setting, beside its record': _median_and_largest(
      places
    ),
    'settings with several records': (
      _several(settings) if any(root.glob('tff_ssl/**/setting.py')) else ''
    ),
    'arguments of the builders of algorithms': _median_and_largest(arguments),
    f'functions more complex than {complex_limit}': _above(
      complexity, complex_limit
    ),
    f'functions with over {argument_limit} arguments': _above(
      too_many, argument_limit
    ),
    'modules in the largest folder': _largest(modules_by_folder(root)),
  }
  if with_stack:
    calls = calls_to_the_loss(root)
    measures['calls from the command to the loss'] = (
      f'{len(calls)}, in {len(set(calls))} files'
    )
    stops = stops_of_a_command_line(root)
    measures['modules of experiments that a command line visits'] = (
      f'{len(set(stops))}, with {len(stops) - len(set(stops))} returns'
    )
  return measures


def declarations(root: pathlib.Path) -> collections.Counter:
  """Returns how many records declare each setting.

  A record that is made of another with `dataclasses.replace` is the same one,
  unless it has another name.

  Args:
    root: The checkout.
  """
  found = collections.Counter()
  for path in _files(root, _MODULES):
    found.update(_declared(path).values())
  return found


def literals(root: pathlib.Path, names: Iterable[str]) -> collections.Counter:
  """Returns how often each setting's name stands in the code as a string.

  Args:
    root: The checkout.
    names: The names of the settings.
  """
  found = collections.Counter(dict.fromkeys(names, 0))
  for path in _files(root, _KNOWS_SETTINGS):
    declared = _declared(path)
    for node in ast.walk(_tree(path)):
      if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in found
        and (node.lineno, node.col_offset) not in declared
      ):
        found[node.value] += 1
  return found


def builder_arguments(root: pathlib.Path) -> dict[str, int]:
  """Returns the number of arguments of each algorithm's public builder.

  Args:
    root: The checkout.
  """
  return {
    node.name: len(
      [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    )
    for path in _files(root, ('tff_ssl/algorithms/*.py',))
    for node in _tree(path).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith('build_')
  }


def modules_by_folder(root: pathlib.Path) -> collections.Counter:
  """Returns the number of modules that lie in each folder of the packages.

  Args:
    root: The checkout.
  """
  return collections.Counter(
    path.parent.relative_to(root).as_posix()
    for path in _files(root, _MODULES)
    if path.name != '__init__.py'
  )


@dataclasses.dataclass(frozen=True)
class Lines:
  """Numbers of lines of a file: all, those with code, those with comments."""

  all: int
  code: int
  comments: int


def lines_by_file(root: pathlib.Path) -> dict[str, Lines]:
  """Returns the lines of each file of the product.

  Docstrings are no code; a comment behind code counts as both.

  Args:
    root: The checkout.
  """
  found = {}
  for path in _files(root, _PRODUCT):
    text = path.read_text(encoding='utf-8')
    strings = {
      line
      for node in ast.walk(ast.parse(text))
      if isinstance(node, ast.Expr)
      and isinstance(node.value, ast.Constant)
      and isinstance(node.value.value, str)
      for line in range(node.lineno, node.end_lineno + 1)
    }
    code, comments = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
      if token.type == tokenize.COMMENT:
        comments.add(token.start[0])
      elif token.string.strip() and token.type != tokenize.ENDMARKER:
        code.update(range(token.start[0], token.end[0] + 1))
    found[path.relative_to(root).as_posix()] = Lines(
      len(text.splitlines()), len(code - strings), len(comments)
    )
  return found


def bodies(root: pathlib.Path) -> dict[str, int]:
  """Returns the number of lines of each function's body, without docstring.

  Args:
    root: The checkout.
  """
  found = {}
  for path in _files(root, _PRODUCT):
    for node in ast.walk(_tree(path)):
      if isinstance(node, ast.FunctionDef):
        body = node.body[ast.get_docstring(node) is not None :]
        first = body[0].lineno if body else node.end_lineno
        name = f'{path.relative_to(root).as_posix()}:{node.name}'
        found[name] = node.end_lineno - first + 1
  return found


def stops_of_a_command_line(root: pathlib.Path) -> list[str]:
  """Returns the modules of `experiments` that a dry run comes to, in order.

  Each function counts where it is called for the first time, and functions of
  one module that follow each other are one stop.

  Args:
    root: The checkout.
  """
  names = _printed(root, _PATH)
  return [name for name, _ in itertools.groupby(names)]


def calls_to_the_loss(root: pathlib.Path) -> list[str]:
  """Returns the file of each call from the command to the first loss.

  It runs grouping on digits, in a process of its own.

  Args:
    root: The checkout.

  Returns:
    Names relative to `root`, of files of the three packages alone, the
    outermost call first. The loss is the last.

  Raises:
    RuntimeError: If the run does not come to the loss.
  """
  paths = map(pathlib.Path, _printed(root, _STACK))
  root = root.resolve()
  names = [p.relative_to(root) for p in paths if p.is_relative_to(root)]
  return [
    *(name.as_posix() for name in names if name.parts[0] in _PACKAGES),
    # In its place stood the function that looked.
    'tff_ssl/objectives/consistency.py',
  ]


def table(columns: dict[str, dict[str, str]]) -> str:
  """Returns the measures as a table in Markdown.

  Args:
    columns: For each checkout, the result of `measure`.
  """
  names = list(dict.fromkeys(name for c in columns.values() for name in c))
  rows = [
    ['', *columns],
    *([name, *(c.get(name, '') for c in columns.values())] for name in names),
  ]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  head, *lines = [
    ' | '.join(text.ljust(w) for text, w in zip(row, widths, strict=True))
    for row in rows
  ]
  rule = ' | '.join('-' * width for width in widths)
  return '\n'.join(f'| {line} |' for line in (head, rule, *lines))


def _printed(root: pathlib.Path, program: str) -> list[str]:
  """Returns the list that a program prints last, as JSON."""
  done = subprocess.run(
    [sys.executable, '-c', program],
    cwd=root.resolve(),
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise RuntimeError(
      f'The run in {root} did not come to its end: {done.stderr[-2000:]}'
    )
  return json.loads(done.stdout.splitlines()[-1])


def _files(root: pathlib.Path, patterns: Iterable[str]) -> list[pathlib.Path]:
  return sorted({path for pattern in patterns for path in root.glob(pattern)})


def _tree(path: pathlib.Path) -> ast.Module:
  return ast.parse(path.read_text(encoding='utf-8'))


def _declared(path: pathlib.Path) -> dict[tuple[int, int], str]:
  """Returns the names that records of a file have, by their position."""
  found = {}
  for node in ast.walk(_tree(path)):
    if not isinstance(node, ast.Call):
      continue
    name = None
    function = ast.unparse(node.func).rpartition('.')[2]
    if function in _RECORDS and node.args:
      name = node.args[0]
    elif function == 'replace':
      renamed = [k.value for k in node.keywords if k.arg == 'name']
      name = renamed[0] if renamed else None
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
      found[name.lineno, name.col_offset] = name.value
  return found


def _limits() -> tuple[int, int]:
  """Returns the greatest complexity and number of arguments that pass here."""
  project = tomllib.loads((_ROOT / 'pyproject.toml').read_text())
  lint = project['tool']['ruff']['lint']
  return lint['mccabe']['max-complexity'], lint['pylint']['max-args']


def _ruff(
  root: pathlib.Path, rule: str, limit: str, folders: Sequence[str]
) -> dict[str, int]:
  """Returns what ruff counts in each function, whatever the project excuses."""
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'ruff', 'check', *folders),
      *('--isolated', '--no-cache', '--ignore-noqa', '--exit-zero'),
      *(f'--select={rule}', '--output-format=json'),
      *('--config', f'lint.{limit}=0'),
    ],
    cwd=root,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise RuntimeError(f'ruff failed in {root}: {done.stderr.strip()}')
  counts = {}
  for finding in json.loads(done.stdout):
    path = pathlib.Path(finding['filename']).relative_to(root.resolve())
    place = f'{path.as_posix()}:{finding["location"]["row"]}'
    counts[place] = int(re.search(r'\((\d+) > 0\)', finding['message'])[1])
  return counts


def _median_and_largest(counts: dict[str, int]) -> str:
  if not counts:
    return ''
  median = statistics.median(counts.values())
  return f'median {median:g}, largest {_largest(counts)}'


def _largest(counts: dict[str, int]) -> str:
  name = max(counts, key=counts.get)
  return f'{counts[name]} ({name})'


def _above(counts: dict[str, int], limit: int) -> str:
  return (
    f'{sum(n > limit for n in counts.values())}, largest {_largest(counts)}'
  )


def _several(declared: collections.Counter) -> str:
  names = [name for name, number in declared.items() if number > 1]
  return ', '.join([str(len(names)), *names])


def main(arguments: Sequence[str] | None = None) -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(
    prog='python -m benchmarks.structure',
    description='Measures the shape of the source tree.',
  )
  parser.add_argument(
    '--against', type=pathlib.Path, help='another checkout, beside this one'
  )
  parser.add_argument(
    '--skip_stack',
    action='store_true',
    help='leave out the stack at the loss, which takes a run on digits',
  )
  flags = parser.parse_args(arguments)
  checkouts = {'here': _ROOT}
  if flags.against is not None:
    for name in _PACKAGES:
      if not (flags.against / name).is_dir():
        parser.error(
          f'--against={flags.against} has no folder {name}: name a checkout.'
        )
    checkouts[flags.against.as_posix()] = flags.against.resolve()
  columns = {
    name: measure(root, not flags.skip_stack)
    for name, root in checkouts.items()
  }
  print(table(columns))


if __name__ == '__main__':
  main()
