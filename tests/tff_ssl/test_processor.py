"""What the processor can do."""

import shutil
import subprocess

import pytest

from tff_ssl import processor


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
  assert processor.flags() == set(line.split()[1:])
