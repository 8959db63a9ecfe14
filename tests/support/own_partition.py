"""Partitions of a user's own."""

import numpy as np

from datasets.partition import assignment
from datasets.partition.assignment import PartitionSpec
from tff_ssl.common.setting import Setting

ROWS = Setting('rows', int, 'Clients.', default=4, at_least=2, at_most=50)


def in_turn(source, *, rows, server_examples, seed):
  server = assignment.draw_server_set(
    source.train.labels, source.num_classes, server_examples, seed
  )
  owner = np.arange(len(source.train.labels)) % rows
  owner[server] = assignment.NOBODY
  return assignment.from_owners(
    owner, assignment.numbered_names(rows), server, seed
  )


PARTITION = PartitionSpec(
  'in_turn', 'as many clients as asked for, in turn', in_turn, (ROWS,)
)
LOST = PartitionSpec('lost', 'nothing', lambda source, **others: None)
