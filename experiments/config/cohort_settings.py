"""Settings of who takes part in a round, and of what goes wrong with them."""

from tff_ssl import plans
from tff_ssl.common.setting import Setting, needs_process, only_with, unless
from tff_ssl.simulation import client_draws

_CLIENTS_TRAIN = needs_process('has_client_training')

SETTINGS = (
  Setting(
    'client_sampling',
    str,
    'Who is invited to a round: --clients_per_round clients, all as likely '
    '(uniform), or rather those whose time of day it is (daytime); or each '
    'client by itself, as many on average (poisson).',
    default='uniform',
    choices=client_draws.KINDS,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'rounds_per_day',
    int,
    'Rounds in a day, after which the same clients are available again.',
    default=24,
    at_least=1,
    used_when=(_CLIENTS_TRAIN, only_with('client_sampling', 'daytime')),
  ),
  Setting(
    'min_separation',
    int,
    'The least number of rounds from one round of a client to its next one; '
    'with 1, it may take part in every round.',
    default=1,
    at_least=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'drop_out',
    float,
    'Share of the invited clients that send nothing, drawn anew each round.',
    default=0.0,
    at_least=0,
    at_most=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'straggler',
    float,
    'Share of the invited clients, drawn anew each round, that get only a part '
    'of their local steps done: 1 to 99 percent, by chance.',
    default=0.0,
    at_least=0,
    at_most=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'corrupt',
    str,
    'What goes wrong at corrupt clients: their change of the model is no '
    'number (nan), 1e6 times as large (exploding), or points the other way '
    '(flipped_signs); they train with the label L - 1 - y in the place of y '
    '(flipped_labels), or from the first model of the run (stale).',
    default='none',
    choices=('none', *plans.CORRUPTIONS),
    used_when=(_CLIENTS_TRAIN,),
  ),
  Setting(
    'corrupt_share',
    float,
    'Share of all clients that is corrupt, the same ones in all rounds; one of '
    'them at least.',
    default=0.1,
    above=0,
    at_most=1,
    used_when=(
      _CLIENTS_TRAIN,
      unless('corrupt', 'none', 'leaves all clients sound'),
    ),
  ),
  Setting(
    'min_completion',
    float,
    'Share of the invited clients that must complete a round: report, with '
    'finite values. With fewer, the round is given up and other clients are '
    'drawn, five times at most.',
    default=0.5,
    at_least=0,
    at_most=1,
    used_when=(_CLIENTS_TRAIN,),
  ),
)
