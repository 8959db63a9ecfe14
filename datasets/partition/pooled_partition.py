"""One client with all the data: central training."""

import numpy as np

from datasets.draws import assignment
from datasets.partition.partition_spec import PartitionSpec
from datasets.sources.source import Source


def pooled_partition(
  source: Source, *, server_examples: int, seed: int
) -> assignment.Assignment:
  """Assigns to one client all examples beside a class-uniform server set."""
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
  # A single client takes part, so there is nothing to average.
  overrides=lambda values, given: {'clients_per_round': 1, 'num_groups': 1},
)
