"""FedMatch's objective against its equation, worked with numpy."""

import collections

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import prediction

_FEATURES, _CLASSES, _SIZE = 4, 3, 40


class TwiceAsStrong(views.PlainViews):
  """Views that can be told apart and have no randomness."""

  def strong(self, examples, seed):
    return self.plain(examples) * 2


@pytest.fixture(scope='module')
def model():
  return functional.from_keras(
    lambda: dense.dense((_FEATURES,), _CLASSES, hidden=())
  )


def weights_of(seed):
  rng = np.random.default_rng(seed)
  shapes = ([_FEATURES, _CLASSES], [_CLASSES])
  return functional.ModelWeights(
    [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes], []
  )


PSI, HELPERS = weights_of(0), [weights_of(1), weights_of(2)]
SIGMA = weights_of(3).trainable


def batch():
  rng = np.random.default_rng(7)
  return collections.OrderedDict(
    x=rng.normal(size=(_SIZE, _FEATURES)).astype(np.float32),
    y=np.full(_SIZE, -1, np.int32),
    true_y=rng.integers(0, _CLASSES, _SIZE).astype(np.int32),
  )


def probabilities(weights, factor=1):
  kernel, bias = (w.numpy().astype(np.float64) for w in weights.trainable)
  return scipy.special.softmax(factor * batch()['x'] @ kernel + bias, axis=1)


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
  sure = [i for i in range(_SIZE) if own[i].max() >= threshold]
  divergence, total, correct = 0.0, 0.0, 0
  for i in sure:
    votes = np.zeros(_CLASSES)
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
    'unlabelled_loss': (mean * _SIZE, _SIZE),
    'mask_rate': (len(sure), _SIZE),
    'pseudo_label_accuracy': (correct, len(sure)),
    'helper_divergence': (divergence, len(sure) if helpers else 0),
  }


def tensors():
  return collections.OrderedDict(
    (key, tf.constant(value)) for key, value in batch().items()
  )


def call(model, present, **arguments):
  objective = objectives.InterClientConsistency(TwiceAsStrong(), **arguments)
  return objective(
    prediction.Predictor(model, *PSI),
    tensors(),
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
def test_loss_and_counts(model, present, arguments):
  loss, metrics = call(model, present, **arguments)
  expected_loss, expected_metrics = expected(present, **arguments)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
  names = objectives.InterClientConsistency.metric_names
  assert list(metrics) == list(names)
  for name, pair in expected_metrics.items():
    np.testing.assert_allclose(
      [float(v) for v in metrics[name]], pair, rtol=1e-5, err_msg=name
    )
  # Otherwise the cases would show nothing.
  assert 0 < expected_metrics['mask_rate'][0] < _SIZE


def test_no_example_is_sure(model):
  loss, metrics = call(
    model, (True, True), threshold=1.0, sigma_psi_weight=0.0, l1_weight=0.0
  )
  assert float(loss) == 0 and float(metrics['mask_rate'][0]) == 0


def test_gradients_reach_neither_helpers_nor_sigma(model):
  objective = objectives.InterClientConsistency(TwiceAsStrong(), **_EVEN)
  with tf.GradientTape() as tape:
    watched = [*PSI.trainable, *HELPERS[0].trainable]
    tape.watch(watched)
    loss, _ = objective(
      prediction.Predictor(model, *PSI),
      tensors(),
      objectives.Peers(SIGMA, HELPERS, tf.constant([True, True])),
      tf.constant([1, 2]),
    )
  gradients = tape.gradient(loss, watched)
  assert [g is not None for g in gradients] == [True, True, False, False]
