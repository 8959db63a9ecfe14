"""More of the runner's flags: those of methods that the papers compare with.

`experiments.flags` joins them with `experiments.flag_table`, by group.
"""

from experiments.flag import Flag

GROUPS: dict[str, tuple[Flag, ...]] = {
  'process': (
    Flag(
      'pseudo_label_view',
      'string',
      'The view that clients of SemiFL label, weak or plain.',
    ),
    Flag(
      'mixup_weight',
      'float',
      "Weight of SemiFL's loss on mixtures of examples; 0 mixes none.",
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
  ),
  'client optimiser': (
    Flag(
      'client_clip_norm',
      'float',
      "Largest norm of a client's gradient, above 0; without, none is clipped.",
    ),
  ),
  'server': (
    Flag(
      'server_epochs',
      'integer',
      'Passes of the server over its labelled examples in a round.',
    ),
    Flag(
      'server_clip_norm',
      'float',
      "Largest norm of the server's gradient; by default --client_clip_norm.",
    ),
  ),
}
