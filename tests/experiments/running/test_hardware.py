"""What the processor can do, and the warning where it cannot."""

import logging
import shutil
import subprocess

import pytest

from experiments.running import hardware


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
  assert hardware.processor_flags() == set(line.split()[1:])


@pytest.mark.parametrize(
  'precision, flags, warns',
  [
    ('bfloat16', {'avx2', 'fma'}, True),
    ('bfloat16', {'avx2', 'avx512_bf16'}, False),
    ('bfloat16', {'amx_bf16'}, False),
    ('float32', {'avx2'}, False),
  ],
)
def test_warning_where_bfloat16_is_slow(
  monkeypatch, caplog, precision, flags, warns
):
  monkeypatch.setattr(hardware, 'processor_flags', lambda: frozenset(flags))
  with caplog.at_level(logging.WARNING):
    hardware.warn_of_slow_precision(precision)
  assert len(caplog.messages) == warns
  if warns:
    assert caplog.messages[0].startswith('--precision=bfloat16 is slower')
