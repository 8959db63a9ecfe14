"""One client with everything: central training."""

import numpy as np

from datasets.draws import assignment
from datasets.partition.partition_spec import PartitionSpec
from datasets.sources.source import Source


def pooled_partition(
  source: Source, *, server_examples: int, seed: int
) -> assignment.Assignment:
  """Gives one client everything that a class-uniform server set leaves.

  Args:
    source: The data; the class of an example may be unknown.
    server_examples: N_s; a remainder as in `r_partition`.
    seed: Fixes the split.

  Raises:
    ValueError: If a class has too few examples, or nothing is left.
  """
  labels = source.train.labels
  server = assignment.draw_server_set(
    labels, source.num_classes, server_examples, seed
  )
  owner = np.zeros(len(labels), np.int64)
  owner[server] = assignment.NOBODY
  return assignment.from_owners(
    owner, assignment.numbered_names(1), server, seed
  )


SPEC = PartitionSpec(
  name='pooled',
  summary='one client with all the data',
  build=pooled_partition,
  # There is one client to take part, and nobody to average with.
  overrides=lambda values, given: {'clients_per_round': 1, 'num_groups': 1},
)
