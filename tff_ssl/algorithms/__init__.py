"""The algorithms: one file each, and the one registry of processes.

The registry says how a process is built, what data it needs, and which settings
it has. From it derive the names that the runner takes and lists,
which flags a process takes and which the runner refuses, the data that a run
prepares, and the processes of the contract suite. To add an algorithm, write
one file with a `ProcessSpec` at its foot, and add one line here.

Importing the registry imports no TensorFlow: the algorithms' files import it
when it is first used.
"""

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
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.choice import Registry

__all__ = ['PROCESSES', 'Needs', 'ProcessSpec']

PROCESSES: Registry[ProcessSpec] = Registry(
  'process',
  (
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
  ),
  ProcessSpec,
)
