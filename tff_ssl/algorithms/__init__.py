"""The algorithms, and the one registry of processes.

The registry says how a process is built, what data it needs, and which settings
it has. From it derive the names that the runner takes and lists, which flags a
process takes and which the runner refuses, the data that a run prepares, the
processes of the contract suite, and the builders among the public names. To add
an algorithm, write one file with a `ProcessSpec` at its foot.

Importing the registry imports no TensorFlow: the algorithms' files import it
when it is first used.
"""

import importlib
import pkgutil
import types
from collections.abc import Iterator, Sequence

from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.choice import Registry

__all__ = ['PROCESSES', 'Needs', 'ProcessSpec']


def records(module: types.ModuleType) -> Sequence[ProcessSpec]:
  """Returns the records of an algorithm's file: its `SPEC`, or its `SPECS`."""
  own = getattr(module, 'SPEC', None)
  return getattr(module, 'SPECS', ()) if own is None else (own,)


def _all_records() -> Iterator[ProcessSpec]:
  for found in pkgutil.iter_modules(__path__):
    yield from records(importlib.import_module(f'{__name__}.{found.name}'))


PROCESSES: Registry[ProcessSpec] = Registry(
  'process', _all_records(), ProcessSpec
)
