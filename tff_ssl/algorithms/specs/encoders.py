"""Processes with a proxy task for encoders, and their supervised baseline."""

from tff_ssl.algorithms.process_spec import LOCAL, ProcessSpec

_LABEL_HUNGRY = (
  *LOCAL,
  'client_weighting',
  'client_momentum',
)
_PAPER_3 = 'Hegde et al., Label Hungry? Not Anymore'

SPECS = (
  ProcessSpec(
    'fsl',
    'Supervised FedAvg on what has a label: the label-hungry baseline.',
    f'{_PAPER_3}, Experimental Setup (FSL)',
    'fed_avg.build_fed_avg',
    (*_LABEL_HUNGRY, 'epoch_batches', 'match_local_steps'),
    labels_at='clients',
    redraws_masks=True,
    has_server_training=False,
    augments=False,
    has_strong_view=False,
  ),
  ProcessSpec(
    'sspt',
    'Self-supervised pre-training, then supervised FedAvg, in one run.',
    f'{_PAPER_3}, Methods 1 and Figure 3',
    'sspt.build_sspt',
    (
      *(*_LABEL_HUNGRY, 'epoch_batches', 'proxy_task'),
      *('pretraining_rounds', 'pretraining_images', 'encoder_training'),
    ),
    labels_at='clients',
    has_strong_view=False,
    redraws_masks=True,
    uses_unlabelled=True,
    has_server_training=False,
    needs_encoder=True,
    augments=False,
    has_gradient_diversity=False,
  ),
  ProcessSpec(
    'ssjo',
    'Classifier and self-supervised task trained jointly, FedAvg.',
    f'{_PAPER_3}, Methods 2 and Figure 4',
    'ssjo.build_ssjo',
    (
      *(*_LABEL_HUNGRY, 'proxy_task', 'ssjo_loss_weight'),
      'labelled_batch_probability',
      'idle_momentum',
    ),
    labels_at='clients',
    has_strong_view=False,
    redraws_masks=True,
    uses_unlabelled=True,
    has_server_training=False,
    needs_encoder=True,
    augments=False,
    has_gradient_diversity=False,
  ),
)
