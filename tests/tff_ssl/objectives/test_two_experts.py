"""FedLabel's objective against its equations, worked with numpy."""

import linear_models
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import tensorflow as tf
from linear_models import CLASSES, SIZE, batch, probabilities, weights_of

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.templates import prediction


class ScaledViews(views.PlainViews):
  """Views that can be told apart and have no randomness."""

  def weak(self, examples, seed):
    return self.plain(examples) * 1.5

  def strong(self, examples, seed):
    return self.plain(examples) * 2


_FACTORS = {'plain': 1, 'weak': 1.5, 'strong': 2}
STUDENT, BROAD, LOCAL = weights_of(0), weights_of(1), weights_of(2)


def confidence(rows, kind):
  if kind == 'variance':
    return rows.var(axis=1)
  return np.log(CLASSES) - scipy.stats.entropy(rows, axis=1)


def expected(
  threshold=0.5,
  consistency_weight=1.0,
  confidence_kind='variance',
  experts='both',
  expert_view='plain',
  consistency_view='plain',
):
  """Returns the loss and the rates of Eqs. 3 to 8, example by example."""
  broad, local = (
    probabilities(w, _FACTORS[expert_view]) for w in (BROAD, LOCAL)
  )
  strong = probabilities(STUDENT, _FACTORS['strong'])
  compared = probabilities(STUDENT, _FACTORS[consistency_view])
  total, passed, local_chosen, agreed, correct = 0.0, 0, 0, 0, 0
  for i in range(SIZE):
    pair = [broad[i], local[i]]
    h = [confidence(row[np.newaxis], confidence_kind)[0] for row in pair]
    best = {'both': int(h[1] > h[0]), 'global': 0, 'local': 1}[experts]
    chosen, other = pair[best], pair[1 - best]
    if chosen.max() <= threshold:
      continue
    label = chosen.argmax()
    passed += 1
    local_chosen += best
    correct += label == batch()['true_y'][i]
    total -= np.log(strong[i, label])
    if other.argmax() == label:
      agreed += 1
      if experts == 'both':
        ratio = h[1 - best] / h[best]
        distance = scipy.stats.entropy(compared[i], other)
        total += consistency_weight * ratio * distance
  return total / SIZE, {
    'unlabelled_loss': (total, SIZE),
    'mask_rate': (passed, SIZE),
    'pseudo_label_accuracy': (correct, passed),
    'local_expert_rate': (local_chosen, passed),
    'agreement_rate': (agreed, passed),
  }


def call(data=None, local=LOCAL, **arguments):
  objective = objectives.TwoExperts(ScaledViews(), **arguments)
  predict = prediction.Predictor(linear_models.model(), STUDENT.trainable, [])
  tensors = tf.nest.map_structure(tf.constant, data or batch())
  return objective(
    predict, tensors, objectives.Experts(BROAD, local), tf.constant([1, 2])
  )


@pytest.mark.parametrize(
  'arguments',
  [
    {},
    {'threshold': 0.8, 'consistency_weight': 0.3},
    {'confidence': 'entropy'},
    {'consistency_weight': 0.0},
    {'experts': 'global'},
    {'experts': 'local'},
    {
      'expert_view': 'strong',
      'consistency_view': 'strong',
      'threshold': 0.9,
    },
  ],
)
def test_loss_and_rates_are_those_of_the_equations(arguments):
  loss, metrics = call(**arguments)
  renamed = {
    'confidence_kind' if name == 'confidence' else name: value
    for name, value in arguments.items()
  }
  expected_loss, expected_metrics = expected(**renamed)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
  assert list(metrics) == list(objectives.TwoExperts.metric_names)
  linear_models.assert_ratios(metrics, expected_metrics)
  # Otherwise the cases would show nothing.
  assert 0 < expected_metrics['mask_rate'][0] < SIZE or not arguments
  assert expected_metrics['agreement_rate'][0] > 0


def test_nothing_passes_a_threshold_of_one():
  loss, metrics = call(threshold=1.0)
  assert float(loss) == 0 and float(metrics['mask_rate'][0]) == 0


def test_truth_labels_each_example_whatever_the_threshold():
  """The cross-entropy of scikit-learn, of those whose truth is known."""
  data = batch()
  data['true_y'][::4] = -1
  loss, metrics = call(data, experts='truth', threshold=1.0)
  known = data['true_y'] >= 0
  total = sklearn.metrics.log_loss(
    data['true_y'][known],
    probabilities(STUDENT, 2)[known],
    labels=range(CLASSES),
    normalize=False,
  )
  np.testing.assert_allclose(loss, total / SIZE, rtol=1e-5)
  assert list(metrics) == list(objectives.TwoExperts.metric_names)
  assert [float(v) for v in metrics['mask_rate']] == [SIZE * 0.75, SIZE]
  right, counted = metrics['pseudo_label_accuracy']
  assert float(right) == float(counted) == SIZE * 0.75


def test_truth_is_refused_where_no_simulation_knows_it():
  data = batch()
  del data['true_y']
  with pytest.raises(ValueError, match="experts='truth' .* no true_y"):
    call(data, experts='truth')


def test_no_gradient_flows_to_the_experts():
  with tf.GradientTape() as tape:
    watched = [*STUDENT.trainable, *BROAD.trainable, *LOCAL.trainable]
    tape.watch(watched)
    loss, _ = call()
  gradients = tape.gradient(loss, watched)
  assert [g is not None for g in gradients] == [True] * 2 + [False] * 4


def test_equal_experts_always_agree_at_full_weight():
  loss, metrics = call(local=BROAD, threshold=0.0)
  assert [float(v) for v in metrics['agreement_rate']] == [SIZE, SIZE]
  assert float(metrics['local_expert_rate'][0]) == 0
  student = probabilities(STUDENT, 1)
  broad = probabilities(BROAD, 1)
  hard = np.log(
    probabilities(STUDENT, 2)[np.arange(SIZE), broad.argmax(axis=1)]
  )
  divergence = scipy.stats.entropy(student, broad, axis=1)
  np.testing.assert_allclose(loss, (divergence - hard).mean(), rtol=1e-5)
