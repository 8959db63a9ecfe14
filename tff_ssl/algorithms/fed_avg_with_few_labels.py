"""FedAvg and FedProx with UDA or FixMatch at clients, the FedLabel baselines.

Cho et al. (arXiv 2307.08809), Section 5.1, compare FedLabel with them: clients
have labels of some of their examples, and train on all of them with UDA (Xie et
al., arXiv 1904.12848) or FixMatch (Sohn et al., arXiv 2001.07685).
"""

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, fedlabel
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.objectives.consistency import THRESHOLD, VIEWS_FORWARD
from tff_ssl.objectives.semi_supervised import TEMPERATURE, UNLABELLED_WEIGHT
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.objectives.wrappers.proximal import PROXIMAL_STRENGTH

_FIXMATCH = (
  shared.CLIENT_WEIGHTING,
  shared.LABELLED_BATCH_SIZE,
  *shared.LOCAL,
  THRESHOLD,
  VIEWS_FORWARD,
  UNLABELLED_WEIGHT,
  CLASS_WEIGHTS,
)


def _spec(average, more, method, settings, loss, source, defaults):
  # As many steps as FedLabel takes of each kind.
  defaults = {**fedlabel.COMPARED, **defaults, 'local_steps': 16}
  if more:
    # The builder's 0 is FedAvg.
    defaults['proximal_strength'] = 0.01
  return ProcessSpec(
    f'{average.lower()}_{method.lower()}',
    f'{average} with {method} at clients, some of whose examples have labels.',
    fed_avg.build_fed_avg,
    (*settings, *more),
    source='Cho et al. 2023, arXiv 2307.08809, Section 5.1 (baselines); '
    + source,
    needs=Needs(labels_at='clients', unlabelled=True),
    fixed={'unlabelled_loss': loss, 'redrawn_mask_ratio': None},
    objective=objectives.SemiSupervised,
    defaults=defaults,
    makes_pseudo_labels=True,
  )


SPECS = tuple(
  _spec(average, more, *method)
  for average, more in (('FedAvg', ()), ('FedProx', (PROXIMAL_STRENGTH,)))
  for method in (
    (
      'UDA',
      (*_FIXMATCH, TEMPERATURE),
      'uda',
      'arXiv 1904.12848',
      {'threshold': 0.8},
    ),
    ('FixMatch', _FIXMATCH, 'crl', 'arXiv 2001.07685', {'threshold': 0.95}),
  )
)
