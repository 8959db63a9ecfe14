"""FedLabel's objective against its equations, worked with numpy."""

import collections

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import prediction

_FEATURES, _CLASSES, _SIZE = 4, 3, 40


class TwiceAsStrong(views.PlainViews):
  """Views that can be told apart and have no randomness."""

  def weak(self, examples, seed):
    return self.plain(examples) * 1.5

  def strong(self, examples, seed):
    return self.plain(examples) * 2


_FACTORS = {'plain': 1, 'weak': 1.5, 'strong': 2}


@pytest.fixture(scope='module')
def model():
  return functional.from_keras(
    lambda: dense.dense((_FEATURES,), _CLASSES, hidden=())
  )


def weights_of(seed, scale=1.0):
  rng = np.random.default_rng(seed)
  shapes = ([_FEATURES, _CLASSES], [_CLASSES])
  return functional.ModelWeights(
    [
      tf.constant(scale * rng.normal(size=shape), tf.float32)
      for shape in shapes
    ],
    [],
  )


STUDENT, BROAD, LOCAL = weights_of(0), weights_of(1), weights_of(2)


def batch():
  rng = np.random.default_rng(7)
  return collections.OrderedDict(
    x=rng.normal(size=(_SIZE, _FEATURES)).astype(np.float32),
    y=np.full(_SIZE, -1, np.int32),
    true_y=rng.integers(0, _CLASSES, _SIZE).astype(np.int32),
  )


def probabilities(weights, factor):
  kernel, bias = (w.numpy().astype(np.float64) for w in weights.trainable)
  return scipy.special.softmax(factor * batch()['x'] @ kernel + bias, axis=1)


def confidence(rows, kind):
  if kind == 'variance':
    return rows.var(axis=1)
  return np.log(_CLASSES) - scipy.stats.entropy(rows, axis=1)


def expected(
  threshold=0.5,
  consistency_weight=1.0,
  confidence_kind='variance',
  experts='both',
  expert_view='plain',
  consistency_view='plain',
  kl_direction='printed',
  unlabelled_mean='all',
):
  """Returns the loss and the rates of Eqs. 3 to 8, example by example."""
  broad, local = (
    probabilities(w, _FACTORS[expert_view]) for w in (BROAD, LOCAL)
  )
  strong = probabilities(STUDENT, _FACTORS['strong'])
  compared = probabilities(STUDENT, _FACTORS[consistency_view])
  total, passed, local_chosen, agreed, correct = 0.0, 0, 0, 0, 0
  for i in range(_SIZE):
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
        pair = (compared[i], other)
        if kl_direction == 'reverse':
          pair = pair[::-1]
        ratio = h[1 - best] / h[best]
        total += consistency_weight * ratio * scipy.stats.entropy(*pair)
  count = {'all': _SIZE, 'passed': passed}[unlabelled_mean]
  return total / max(count, 1), {
    'unlabelled_loss': (total, count),
    'mask_rate': (passed, _SIZE),
    'pseudo_label_accuracy': (correct, passed),
    'local_expert_rate': (local_chosen, passed),
    'agreement_rate': (agreed, passed),
  }


def call(model, data=None, local=LOCAL, **arguments):
  objective = objectives.TwoExperts(TwiceAsStrong(), **arguments)
  predict = prediction.Predictor(model, STUDENT.trainable, [])
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
    {'expert_view': 'weak'},
    {
      'expert_view': 'strong',
      'consistency_view': 'strong',
      'threshold': 0.9,
    },
    {'kl_direction': 'reverse'},
    {'unlabelled_mean': 'passed', 'threshold': 0.8},
  ],
)
def test_loss_and_rates_are_those_of_the_equations(model, arguments):
  loss, metrics = call(model, **arguments)
  renamed = {
    'confidence_kind' if name == 'confidence' else name: value
    for name, value in arguments.items()
  }
  expected_loss, expected_metrics = expected(**renamed)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
  assert list(metrics) == list(objectives.TwoExperts.metric_names)
  for name, pair in expected_metrics.items():
    np.testing.assert_allclose(
      [float(v) for v in metrics[name]], pair, rtol=1e-5, err_msg=name
    )
  # Otherwise the cases would show nothing.
  assert 0 < expected_metrics['mask_rate'][0] < _SIZE or not arguments
  assert expected_metrics['agreement_rate'][0] > 0


def test_nothing_passes_a_threshold_of_one(model):
  loss, metrics = call(model, threshold=1.0)
  assert float(loss) == 0 and float(metrics['mask_rate'][0]) == 0


def test_truth_labels_each_example_whatever_the_threshold(model):
  """The cross-entropy of scikit-learn, of those whose truth is known."""
  data = batch()
  data['true_y'][::4] = -1
  loss, metrics = call(model, data, experts='truth', threshold=1.0)
  known = data['true_y'] >= 0
  total = sklearn.metrics.log_loss(
    data['true_y'][known],
    probabilities(STUDENT, 2)[known],
    labels=range(_CLASSES),
    normalize=False,
  )
  np.testing.assert_allclose(loss, total / _SIZE, rtol=1e-5)
  assert list(metrics) == list(objectives.TwoExperts.metric_names)
  assert [float(v) for v in metrics['mask_rate']] == [_SIZE * 0.75, _SIZE]
  right, counted = metrics['pseudo_label_accuracy']
  assert float(right) == float(counted) == _SIZE * 0.75


def test_truth_is_refused_where_no_simulation_knows_it(model):
  data = batch()
  del data['true_y']
  with pytest.raises(ValueError, match="experts='truth' .* no true_y"):
    call(model, data, experts='truth')


def test_no_gradient_flows_to_the_experts(model):
  with tf.GradientTape() as tape:
    watched = [*STUDENT.trainable, *BROAD.trainable, *LOCAL.trainable]
    tape.watch(watched)
    loss, _ = call(model)
  gradients = tape.gradient(loss, watched)
  assert [g is not None for g in gradients] == [True] * 2 + [False] * 4


def test_equal_experts_always_agree_at_full_weight(model):
  loss, metrics = call(model, local=BROAD, threshold=0.0)
  assert [float(v) for v in metrics['agreement_rate']] == [_SIZE, _SIZE]
  assert float(metrics['local_expert_rate'][0]) == 0
  student = probabilities(STUDENT, 1)
  broad = probabilities(BROAD, 1)
  hard = np.log(
    probabilities(STUDENT, 2)[np.arange(_SIZE), broad.argmax(axis=1)]
  )
  divergence = scipy.stats.entropy(student, broad, axis=1)
  np.testing.assert_allclose(loss, (divergence - hard).mean(), rtol=1e-5)
