"""Flags of SemiFL, and of mixup in other processes."""

from experiments.flag import Flag

FLAGS = (
  Flag(
    'pseudo_label_view',
    'string',
    'The view that clients of SemiFL label, weak or plain.',
  ),
  Flag(
    'mixup_weight',
    'float',
    'SemiFL, FedPL: weight of the loss on mixtures of examples; 0 mixes none.',
  ),
  Flag(
    'mixup_concentration',
    'float',
    'a of the Beta(a, a) that mixtures are drawn by, above 0.',
  ),
  Flag(
    'global_momentum',
    'float',
    "beta_g of SemiFL, momentum of the clients' averaged change, in [0, 1).",
  ),
)
