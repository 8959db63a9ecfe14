"""Says what is wrong with this machine: `python -m tff_ssl.doctor --help`.

Each check is a function from facts to a line; `examine` gathers the facts. No
check imports TensorFlow: the one that starts a worker does so in a process of
its own, which is given up where it hangs. This file needs the standard library
of any Python from 3.8 on, since the wrong Python is one of the things to find.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tff_ssl import processor

OK, NOTE, WRONG = 'ok', 'note', 'WRONG'

# Exit codes.
_SOUND, _UNSOUND, _USAGE = 0, 1, 2
_STOPPED = 128 + signal.SIGINT

# As that of `experiments.run`.
CACHE_DIR = '~/.cache/tff_ssl'
_DATA_DIR = 'TFF_SSL_DATA_DIR'

_PYTHON = (3, 11)
# By the tag of TFF's wheel, manylinux_2_31: pip installs it on nothing older.
# The program in it, tensorflow_federated/data/worker_binary, asks for 2.29, as
# `objdump -T worker_binary | grep -o 'GLIBC_[0-9.]*' | sort -Vu` shows.
_GLIBC = (2, 31)
# The worker is compiled for these: its message at the start, with
# TF_CPP_MIN_LOG_LEVEL=0, does not count them among those that it was not
# compiled for. (TensorFlow's own wheel asks for AVX alone.)
_NEEDED_UNITS = {'avx': 'AVX', 'avx2': 'AVX2', 'fma': 'FMA'}
# These change the order of sums, and with it the last bits of results.
_FURTHER_UNITS = {
  'avx512f': 'AVX512',
  'avx512_bf16': 'AVX512-BF16',
  'amx_tile': 'AMX',
}
# What a wheel of tff_ssl, without requirements.txt beside it, works with.
WORKS_WITH = {
  'keras': '2.14.*',
  'numpy': '1.*',
  'tensorflow': '2.14.*',
  'tensorflow-federated': '0.87.*',
}
_GB = 10**9
_ENOUGH = 2 * _GB
_MANY = 8

_TRIAL = (sys.executable, '-m', 'tff_ssl.simulation.trial')
_POLL_S = 0.05
# Importing reads some GB from a disk that may be slow.
_IMPORT_LIMIT_S = 180.0
_ANSWER_LIMIT_S = 20.0


class Line(NamedTuple):
  """What a check has found.

  Attributes:
    status: `OK`, `NOTE` or `WRONG`.
    text: A sentence, with the remedy where there is one.
  """

  status: str
  text: str


class Trial(NamedTuple):
  """What came of starting a worker.

  Attributes:
    seconds: What it took to start and answer, or `None` if it did not.
    problem: What went wrong, with the remedy, or `None`.
  """

  seconds: float | None
  problem: str | None


def check_python(version: Sequence[int]) -> Line:
  """Returns whether TensorFlow Federated has a wheel for this Python.

  Args:
    version: As `sys.version_info`.
  """
  name = f'Python {".".join(map(str, version[:3]))}'
  if tuple(version[:2]) == _PYTHON:
    return Line(OK, name)
  return Line(
    WRONG,
    f'{name}, tff_ssl and TensorFlow Federated 0.87 need 3.11: install Python '
    '3.11, then run make env',
  )


def check_packages(
  wanted: Mapping[str, str],
  installed: Mapping[str, str | None],
  source: str,
  remedy: str,
) -> Line:
  """Returns whether the packages have the versions that were tested.

  Args:
    wanted: Versions by name, or patterns such as '2.14.*'.
    installed: Versions by name; `None` for a package that is missing.
    source: Who wants them, as the beginning of a sentence: '... has'.
    remedy: What to do otherwise.
  """
  missing = [name for name in wanted if installed.get(name) is None]
  differing = [
    f'{name} {installed[name]}, {source} {version}'
    for name, version in wanted.items()
    if name not in missing
    and not fnmatch.fnmatchcase(str(installed[name]), version)
  ]
  if not missing and not differing:
    return Line(OK, f'{len(wanted)} packages are as {source} them')
  found = differing
  if len(missing) > _MANY:
    found += [
      f'{len(missing)} of {len(wanted)} packages are missing '
      f'({_listed(missing)})'
    ]
  else:
    found += [f'{name} is missing' for name in missing]
  return Line(WRONG, f'{"; ".join(found)}: {remedy}')


def check_system(system: str, machine: str, libc: tuple[str, str]) -> Line:
  """Returns whether TFF's worker can be executed here.

  Args:
    system: As `platform.system()`.
    machine: As `platform.machine()`.
    libc: As `platform.libc_ver()`.
  """
  remedy = 'use a newer Linux on such a processor, or a container of one'
  if (system, machine) != ('Linux', 'x86_64'):
    return Line(
      WRONG,
      f"{system} {machine}, TFF's worker runs on Linux x86_64: {remedy}",
    )
  name, version = libc
  needed = '.'.join(map(str, _GLIBC))
  if name != 'glibc':
    return Line(WRONG, f"No glibc, TFF's worker needs {needed}: {remedy}")
  text = f'Linux x86_64 with glibc {version}'
  if tuple(map(int, re.findall(r'\d+', version)[:2])) < _GLIBC:
    return Line(WRONG, f"{text}, TFF's worker needs {needed}: {remedy}")
  return Line(OK, text)


def check_processor(flags: frozenset[str], name: str) -> Line:
  """Returns what the processor can do.

  Args:
    flags: As `processor.flags()`.
    name: What it is called.
  """
  if not flags:
    return Line(NOTE, 'What the processor can do is unknown here')
  lacking = [unit for flag, unit in _NEEDED_UNITS.items() if flag not in flags]
  if lacking:
    return Line(
      WRONG,
      f"{name} has no {' and no '.join(lacking)}, without which TFF's worker "
      'crashes: use another machine, or let the virtual one show what its host '
      'has',
    )
  units = {**_NEEDED_UNITS, **_FURTHER_UNITS}
  there = [unit for flag, unit in units.items() if flag in flags]
  absent = [unit for flag, unit in units.items() if flag not in flags]
  without = f', without {", ".join(absent)}' if absent else ''
  return Line(
    OK,
    f'{name} has {", ".join(there)}{without} (results are bit-identical on '
    'processors of one kind)',
  )


def check_proxies(environ: Mapping[str, str]) -> Line:
  """Returns whether a proxy would catch what is meant for this machine.

  Workers of `tff_ssl` are reached without one, whatever the variables say
  (`grpc.enable_http_proxy` in `tff_ssl.simulation.channels`). TFF's own
  contexts wait for ever for a proxy that does not know this machine.

  Args:
    environ: As `os.environ`. Values are not shown: they may hold passwords.
  """
  # gRPC reads these alone, in lower case.
  names = ('grpc_proxy', 'https_proxy', 'http_proxy')
  found = [name for name in names if environ.get(name)]
  if not found:
    return Line(OK, 'No proxy stands between Python and the worker')
  # gRPC reads the second only without the first, compares ends of names and
  # knows no '*'.
  exempting = 'no_grpc_proxy' if 'no_grpc_proxy' in environ else 'no_proxy'
  exempt = map(str.strip, environ.get(exempting, '').split(','))
  listed = ' and '.join(found)
  if any(end and 'localhost'.endswith(end.lower()) for end in exempt):
    return Line(OK, f'{exempting} exempts localhost from {listed}')
  return Line(
    NOTE,
    f'{listed} does not matter to workers of tff_ssl, but contexts of TFF '
    f'itself would hang: add localhost to {exempting}',
  )


def check_port() -> Line:
  """Returns what everybody should know about the worker's port."""
  return Line(
    NOTE,
    'The worker listens on all network interfaces without a password: run it '
    'behind a firewall',
  )


def check_folder(name: str, writable: bool, free: int) -> Line:
  """Returns whether a folder can take the files of a run.

  Args:
    name: What the folder is, and its path.
    writable: Whether files can be made in it.
    free: Bytes that are free.
  """
  text = f'{name}: {free / _GB:.1f} GB are free'
  if not writable:
    return Line(WRONG, f'{name} cannot be written: choose another folder')
  if free < _ENOUGH:
    return Line(WRONG, f'{text}: make room for 2 GB, or choose another disk')
  return Line(OK, text)


def check_memory(available: int | None) -> Line:
  """Returns whether there is memory for a small run.

  Args:
    available: Bytes that are available, or `None` where nobody knows.
  """
  if available is None:
    return Line(NOTE, 'How much memory is free is unknown here')
  text = f'{available / _GB:.1f} GB of memory are free'
  if available < _ENOUGH:
    return Line(
      NOTE,
      f'{text}: end other programs if a run is killed, or sample fewer clients',
    )
  return Line(OK, text)


def check_data(folder: str | None, names: Sequence[str] | None) -> Line:
  """Returns what lies in the folder of data files.

  Args:
    folder: Its path, or `None` where none is named.
    names: What is in it; `None` where it cannot be read.
  """
  if folder is None:
    return Line(
      OK,
      f'No folder of data is named (--data_dir or {_DATA_DIR}): files are '
      'downloaded on first use',
    )
  if names is None:
    return Line(
      WRONG,
      f'The data folder {folder} is absent or cannot be read: name another one '
      f'by --data_dir or {_DATA_DIR}',
    )
  if not names:
    return Line(NOTE, f'The data folder {folder} is empty')
  return Line(OK, f'The data folder {folder} has {_listed(names)}')


def check_worker(trial: Trial) -> Line:
  """Returns whether a worker starts, answers and ends.

  Args:
    trial: As `try_worker` returns.
  """
  if trial.problem is not None:
    return Line(WRONG, trial.problem)
  return Line(OK, f'A worker has started and answered in {trial.seconds:.1f} s')


def read_pins(path: pathlib.Path) -> dict[str, str]:
  """Returns the versions by name that a file of requirements pins.

  Args:
    path: The file. Lines without `==` are passed over.
  """
  pin = re.compile(r'^([A-Za-z0-9][\w.-]*)==([^\s;]+)', re.MULTILINE)
  return dict(pin.findall(path.read_text(encoding='utf-8')))


def try_worker(
  command: Sequence[str] = _TRIAL,
  *,
  import_limit_s: float = _IMPORT_LIMIT_S,
  answer_limit_s: float = _ANSWER_LIMIT_S,
) -> Trial:
  """Starts a worker in a process of its own, and waits until both have ended.

  Args:
    command: What writes lines like those of `tff_ssl.simulation.trial`.
    import_limit_s: Seconds for the import of TensorFlow Federated.
    answer_limit_s: Seconds for the start and the answer, and as many for the
      end. The process is killed after them, and with it its worker.

  Returns:
    The seconds that it took, or what went wrong.
  """
  try:
    # Files: whoever waits for the end of a pipe waits for all that hold it.
    with tempfile.TemporaryDirectory() as folder:
      steps = pathlib.Path(folder, 'steps')
      errors = pathlib.Path(folder, 'errors')
      with steps.open('wb') as out, errors.open('wb') as err:
        child = subprocess.Popen(
          command,
          stdin=subprocess.DEVNULL,
          stdout=out,
          stderr=err,
          env={'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ},
        )
      try:
        return _follow(child, steps, errors, import_limit_s, answer_limit_s)
      finally:
        child.kill()
        # One that waits for a broken disk cannot even be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
          child.wait(answer_limit_s)
  except OSError as error:
    return Trial(None, f'No worker can be tried: {error}')


def _follow(child, steps, errors, import_limit_s, answer_limit_s) -> Trial:
  """Waits for each step of the trial in turn."""
  busy = 'see whether this machine is busy, then try again'
  if not _wait(child, steps, 'imported', import_limit_s):
    if child.poll() is None:
      return Trial(
        None,
        'TensorFlow Federated is not imported after '
        f'{import_limit_s:g} s: {busy}',
      )
    return Trial(
      None,
      f'TensorFlow Federated cannot be imported, {_end(child, errors)}: mend '
      'the packages (see above)',
    )
  if not _wait(child, steps, 'answered', answer_limit_s):
    if child.poll() is None:
      return Trial(
        None,
        f'A worker has not answered after {answer_limit_s:g} s: check the '
        f'firewall of this machine; {busy}',
      )
    said = _after(steps, 'failed') or (
      f'The worker cannot be tried, {_end(child, errors)}'
    )
    return Trial(None, said)
  try:
    child.wait(answer_limit_s)
  except subprocess.TimeoutExpired:
    return Trial(
      None,
      'A worker has answered, but has not ended after '
      f'{answer_limit_s:g} s: {busy}',
    )
  if child.returncode:
    return Trial(
      None, f'A worker has answered, but not ended well, {_end(child, errors)}'
    )
  return Trial(float(_after(steps, 'answered')), None)


def _wait(child, steps, step: str, limit_s: float) -> bool:
  """Returns whether a step is done within its time, and before the end."""
  deadline = time.monotonic() + limit_s
  while True:
    # Asked first: what has ended writes no more.
    is_last = child.poll() is not None or time.monotonic() > deadline
    if _after(steps, step) is not None:
      return True
    if is_last:
      return False
    time.sleep(_POLL_S)


def _after(steps, step: str) -> str | None:
  """Returns what stands behind the name of a step, once its line is whole."""
  *lines, _ = steps.read_text(errors='replace').split('\n')
  for line in lines:
    name, _, rest = line.partition(' ')
    if name == step:
      return rest
  return None


def _end(child, errors) -> str:
  """Returns how a process ended, with its last line of stderr."""
  code = child.returncode
  how = f'exit code {code}'
  if code < 0:
    how = f'signal {-code} ({signal.Signals(-code).name})'
  lines = errors.read_text(errors='replace').split('\n')
  last = next((line.strip() for line in lines[::-1] if line.strip()), '')
  return f'{how}, last line {last!r}'


def examine(cache_dir: str, data_dir: str | None) -> Iterator[Line]:
  """Makes all checks on this machine.

  Args:
    cache_dir: Folder of unpacked data and client stores; it need not exist.
    data_dir: Folder of data files, or `None`.

  Yields:
    A line for each check, as soon as it is made.
  """
  yield check_python(sys.version_info)
  yield _examine_packages(pathlib.Path(__file__).resolve().parents[1])
  system = platform.system()
  yield check_system(system, platform.machine(), platform.libc_ver())
  name = processor.fields().get('model name', 'The processor')
  yield check_processor(processor.flags(), name)
  yield check_memory(_available_memory())
  yield _examine_folder('Cache folder', cache_dir)
  yield _examine_folder('Current folder', os.curdir)
  yield check_data(data_dir, _names_in(data_dir) if data_dir else None)
  yield check_proxies(os.environ)
  yield check_port()
  if system != 'Linux' or not importlib.util.find_spec('tensorflow_federated'):
    yield Line(NOTE, 'No worker is tried before the rest is mended')
  else:
    yield check_worker(try_worker())


def _examine_packages(root: pathlib.Path) -> Line:
  """Compares what is installed with the pins of a checkout, if it is one."""
  path = root / 'requirements.txt'
  if not (root / 'setup.py').is_file() or not path.is_file():
    wanted, source = WORKS_WITH, 'tff_ssl needs'
    remedy = 'install the requirements.txt of the repository, with --no-deps'
  else:
    wanted, source = read_pins(path), 'requirements.txt has'
    install = '-m pip install --no-deps -r requirements.txt'
    remedy = f'run make env, or python {install}'
    # `make env` would find that it was built from these pins already.
    if pathlib.Path(sys.prefix).resolve() == (root / '.venv').resolve():
      remedy = f'run .venv/bin/python {install}'
  return check_packages(
    wanted, {name: _version(name) for name in wanted}, source, remedy
  )


def _version(name: str) -> str | None:
  """Returns the installed version of a package, if any."""
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None


def _examine_folder(what: str, path: str) -> Line:
  """Looks at a folder, or at that in which it would be made."""
  there = os.path.abspath(os.path.expanduser(path))
  while not os.path.lexists(there):
    there = os.path.dirname(there)
  return check_folder(
    f'{what} {path}' if path != os.curdir else what,
    os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK),
    shutil.disk_usage(there).free,
  )


def _available_memory() -> int | None:
  """Returns the bytes of memory that are available, as Linux tells it."""
  try:
    text = pathlib.Path('/proc/meminfo').read_text()
  except OSError:
    return None
  found = re.search(r'^MemAvailable:\s*(\d+) kB', text, re.MULTILINE)
  return int(found[1]) * 1024 if found else None


def _names_in(folder: str) -> list[str] | None:
  """Returns what lies in a folder and in its folders, such as 'tfds/mnist'."""
  try:
    names = []
    for entry in sorted(pathlib.Path(os.path.expanduser(folder)).iterdir()):
      inner = sorted(entry.iterdir()) if entry.is_dir() else []
      names += [f'{entry.name}/{one.name}' for one in inner] or [entry.name]
    return names
  except OSError:
    return None


def _listed(names: Sequence[str]) -> str:
  """Returns the first names, and how many there are beside them."""
  more = len(names) - _MANY
  shown = ', '.join(names[:_MANY])
  return f'{shown} and {more} more' if more > 0 else shown


class _UsageError(ValueError):
  """An error in the command line, described in one sentence."""


class _Parser(argparse.ArgumentParser):
  """A parser with the project's style of errors."""

  def error(self, message):
    raise _UsageError(f'{message}: see --help.')


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the arguments of the command line."""
  parser = _Parser(
    prog='python -m tff_ssl.doctor',
    description='Checks this machine and says what is wrong with it, and what '
    'to do. Exit code: 0 if all is well, 1 if something is wrong, 2 if the '
    'command line cannot be read.',
    allow_abbrev=False,
  )
  parser.add_argument(
    '--cache_dir',
    default=CACHE_DIR,
    help='folder of unpacked data and client stores; by default %(default)s',
  )
  parser.add_argument(
    '--data_dir',
    default=os.environ.get(_DATA_DIR),
    help=f'folder of the data files; by default {_DATA_DIR}, if set',
  )
  return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  try:
    values = _parse(argv[1:])
  except _UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  count = wrong = 0
  for status, text in examine(values.cache_dir, values.data_dir or None):
    count += 1
    wrong += status == WRONG
    print(f'{status:5}  {text}', flush=True)
  if wrong:
    print(f'{wrong} of {count} checks found something wrong.')
    return _UNSOUND
  print('Nothing is wrong.')
  return _SOUND


if __name__ == '__main__':
  try:
    exit_code = main(sys.argv)
  except KeyboardInterrupt:
    exit_code = _STOPPED
  sys.exit(exit_code)
