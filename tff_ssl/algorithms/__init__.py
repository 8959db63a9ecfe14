"""The algorithms: one file each, and the one registry of processes.

The registry says how a process is built, what data it needs, and which settings
it has. From it derive the names that `--process` takes and `--list` prints,
which flags a process takes and which the runner refuses, the data that a run
prepares, and the processes of the contract suite. To add an algorithm, write
one file and add one entry to a table in `specs`.

Two things are written by hand. A setting that no process had before needs a
flag, a default and a range: `experiments/flag_table.py`, `default_tables.py`
and `setting_ranges.py`. The README's table of processes needs a row; a test
compares its names with the registry.

Importing the registry is cheap: a builder's module is imported when it is used.
"""

import dataclasses
import types
from collections.abc import Mapping

from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.algorithms.specs import (
  client_labels,
  encoders,
  server_labels,
  sets,
  supervised,
)

__all__ = ['PROCESSES', 'ProcessSpec', 'find']

PROCESSES: Mapping[str, ProcessSpec] = types.MappingProxyType(
  {
    spec.name: spec
    for table in (server_labels, supervised, client_labels, encoders, sets)
    for spec in table.SPECS
  }
)


def find(name: str, base_process: str | None = None) -> ProcessSpec:
  """Returns the entry of a process, over a base process where it has one.

  Args:
    name: A key of `PROCESSES`.
    base_process: For a process with this setting, the process whose rounds it
      trains in; it asks for what that one asks for, and takes those of its
      settings that `base_settings` names.
  """
  spec = PROCESSES[name]
  if base_process is None:
    return spec
  base = PROCESSES[base_process]
  more = tuple(name for name in spec.base_settings if name in base.settings)
  return dataclasses.replace(
    spec,
    settings=(*spec.settings, *more),
    server_optimizer=base.server_optimizer,
    keeps_client_state=base.keeps_client_state,
    counts_clients=base.counts_clients,
    has_gradient_diversity=base.has_gradient_diversity,
  )
