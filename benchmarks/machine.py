"""What the timings depend on besides the code: this machine."""

import os
import pathlib
import platform

import psutil
import tensorflow as tf
import tensorflow_federated as tff

_CPU_INFO = pathlib.Path('/proc/cpuinfo')
_MATRIX_UNITS = ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16')


def describe() -> dict:
  """Returns the processor, its matrix units, memory, load and versions.

  Returns:
    A dict of JSON types. `load` is the number of processes that ran or waited
    on average during the last minute, before the benchmark's own.
  """
  fields = _read_cpu_info()
  flags = fields.get('flags', '').split()
  units = {unit: unit in flags for unit in _MATRIX_UNITS}
  units['avx512'] = units.pop('avx512f')
  return {
    'processor': fields.get('model name') or platform.processor(),
    'cores': len(psutil.Process().cpu_affinity()),
    **units,
    'memory_gib': round(psutil.virtual_memory().total / 2**30, 1),
    'load': round(os.getloadavg()[0], 2),
    'tensorflow': tf.__version__,
    'tensorflow_federated': tff.__version__,
  }


def _read_cpu_info() -> dict[str, str]:
  """Returns the fields of the first processor."""
  first = _CPU_INFO.read_text().partition('\n\n')[0]
  pairs = (line.partition(':') for line in first.splitlines())
  return {name.strip(): value.strip() for name, _, value in pairs}
