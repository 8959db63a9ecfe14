"""The warning where the processor is slow at a precision."""

import logging

import pytest

from experiments.preparing import hardware
from tff_ssl import processor


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
  monkeypatch.setattr(processor, 'flags', lambda: frozenset(flags))
  with caplog.at_level(logging.WARNING):
    hardware.warn_of_slow_precision(precision)
  assert len(caplog.messages) == warns
  if warns:
    assert caplog.messages[0].startswith('--precision=bfloat16 is slower')
