"""Says what is wrong with this machine: `python -m tff_ssl.doctor --help`.

Each check is a function from facts to a line; `examine` gathers the facts. No
check imports TensorFlow: the one that computes does so in a process of its own,
which is given up where it hangs. This file needs the standard library
of any Python from 3.8 on, since the wrong Python is one of the things to find.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

OK, NOTE, WRONG = 'ok', 'note', 'WRONG'

# As that of `experiments.run`.
CACHE_DIR = '~/.cache/tff_ssl'

_PYTHON = (3, 11)
# By the tag of TFF's wheel, manylinux_2_31: pip installs it on nothing older.
_GLIBC = (2, 31)
# TensorFlow's wheel is compiled for the first. The others change the order of
# sums, and with it the last bits of results.
_UNITS = {
  'avx': 'AVX',
  'avx2': 'AVX2',
  'fma': 'FMA',
  'avx512f': 'AVX512',
  'avx512_bf16': 'AVX512-BF16',
  'amx_tile': 'AMX',
}
# From the root of a checkout.
_PINS = 'requirements/runtime.txt'
# What a wheel of tff_ssl, without that file beside it, works with.
WORKS_WITH = {
  'keras': '2.14.*',
  'numpy': '1.*',
  'tensorflow': '2.14.*',
  'tensorflow-federated': '0.87.*',
}
_CPU_INFO = pathlib.Path('/proc/cpuinfo')
_GB = 10**9
_ENOUGH = 2 * _GB
_MANY = 8

# Computes, and prints the GPUs that TensorFlow sees.
_PROGRAM = """
import numpy as np, tensorflow as tf, tensorflow_federated as tff
from tff_ssl.simulation import contexts
contexts.install_context()
if tff.tensorflow.computation(lambda x: 2 * x, np.int32)(21) != 42:
  raise ValueError('2 * 21 is not 42')
for gpu in tf.config.list_physical_devices('GPU'):
  name = tf.config.experimental.get_device_details(gpu).get('device_name', gpu)
  print(name, flush=True)
"""
# The import reads some GB from a disk that may be slow.
_LIMIT_S = 200.0


class Line(NamedTuple):
  """What a check has found: `OK`, `NOTE` or `WRONG`, and maybe a remedy."""

  status: str
  text: str


def processor_fields() -> dict[str, str]:
  """Returns what Linux tells of the first processor, such as its 'flags'."""
  if not _CPU_INFO.exists():
    return {}
  first = _CPU_INFO.read_text().partition('\n\n')[0]
  pairs = (line.partition(':') for line in first.splitlines())
  return {name.strip(): value.strip() for name, _, value in pairs}


def processor_flags() -> frozenset[str]:
  """Returns the feature flags; empty where Linux does not tell."""
  return frozenset(processor_fields().get('flags', '').split())


def check_python(version: Sequence[int]) -> Line:
  """Returns whether TensorFlow Federated has a wheel for this Python."""
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

  The versions that `source` wants may be patterns, such as '2.14.*'.
  """
  missing = [name for name in wanted if installed.get(name) is None]
  found = [
    f'{name} {installed[name]}, {source} {version}'
    for name, version in wanted.items()
    if name not in missing
    and not fnmatch.fnmatchcase(str(installed[name]), version)
  ]
  if len(missing) > _MANY:
    found.append(
      f'{len(missing)} of {len(wanted)} packages are missing '
      f'({_listed(missing)})'
    )
  else:
    found += [f'{name} is missing' for name in missing]
  if not found:
    return Line(OK, f'{len(wanted)} packages are as {source} them')
  return Line(WRONG, f'{"; ".join(found)}: {remedy}')


def check_system(system: str, machine: str, libc: tuple[str, str]) -> Line:
  """Returns whether TensorFlow Federated can be installed here."""
  remedy = 'use a newer Linux on such a processor, or a container of one'
  if (system, machine) != ('Linux', 'x86_64'):
    return Line(
      WRONG,
      f'{system} {machine}, TensorFlow Federated needs Linux x86_64: {remedy}',
    )
  name, version = libc
  needed = '.'.join(map(str, _GLIBC))
  if name != 'glibc':
    return Line(
      WRONG, f'No glibc, TensorFlow Federated needs {needed}: {remedy}'
    )
  text = f'Linux x86_64 with glibc {version}'
  if tuple(map(int, re.findall(r'\d+', version)[:2])) < _GLIBC:
    return Line(WRONG, f'{text}, TensorFlow Federated needs {needed}: {remedy}')
  return Line(OK, text)


def check_processor(flags: frozenset[str], name: str) -> Line:
  """Returns what the processor of this name can do."""
  if not flags:
    return Line(NOTE, 'What the processor can do is unknown here')
  if 'avx' not in flags:
    return Line(
      WRONG,
      f'{name} has no AVX, without which TensorFlow crashes: use another '
      'machine, or let the virtual one show what its host has',
    )
  there = [unit for flag, unit in _UNITS.items() if flag in flags]
  absent = [unit for flag, unit in _UNITS.items() if flag not in flags]
  without = f', without {", ".join(absent)}' if absent else ''
  return Line(
    OK,
    f'{name} has {", ".join(there)}{without} (results are bit-identical on '
    'processors of one kind)',
  )


def check_folder(name: str, writable: bool, free: int) -> Line:
  """Returns whether a folder, with `free` bytes, can take a run's files."""
  text = f'{name}: {free / _GB:.1f} GB are free'
  if not writable:
    return Line(WRONG, f'{name} cannot be written: choose another folder')
  if free < _ENOUGH:
    return Line(WRONG, f'{text}: make room for 2 GB, or choose another disk')
  return Line(OK, text)


def check_memory(available: int | None) -> Line:
  """Returns whether there is memory for a small run; `None` is unknown."""
  if available is None:
    return Line(NOTE, 'How much memory is free is unknown here')
  text = f'{available / _GB:.1f} GB of memory are free'
  if available < _ENOUGH:
    return Line(
      NOTE,
      f'{text}: end other programs if a run is killed, or sample fewer clients',
    )
  return Line(OK, text)


def check_computation(
  program: Sequence[str] = (sys.executable, '-c', _PROGRAM),
  limit_s: float = _LIMIT_S,
) -> Line:
  """Returns whether TensorFlow Federated computes, and whether on a GPU.

  A program tries it, which prints the names of the GPUs, one per line, and is
  given up where it hangs.
  """
  try:
    done = subprocess.run(
      program,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      text=True,
      errors='replace',
      timeout=limit_s,
      env={'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ},
    )
  except OSError as error:
    return Line(WRONG, f'TensorFlow Federated cannot be tried: {error}')
  except subprocess.TimeoutExpired:
    return Line(
      WRONG,
      f'TensorFlow Federated has not computed after {limit_s:g} s: see whether '
      'this machine is busy, then try again',
    )
  if code := done.returncode:
    how = f'exit code {code}'
    if code < 0:
      how = f'signal {-code} ({signal.Signals(-code).name})'
    last = (done.stderr.strip().splitlines() or [''])[-1].strip()
    return Line(
      WRONG,
      f'TensorFlow Federated does not compute, {how}, last line {last!r}: mend '
      'the packages (see above)',
    )
  gpus = done.stdout.split('\n')[:-1]
  where = f'on {_listed(gpus)}' if gpus else 'with no GPU'
  return Line(OK, f'TensorFlow Federated computes, {where}')


def read_pins(path: pathlib.Path) -> dict[str, str]:
  """Returns the versions by name that a file of requirements pins."""
  pin = re.compile(r'^([A-Za-z0-9][\w.-]*)==([^\s;]+)', re.MULTILINE)
  return dict(pin.findall(path.read_text(encoding='utf-8')))


def examine(cache_dir: str) -> Iterator[tuple[str, Line]]:
  """Makes all checks on this machine, by name; the folder need not exist."""
  yield 'python', check_python(sys.version_info[:3])
  root = pathlib.Path(__file__).resolve().parents[1]
  yield 'packages', _examine_packages(root)
  system, machine = platform.system(), platform.machine()
  yield 'system', check_system(system, machine, platform.libc_ver())
  name = processor_fields().get('model name', 'The processor')
  yield 'processor', check_processor(processor_flags(), name)
  yield 'memory', check_memory(_available_memory())
  yield 'cache_folder', _examine_folder('Cache folder', cache_dir)
  yield 'current_folder', _examine_folder('Current folder', os.curdir)
  line = Line(NOTE, 'Nothing is computed before the rest is mended')
  if system == 'Linux' and importlib.util.find_spec('tensorflow_federated'):
    line = check_computation()
  yield 'computation', line


def _examine_packages(root: pathlib.Path) -> Line:
  """Compares what is installed with the pins of a checkout, if it is one."""
  path = root / _PINS
  if not (root / 'setup.py').is_file() or not path.is_file():
    wanted, source = WORKS_WITH, 'tff_ssl needs'
    remedy = 'run pip install --no-deps -r runtime.txt, a file beside the wheel'
  else:
    wanted, source = read_pins(path), f'{_PINS} has'
    install = f'-m pip install --no-deps -r {_PINS}'
    remedy = f'run make env, or python {install}'
    # `make env` would find that it was built from these pins already.
    if pathlib.Path(sys.prefix).resolve() == (root / '.venv').resolve():
      remedy = f'run .venv/bin/python {install}'
  return check_packages(
    wanted, {name: _version(name) for name in wanted}, source, remedy
  )


def _version(name: str) -> str | None:
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
  try:
    text = pathlib.Path('/proc/meminfo').read_text()
  except OSError:
    return None
  found = re.search(r'^MemAvailable:\s*(\d+) kB', text, re.MULTILINE)
  return int(found[1]) * 1024 if found else None


def _listed(names: Sequence[str]) -> str:
  """Returns the first names, and how many there are beside them."""
  more = len(names) - _MANY
  shown = ', '.join(names[:_MANY])
  return f'{shown} and {more} more' if more > 0 else shown


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  parser = argparse.ArgumentParser(
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
    '--json',
    action='store_true',
    help='print one JSON document in the place of lines',
  )
  values = parser.parse_args(argv[1:])
  found = []
  for name, line in examine(values.cache_dir):
    found.append({'check': name, **line._asdict()})
    if not values.json:
      print(f'{line.status:5}  {line.text}', flush=True)
  wrong = sum(each['status'] == WRONG for each in found)
  if values.json:
    print(json.dumps({'checks': found, 'wrong': wrong}, indent=2))
  elif wrong:
    print(f'{wrong} of {len(found)} checks found something wrong.')
  else:
    print('Nothing is wrong.')
  return int(wrong > 0)


if __name__ == '__main__':
  try:
    exit_code = main(sys.argv)
  except KeyboardInterrupt:
    exit_code = 128 + signal.SIGINT
  sys.exit(exit_code)
