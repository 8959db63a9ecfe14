"""What is installed: tff_ssl alone, with its licence.

The build runs in a copy, so that nothing is written into the source tree.
"""

import email
import hashlib
import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest
import pythons

import tff_ssl

_ROOT = pathlib.Path(__file__).parents[1]
_BUILD = """
from setuptools import build_meta
build_meta.build_wheel('wheel')
build_meta.build_editable('editable')
"""


@pytest.fixture(scope='module')
def built(tmp_path_factory):
  """The folder of a copy of the project, with a wheel of each kind."""
  copy = tmp_path_factory.mktemp('project')
  for name in ('setup.py', 'pyproject.toml', 'README.md', 'LICENSE'):
    shutil.copy(_ROOT / name, copy)
  for name in ('tff_ssl/algorithms', 'datasets', 'experiments', 'tests'):
    (copy / name).mkdir(parents=True)
    shutil.copy(_ROOT / 'datasets/__init__.py', copy / name)
  for name in ('__init__.py', '__init__.pyi', 'py.typed'):
    shutil.copy(_ROOT / 'tff_ssl' / name, copy / 'tff_ssl')
  for name in ('wheel', 'editable'):
    (copy / name).mkdir()
  pythons.run('-c', _BUILD, cwd=copy, check=True)
  return copy


def files_of(folder):
  """What the wheel in a folder holds, by name."""
  (wheel,) = folder.glob('*.whl')
  with zipfile.ZipFile(wheel) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_tff_ssl_alone_and_names_its_licence(built):
  files = files_of(built / 'wheel')
  version = tff_ssl.__version__
  names = {name.partition('/')[0] for name in files}
  assert names == {'tff_ssl', f'tff_ssl-{version}.dist-info'}
  # So type checkers read it.
  assert {'tff_ssl/py.typed', 'tff_ssl/__init__.pyi'} <= files.keys()
  (metadata,) = [v for k, v in files.items() if k.endswith('/METADATA')]
  headers = email.message_from_bytes(metadata)
  assert headers['License'] == 'Apache-2.0'
  assert headers['Version'] == version
  assert 'License :: OSI Approved :: Apache Software License' in (
    headers.get_all('Classifier')
  )
  (licence,) = [v for k, v in files.items() if k.endswith('/LICENSE')]
  # Of the text as the Apache Software Foundation publishes it.
  assert hashlib.sha256(licence).hexdigest() == (
    'cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30'
  )


def test_from_any_folder_a_checkout_gives_tff_ssl_alone(
  built, tmp_path_factory
):
  """As `make env` installs it; without the folders of this environment."""
  site = tmp_path_factory.mktemp('site')
  for name, content in files_of(built / 'editable').items():
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_bytes(content)
  program = f"""
import importlib.util, site
site.addsitedir({str(site)!r})
for name in ('tff_ssl', 'datasets', 'experiments', 'tests'):
  found = importlib.util.find_spec(name)
  print(name, found and found.origin)
"""
  done = pythons.run('-I', '-S', '-c', program, cwd=site, check=True)
  assert done.stdout.splitlines() == [
    f'tff_ssl {built / "tff_ssl" / "__init__.py"}',
    *(f'{name} None' for name in ('datasets', 'experiments', 'tests')),
  ]


def test_make_env_installs_anew_what_has_changed(tmp_path):
  pins = 'requirements/runtime.txt'
  (tmp_path / 'requirements').mkdir()
  for name in ('Makefile', pins, 'setup.py', 'pyproject.toml'):
    shutil.copy(_ROOT / name, tmp_path / name)
    os.utime(tmp_path / name, (1000, 1000))
  (tmp_path / '.venv').mkdir()
  for name in ('.installed', '.editable'):
    (tmp_path / '.venv' / name).touch()
    os.utime(tmp_path / '.venv' / name, (2000, 2000))

  def commands():
    done = subprocess.run(
      ['make', '--dry-run', 'env'],
      cwd=tmp_path,
      check=True,
      capture_output=True,
      text=True,
    )
    return done.stdout

  assert 'pip' not in commands()
  # Of this project alone: seconds, and no network.
  os.utime(tmp_path / 'setup.py', (3000, 3000))
  assert '--no-deps --no-build-isolation ' in commands()
  assert 'editable_mode=compat -e .' in commands()
  assert f'-r {pins}' not in commands()
  os.utime(tmp_path / pins, (3000, 3000))
  assert f'-r {pins}' in commands() and '-e .' in commands()
