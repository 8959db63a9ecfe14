"""Flags of FedPL, FedLLP and supervised FedAvg, FedUL's baselines."""

from experiments.flag import Flag

SET_FLAGS = (
  Flag(
    'supervised_loss',
    'string',
    'FedAvg: cross_entropy, or double_softmax as in the code of FedUL for 10% '
    'of the labels.',
  ),
  Flag(
    'warmup_rounds',
    'integer',
    'FedPL: the first rounds, in which the class of the largest prior labels '
    'all examples of a set.',
  ),
  Flag(
    'pseudo_labels',
    'string',
    'FedPL: labels after those rounds, of the sets still, or of the model as '
    "in its authors' code.",
  ),
  Flag(
    'mix',
    'string',
    'FedPL: what a confident and another example are mixed by: inputs, or '
    "logits as in its authors' code.",
  ),
  Flag(
    'unmixed_batches',
    'string',
    'FedPL: minibatches that leave nothing to mix are trained, or skipped as '
    "in its authors' code.",
  ),
  Flag(
    'vat_weight',
    'float',
    'FedLLP-VAT: alpha, weight of the consistency; 0.05 on CIFAR-10.',
  ),
  Flag(
    'vat_radius',
    'float',
    'FedLLP-VAT: mu, length (L2 norm) of the perturbation of a standardised '
    'image; 6 on CIFAR-10.',
  ),
  Flag(
    'vat_ramp',
    'string',
    'FedLLP-VAT: none, or published_code: alpha times the factor of its '
    "authors' code, which is near 0.01 in all rounds.",
  ),
)
