"""How TensorFlow is set up, and the warning of a slow precision."""

import logging
import os

import pytest
import pythons

from experiments.preparing import hardware
from tff_ssl import doctor


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
  monkeypatch.setattr(doctor, 'processor_flags', lambda: frozenset(flags))
  with caplog.at_level(logging.WARNING):
    hardware.warn_of_slow_precision(precision)
  assert len(caplog.messages) == warns
  if warns:
    assert caplog.messages[0].startswith('--precision=bfloat16 is slower')


@pytest.mark.parts
def test_a_command_that_computes_nothing_with_tff_ends_without_a_word():
  """TFF's own context would print a traceback."""
  done = pythons.run(
    '-c',
    'import tensorflow_federated; from experiments.preparing import hardware; '
    'hardware.set_up_tensorflow()',
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    check=True,
  )
  assert not done.stderr


@pytest.mark.parametrize(
  'precision, clients, before, kernels, threads',
  [
    (None, None, {}, '1', '1'),
    ('float32', 10_000, {}, '1', '1'),
    # oneDNN has no kernels for it on some processors.
    ('bfloat16', None, {}, None, '1'),
    (None, 1, {}, '1', str(len(os.sched_getaffinity(0)))),
    (None, None, {'TF_ENABLE_ONEDNN_OPTS': '0'}, '0', '1'),
    (None, None, {'TF_NUM_INTRAOP_THREADS': '7'}, '1', '7'),
  ],
)
def test_kernels_and_threads_of_clients(
  monkeypatch, precision, clients, before, kernels, threads
):
  names = 'TF_ENABLE_ONEDNN_OPTS', 'TF_NUM_INTRAOP_THREADS'
  for name in names:
    monkeypatch.delenv(name, raising=False)
  for name, value in before.items():
    monkeypatch.setenv(name, value)
  hardware.choose_kernels(precision, clients)
  found = tuple(map(os.environ.get, names))
  for name in names:
    os.environ.pop(name, None)  # `monkeypatch` puts back what was there.
  assert found == (kernels, threads)
