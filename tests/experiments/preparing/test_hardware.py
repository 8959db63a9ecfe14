"""How TensorFlow is set up."""

import os

import pytest
import pythons

from experiments.preparing import hardware


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
  'clients, before, kernels, threads',
  [
    (None, {}, '1', '1'),
    (10_000, {}, '1', '1'),
    (1, {}, '1', str(len(os.sched_getaffinity(0)))),
    (None, {'TF_ENABLE_ONEDNN_OPTS': '0'}, '0', '1'),
    (None, {'TF_NUM_INTRAOP_THREADS': '7'}, '1', '7'),
  ],
)
def test_kernels_and_threads_of_clients(
  monkeypatch, clients, before, kernels, threads
):
  names = 'TF_ENABLE_ONEDNN_OPTS', 'TF_NUM_INTRAOP_THREADS'
  for name in names:
    monkeypatch.delenv(name, raising=False)
  for name, value in before.items():
    monkeypatch.setenv(name, value)
  hardware.choose_kernels(clients)
  found = tuple(map(os.environ.get, names))
  for name in names:
    os.environ.pop(name, None)  # `monkeypatch` puts back what was there.
  assert found == (kernels, threads)
