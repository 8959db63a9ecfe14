"""What is wrong with a machine: each check, and a whole examination."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import psutil
import pytest

from experiments.config import run_settings
from tff_ssl import doctor
from tff_ssl.doctor import NOTE, OK, WRONG, Line

_ROOT = pathlib.Path(__file__).parents[2]
_PINS = 'requirements/runtime.txt'
_UNITS = {'avx', 'avx2', 'fma'}
_GB = 10**9


@pytest.mark.parametrize(
  'version, status',
  [((3, 11, 7), OK), ((3, 10, 1), WRONG), ((3, 12, 0), WRONG)],
)
def test_python(version, status):
  line = doctor.check_python(version)
  assert line.status == status
  assert line.text.startswith(f'Python {".".join(map(str, version))}')
  assert ('make env' in line.text) == (status == WRONG)


def packages(installed, **wanted):
  wanted = wanted or {'keras': '2.14.0', 'tensorflow': '2.14.1'}
  return doctor.check_packages(
    wanted, installed, f'{_PINS} has', 'run make env'
  )


def test_packages_that_differ_or_are_missing():
  assert packages({'keras': '2.14.0', 'tensorflow': '2.14.1'}).status == OK
  assert packages({'keras': '2.14.0', 'tensorflow': '2.13.0'}) == Line(
    WRONG, f'tensorflow 2.13.0, {_PINS} has 2.14.1: run make env'
  )
  assert packages({'keras': None, 'tensorflow': '2.13.0'}) == Line(
    WRONG,
    f'tensorflow 2.13.0, {_PINS} has 2.14.1; keras is missing: run make env',
  )


def test_pins_are_compared_whole_and_patterns_by_their_beginning():
  assert packages({'keras': '2.14.0.1'}, keras='2.14.0').status == WRONG
  assert packages({'keras': '2.14.7'}, keras='2.14.*').status == OK
  assert packages({'keras': '2.15.0'}, keras='2.14.*').status == WRONG


def test_many_missing_packages_are_counted():
  wanted = {f'package{number}': '1.0' for number in range(30)}
  line = packages({}, **wanted)
  assert '30 of 30 packages are missing (package0, ' in line.text
  assert 'and 22 more)' in line.text


def test_wrong_pins_are_found_in_a_checkout(tmp_path):
  pins = tmp_path / _PINS
  pins.parent.mkdir()
  pins.write_text('# By hand.\nnumpy==0.1\nno-such-package==3 # why\nkeras>2\n')
  assert doctor.read_pins(pins) == {'numpy': '0.1', 'no-such-package': '3'}
  # Without setup.py, a file of this name belongs to somebody else.
  assert doctor._examine_packages(tmp_path).status == OK
  (tmp_path / 'setup.py').touch()
  line = doctor._examine_packages(tmp_path)
  assert line.status == WRONG
  assert re.match(rf'numpy 1\.\S+, {_PINS} has 0\.1; ', line.text)
  assert 'no-such-package is missing: run make env, or python -m' in line.text


def test_make_env_is_no_remedy_in_the_environment_that_it_has_made(
  tmp_path, monkeypatch
):
  (tmp_path / 'requirements').mkdir()
  (tmp_path / _PINS).write_text('numpy==0.1\n')
  (tmp_path / 'setup.py').touch()
  monkeypatch.setattr(sys, 'prefix', str(tmp_path / '.venv'))
  assert doctor._examine_packages(tmp_path).text.endswith(
    f': run .venv/bin/python -m pip install --no-deps -r {_PINS}'
  )


def test_what_a_wheel_works_with_are_the_pins():
  pins = doctor.read_pins(_ROOT / _PINS)
  installed = {name: pins[name] for name in doctor.WORKS_WITH}
  assert packages(installed, **doctor.WORKS_WITH).status == OK


@pytest.mark.parametrize(
  'system, machine, libc, status, text',
  [
    ('Linux', 'x86_64', ('glibc', '2.36'), OK, 'glibc 2.36'),
    ('Linux', 'x86_64', ('glibc', '2.31'), OK, 'glibc 2.31'),
    ('Linux', 'x86_64', ('glibc', '2.28'), WRONG, 'Federated needs 2.31'),
    ('Linux', 'x86_64', ('', ''), WRONG, 'No glibc'),
    ('Linux', 'aarch64', ('glibc', '2.36'), WRONG, 'Linux aarch64'),
    ('Darwin', 'arm64', ('', ''), WRONG, 'needs Linux x86_64'),
  ],
)
def test_system(system, machine, libc, status, text):
  line = doctor.check_system(system, machine, libc)
  assert line.status == status
  assert text in line.text


@pytest.mark.parametrize(
  'flags, status, text',
  [
    (_UNITS, OK, 'AVX, AVX2, FMA, without AVX512, AVX512-BF16, AMX ('),
    ({'avx'}, OK, 'has AVX, without AVX2, FMA, AVX512, '),
    (
      {*_UNITS, 'avx512f', 'avx512_bf16', 'amx_tile'},
      OK,
      'has AVX, AVX2, FMA, AVX512, AVX512-BF16, AMX (',
    ),
    ({'sse4_2'}, WRONG, 'has no AVX, '),
    (set(), NOTE, 'unknown'),
  ],
)
def test_processor(flags, status, text):
  line = doctor.check_processor(frozenset(flags), 'A processor')
  assert line.status == status
  assert text in line.text


@pytest.mark.parametrize(
  'writable, free, status',
  [(True, 3 * _GB, OK), (True, _GB, WRONG), (False, 3 * _GB, WRONG)],
)
def test_folder(writable, free, status):
  line = doctor.check_folder('Cache folder x', writable, free)
  assert line.status == status
  assert line.text.startswith('Cache folder x')


def test_a_folder_is_asked_for_where_it_would_be_made(tmp_path, monkeypatch):
  asked = []
  monkeypatch.setattr(
    shutil,
    'disk_usage',
    lambda path: asked.append(path) or shutil._ntuple_diskusage(9, 0, 9 * _GB),
  )
  inner = tmp_path / 'not' / 'there'
  assert doctor._examine_folder('Cache folder', str(inner)).status == OK
  assert asked == [str(tmp_path)]
  (tmp_path / 'not').touch()
  assert doctor._examine_folder('Cache folder', str(inner)).status == WRONG


@pytest.mark.parametrize(
  'available, status', [(3 * _GB, OK), (_GB, NOTE), (None, NOTE)]
)
def test_memory(available, status):
  assert doctor.check_memory(available).status == status


def test_available_memory_is_that_of_psutil():
  available = psutil.virtual_memory().available
  assert abs(doctor._available_memory() - available) < _GB


# Limits are short where they are reached, else long enough for a busy machine.
@pytest.mark.parametrize(
  'program, limit_s, line',
  [
    ('exit 0', 30, r'^ok TensorFlow Federated computes, with no GPU$'),
    ('echo A100; echo T4', 30, r'^ok .* on A100, T4$'),
    ('exec sleep 60', 0.5, r'^WRONG .* not computed after 0.5 s'),
    ('echo No. >&2; exit 3', 30, r"^WRONG .* exit code 3, last line 'No.'"),
    ('kill -ILL $$', 30, r'^WRONG .* signal 4 \(SIGILL\)'),
  ],
)
def test_computation(program, limit_s, line):
  began = time.monotonic()
  found = doctor.check_computation(['sh', '-c', program], limit_s)
  assert re.search(line, ' '.join(found))
  assert time.monotonic() - began < 20
  children = psutil.Process().children()
  assert 'sleep' not in [child.name() for child in children]


def test_no_computation_without_a_program():
  line = doctor.check_computation(['/no/such/program'])
  assert line.status == WRONG and 'cannot be tried: ' in line.text


def test_the_default_of_cache_dir_is_that_of_runs():
  [default] = [s.default for s in run_settings.PLACES if s.name == 'cache_dir']
  assert default == doctor.CACHE_DIR


def test_bad_flags(capsys):
  with pytest.raises(SystemExit, match='2'):
    doctor.main(['doctor', '--cachedir=x'])
  assert '--cachedir=x' in capsys.readouterr().err


@pytest.mark.parametrize('name', ['__init__', 'doctor'])
def test_older_pythons_can_read_it(name):
  text = (_ROOT / 'tff_ssl' / f'{name}.py').read_text()
  ast.parse(text, feature_version=(3, 8))


def test_without_any_package(tmp_path):
  """`-S` hides all that is installed."""
  done = subprocess.run(
    [sys.executable, '-S', '-m', 'tff_ssl.doctor', f'--cache_dir={tmp_path}'],
    cwd=_ROOT,
    env={'PATH': os.environ['PATH']},
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.returncode == 1, done.stderr
  assert re.search('^WRONG  .* packages are missing', done.stdout, re.M)
  assert re.search('^note   Nothing is computed', done.stdout, re.M)
  assert not done.stderr


@pytest.mark.parts
def test_a_whole_examination(tmp_path, monkeypatch, capsys):
  """On a machine that runs these tests, with room on its disk."""
  monkeypatch.setenv('TFF_SSL_DATA_DIR', str(tmp_path))
  monkeypatch.chdir(_ROOT)
  before = psutil.Process().children(recursive=True)
  exit_code = doctor.main(['doctor', f'--cache_dir={tmp_path}'])
  shown = capsys.readouterr().out
  assert exit_code == 0, shown
  *lines, last = shown.splitlines()
  assert all(re.match('(ok   |note )  [^ ]', line) for line in lines)
  assert lines[-1].startswith('ok     TensorFlow Federated computes, ')
  assert last == 'Nothing is wrong.'
  assert psutil.Process().children(recursive=True) == before


@pytest.mark.parametrize(
  'code, is_asked',
  [(0, False), (1, True), (2, True), (137, True)]
  + [(stopped, False) for stopped in (130, 141, 143)],
)
def test_make_run_asks_the_doctor_where_a_run_fails(tmp_path, code, is_asked):
  (tmp_path / 'requirements').mkdir()
  for name in ('Makefile', _PINS, 'setup.py', 'pyproject.toml'):
    shutil.copy(_ROOT / name, tmp_path / name)
    os.utime(tmp_path / name, (1000, 1000))
  python = tmp_path / '.venv' / 'bin' / 'python'
  python.parent.mkdir(parents=True)
  python.write_text(
    '#!/bin/sh\n'
    f'case "$*" in *tff_ssl.doctor) echo asked;; *) exit {code};; esac\n'
  )
  python.chmod(0o755)
  for name in ('.installed', '.editable'):
    (tmp_path / '.venv' / name).touch()
  done = subprocess.run(
    ['make', 'run'], cwd=tmp_path, capture_output=True, text=True, timeout=60
  )
  assert ('asked' in done.stderr.splitlines()) == is_asked
  assert bool(done.returncode) == bool(code)
  assert (f'Error {code}' in done.stderr) == bool(code)


def test_flags_are_those_that_lscpu_shows():
  if not shutil.which('lscpu'):
    pytest.skip('needs lscpu')
  shown = subprocess.run(
    ['lscpu'],
    capture_output=True,
    text=True,
    check=True,
    timeout=30,
    env={'LC_ALL': 'C', 'PATH': '/usr/bin:/bin'},
  ).stdout
  [line] = [li for li in shown.splitlines() if li.startswith('Flags:')] or ['']
  assert doctor.processor_flags() == set(line.split()[1:])
