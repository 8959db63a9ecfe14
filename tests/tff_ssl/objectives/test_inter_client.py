"""FedMatch's objective against its equation, worked with numpy."""

import federations
import linear_models
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from linear_models import CLASSES, SIZE, batch, probabilities, weights_of

from tff_ssl import objectives
from tff_ssl.templates import prediction

PSI, HELPERS = weights_of(0), [weights_of(1), weights_of(2)]
SIGMA = weights_of(3).trainable


def expected(
  present,
  threshold=0.75,
  inter_client_weight=1e-2,
  agreement_weight=1e-2,
  sigma_psi_weight=10.0,
  l1_weight=1e-4,
):
  """Returns the loss, example by example, and the counts."""
  own, strong = probabilities(PSI), probabilities(PSI, 2)
  helpers = [
    probabilities(w)
    for w, is_there in zip(HELPERS, present, strict=True)
    if is_there
  ]
  sure = [i for i in range(SIZE) if own[i].max() >= threshold]
  divergence, total, correct = 0.0, 0.0, 0
  for i in sure:
    votes = np.zeros(CLASSES)
    for rows in [own, *helpers]:
      votes[rows[i].argmax()] += 1
    label = votes.argmax()
    correct += label == batch()['true_y'][i]
    kl = [scipy.stats.entropy(rows[i], own[i]) for rows in helpers]
    divergence += np.mean(kl) if kl else 0
    total += inter_client_weight * (np.mean(kl) if kl else 0)
    total -= agreement_weight * np.log(strong[i, label])
  mean = total / len(sure) if sure else 0.0
  flat = [
    np.concatenate([np.ravel(w) for w in t]) for t in (PSI.trainable, SIGMA)
  ]
  loss = mean + sigma_psi_weight * np.sum((flat[0] - flat[1]) ** 2)
  loss += l1_weight * np.abs(flat[0]).sum()
  return loss, {
    'unlabelled_loss': (mean * SIZE, SIZE),
    'mask_rate': (len(sure), SIZE),
    'pseudo_label_accuracy': (correct, len(sure)),
    'helper_divergence': (divergence, len(sure) if helpers else 0),
  }


def call(present, **arguments):
  objective = objectives.InterClientConsistency(
    federations.StrongerViews(), **arguments
  )
  return objective(
    prediction.Predictor(linear_models.model(), *PSI),
    tf.nest.map_structure(tf.constant, batch()),
    objectives.Peers(SIGMA, HELPERS, tf.constant(present)),
    tf.constant([1, 2]),
  )


# So that no term is lost beside another.
_EVEN = {'inter_client_weight': 1.0, 'agreement_weight': 1.0}


@pytest.mark.parametrize(
  'present', [(True, True), (True, False), (False, True), (False, False)]
)
@pytest.mark.parametrize(
  'arguments',
  [
    {},
    {**_EVEN, 'sigma_psi_weight': 0.0, 'l1_weight': 0.0},
    {**_EVEN, 'threshold': 0.5, 'sigma_psi_weight': 0.1, 'l1_weight': 1.0},
  ],
)
def test_loss_and_counts(present, arguments):
  loss, metrics = call(present, **arguments)
  expected_loss, expected_metrics = expected(present, **arguments)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
  names = objectives.InterClientConsistency.metric_names
  assert list(metrics) == list(names)
  linear_models.assert_ratios(metrics, expected_metrics)
  # Otherwise the cases would show nothing.
  assert 0 < expected_metrics['mask_rate'][0] < SIZE


def test_no_example_is_sure():
  loss, metrics = call(
    (True, True), threshold=1.0, sigma_psi_weight=0.0, l1_weight=0.0
  )
  assert float(loss) == 0 and float(metrics['mask_rate'][0]) == 0


def test_gradients_reach_neither_helpers_nor_sigma():
  with tf.GradientTape() as tape:
    watched = [*PSI.trainable, *HELPERS[0].trainable]
    tape.watch(watched)
    loss, _ = call((True, True), **_EVEN)
  gradients = tape.gradient(loss, watched)
  assert [g is not None for g in gradients] == [True, True, False, False]
