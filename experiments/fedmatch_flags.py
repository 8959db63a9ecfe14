"""Flags of FedMatch, with either place of labels."""

from experiments.flag import Flag

FLAGS = (
  Flag('num_helpers', 'integer', 'H of FedMatch, helpers of a client.'),
  Flag(
    'helper_interval',
    'integer',
    'FedMatch: helpers are chosen before every so many-th round.',
  ),
  Flag(
    'supervised_weight',
    'float',
    "lambda_s of FedMatch, weight of the labelled examples' loss.",
  ),
  Flag(
    'inter_client_weight',
    'float',
    'lambda_i of FedMatch, weight of the divergence to the helpers.',
  ),
  Flag(
    'agreement_weight',
    'float',
    "lambda_a of FedMatch, weight of the pseudo-labels' loss.",
  ),
  Flag(
    'sigma_psi_weight',
    'float',
    'lambda_L2 of FedMatch, weight of ||sigma - psi||^2; times twice the '
    'learning rate it must be below 1.',
  ),
)
