"""Files that are written whole: what is there after each way to fail."""

import io
import os
import signal
import subprocess
import sys

import pytest
from matplotlib import figure
from PIL import Image

from experiments.artifacts import pictures
from tff_ssl.common import whole_files


def names_in(folder):
  return sorted(path.name for path in folder.iterdir())


def test_the_new_file_takes_the_place_of_the_old_one(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'old')
  with whole_files.replacing(path) as file:
    file.write(b'new')
    assert path.read_bytes() == b'old'
  assert path.read_bytes() == b'new'
  assert names_in(tmp_path) == ['a.txt']


@pytest.mark.parametrize('error', [OSError(28, 'full'), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_alone(error, tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'old')
  with pytest.raises(type(error)), whole_files.replacing(path) as file:
    file.write(b'half')
    raise error
  assert path.read_bytes() == b'old'
  assert names_in(tmp_path) == ['a.txt']


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
  """A machine may lose its power after any of these calls."""
  calls = []
  for name in ('fsync', 'replace'):

    def record(*args, name=name, call=getattr(os, name)):
      calls.append(name)
      return call(*args)

    monkeypatch.setattr(os, name, record)
  with whole_files.replacing(tmp_path / 'a.txt') as file:
    file.write(b'new')
  assert calls == ['fsync', 'replace']


KILLED = """
import os, signal, sys
from tff_ssl.common import whole_files
with whole_files.replacing(sys.argv[1]) as file:
  file.write(b'half')
  file.flush()
  os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_old_file_and_a_temporary_one(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'old')
  done = subprocess.run([sys.executable, '-c', KILLED, path])
  assert done.returncode == -signal.SIGKILL
  assert path.read_bytes() == b'old'
  other, own = names_in(tmp_path)
  assert other.startswith(whole_files.TEMPORARY_PREFIX) and own == 'a.txt'


def test_pictures_are_not_written_in_place(tmp_path, monkeypatch):
  """A picture of before is whole until the next one is."""
  path, drawn = tmp_path / 'curves.png', figure.Figure()
  pictures.save(drawn, path)
  before, renamed = path.read_bytes(), []
  replace = os.replace

  def look(source, target):
    assert path.read_bytes() == before
    with open(source, 'rb') as file, Image.open(io.BytesIO(file.read())) as new:
      new.verify()
    renamed.append(target)
    replace(source, target)

  monkeypatch.setattr(os, 'replace', look)
  drawn.suptitle('second')
  pictures.save(drawn, path)
  assert renamed == [path] and path.read_bytes() != before
