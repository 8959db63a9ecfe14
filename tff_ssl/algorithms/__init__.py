"""The algorithms, and the one registry of processes.

The registry says how a process is built, what data it needs, and which settings
it has. From it derive the names that the runner takes and lists, which flags a
process takes and which the runner refuses, the data that a run prepares, and
the processes of the contract suite. To add an algorithm, write one file with a
`ProcessSpec` at its foot, and add one line here.

Importing the registry imports no TensorFlow: the algorithms' files import it
when it is first used.
"""

from tff_ssl.algorithms import (
  data_sharing,
  fed_avg,
  fedlabel,
  fedmatch,
  fednova,
  fedtrinet,
  fedul,
  fixmatch,
  grouping,
  grouping_robust,
  label_hungry,
  own_models,
  scaffold,
  semifl,
  set_baselines,
)
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.choice import Registry

__all__ = ['PROCESSES', 'Needs', 'ProcessSpec']

PROCESSES: Registry[ProcessSpec] = Registry(
  'process',
  (
    *grouping.SPECS,
    grouping_robust.SPEC,
    fixmatch.SPEC,
    semifl.SPEC,
    *fed_avg.SPECS,
    data_sharing.SPEC,
    fednova.SPEC,
    scaffold.SPEC,
    *own_models.SPECS,
    *fedlabel.SPECS,
    fedtrinet.SPEC,
    *fedmatch.SPECS,
    *label_hungry.SPECS,
    fedul.SPEC,
    *set_baselines.SPECS,
  ),
  ProcessSpec,
)
