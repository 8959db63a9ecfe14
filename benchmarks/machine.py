"""What the timings depend on besides the code: this machine."""

import os
import platform

import psutil
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import doctor

_MATRIX_UNITS = ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16')


def describe() -> dict:
  """Returns the processor, its matrix units, memory, load and versions.

  Returns:
    A dict of JSON types. `load` is the number of processes that ran or waited
    on average during the last minute, before the benchmark's own.
  """
  fields = doctor.processor_fields()
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
