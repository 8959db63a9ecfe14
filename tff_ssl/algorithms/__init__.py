"""The algorithms: one file each, and the one registry of processes.

The registry says how a process is built, what data it needs, and which settings
it has. From it derive the names that `--process` takes and `--list` prints,
which flags a process takes and which the runner refuses, the data that a run
prepares, and the processes of the contract suite. To add an algorithm, write
one file with a `ProcessSpec` at its foot, and add one line here.

Importing the registry imports no TensorFlow: the algorithms' files import it
when it is first used.
"""

import types
from collections.abc import Mapping

from tff_ssl.algorithms import (
  data_sharing,
  easgd,
  fed_avg,
  fed_avg_with_few_labels,
  fedlabel,
  fedllp,
  fedmatch,
  fedmatch_server,
  fednova,
  fedpl,
  fedtrinet,
  fedul,
  fixmatch,
  grouping,
  grouping_at_clients,
  grouping_robust,
  label_hungry,
  overlap_sgd,
  scaffold,
  semifl,
  ssjo,
  sspt,
)
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.common import user_modules

__all__ = ['PROCESSES', 'ProcessSpec', 'find']

PROCESSES: Mapping[str, ProcessSpec] = types.MappingProxyType(
  {
    spec.name: spec
    for spec in (
      *grouping.SPECS,
      grouping_robust.SPEC,
      grouping_at_clients.SPEC,
      fixmatch.SPEC,
      semifl.SPEC,
      *fed_avg.SPECS,
      data_sharing.SPEC,
      fednova.SPEC,
      scaffold.SPEC,
      easgd.SPEC,
      overlap_sgd.SPEC,
      fedlabel.SPEC,
      *fed_avg_with_few_labels.SPECS,
      fedtrinet.SPEC,
      fedmatch.SPEC,
      fedmatch_server.SPEC,
      label_hungry.SPEC,
      sspt.SPEC,
      ssjo.SPEC,
      fedul.SPEC,
      fedpl.SPEC,
      *fedllp.SPECS,
    )
  }
)


def find(name: str, base_process: str | None = None) -> ProcessSpec:
  """Returns the entry of a process, over a base process where it has one.

  Args:
    name: A key of `PROCESSES`, or 'module:NAME' of a `ProcessSpec` of one's
      own on the import path.
    base_process: See `ProcessSpec.over`.

  Raises:
    KeyError: If there is no process of this name.
    ValueError: If there is no such module, or nothing of this kind in it.
  """
  if user_modules.is_reference(name):
    spec = user_modules.load('process', name, ProcessSpec)
  else:
    spec = PROCESSES[name]
  return spec if base_process is None else spec.over(base_process)
