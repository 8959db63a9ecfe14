"""All purposes for which something is drawn, and NumPy's streams for them.

What is drawn within a round, in TensorFlow, has its seeds from
`tff_ssl.randomness`.
"""

import enum

import numpy as np

_OF_DATA = 0x100


class Purpose(enum.IntEnum):
  """What is drawn: each purpose has its own stream under one seed.

  So the server's examples do not change with the number of clients.
  """

  # By a participant in a round, whose seed is folded with it.
  SHUFFLE = 0
  STEP = 1
  SHUFFLE_LABELLED = 2
  FULL_GRADIENT = 3
  DRAW_GROUP = 4
  REPLICA = 5
  DRAW_KIND = 6
  UNLABELLED = 7
  STATISTICS = 8
  PSEUDO_LABEL = 9
  NOISE = 10
  MEASURE = 11
  # Where examples are divided, once for a run.
  SERVER_SET = _OF_DATA + 1
  CLIENT_EXAMPLES = _OF_DATA + 2
  EXAMPLE_ORDER = _OF_DATA + 3
  HELD_OUT_WRITERS = _OF_DATA + 4
  CLIENT_SUBSET = _OF_DATA + 5
  LABELLED_CLIENTS = _OF_DATA + 6
  LABEL_MASKS = _OF_DATA + 7
  SPLIT = _OF_DATA + 8
  SET_PRIORS = _OF_DATA + 9
  SET_EXAMPLES = _OF_DATA + 10
  PRIOR_NOISE = _OF_DATA + 11
  TEST_OWNERS = _OF_DATA + 12
  SHARED_EXAMPLES = _OF_DATA + 13
  MEASURED_EXAMPLES = _OF_DATA + 14
  LABEL_FOLDS = _OF_DATA + 15
  UNKNOWN_CLASSES = _OF_DATA + 16
  # Who takes part in a round, and what goes wrong there.
  PARTICIPANTS = 0x5A3B
  GROUPS = 0x5A3C
  DROP_OUT = 0x5A3D
  STRAGGLER = 0x5A3E
  CORRUPT = 0x5A3F


def generator(purpose: Purpose, seed: int, *when: int) -> np.random.Generator:
  """Returns the stream of a purpose of data, or of rounds (`when`)."""
  if purpose < Purpose.PARTICIPANTS:
    # Results hang on this order, which the two kinds do not share.
    return np.random.default_rng([seed, int(purpose) - _OF_DATA])
  return np.random.default_rng([int(purpose), seed, *when])
