"""Processes for unlabelled sets whose class priors are known."""

from tff_ssl.algorithms.process_spec import LOCAL, ProcessSpec

_FEDUL = 'Lu et al. 2022, arXiv 2204.03304'
_FEDLLP = 'fedllp.build_fedllp'
_MIX = ('mix', 'mixup_weight', 'mixup_concentration', 'unmixed_batches')

SPECS = (
  ProcessSpec(
    'fedul',
    'No labels at all: clients know the class priors of sets of examples.',
    f'{_FEDUL}, Algorithm 1 and Theorem 1',
    'fedul.build_fedul',
    (
      *('base_process', 'surrogate_loss', 'test_prior', 'l1_weight'),
      *('proximal_strength', 'client_weighting', *LOCAL),
    ),
    base_settings=('control_update', 'server_learning_rate'),
    labels_at='sets',
    has_server_training=False,
    has_strong_view=False,
  ),
  *(
    ProcessSpec(
      name,
      description,
      f'{_FEDUL}, Appendix D.2 (baselines), {equations}',
      builder,
      (*settings, 'l1_weight', 'client_weighting'),
      objective=objective,
      labels_at='sets',
      has_server_training=False,
      has_gradient_diversity=False,
      has_strong_view=False,
    )
    for name, objective, equations, builder, settings, description in (
      (
        *('fedpl', None, 'Eqs. 14 to 17', 'fedpl.build_fedpl'),
        (*LOCAL, 'threshold', 'warmup_rounds', 'pseudo_labels', *_MIX),
        'Sets take the class of their largest prior; then mixup.',
      ),
      (
        *('fedllp', 'LabelProportions', 'Eq. 18', _FEDLLP),
        ('local_epochs',),
        "The mean prediction on a set is drawn to the set's priors.",
      ),
      (
        *('fedllp_vat', 'VirtualAdversarialProportions', 'Eq. 19', _FEDLLP),
        ('local_epochs', 'vat_weight', 'vat_radius', 'vat_ramp'),
        'The same with virtual adversarial training beside it.',
      ),
    )
  ),
)
