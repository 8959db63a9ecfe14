"""SemiFL's loss, term by term."""

import collections

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from tff_ssl import objectives
from tff_ssl.augmentation import views

_SEED = tf.constant([1, 2])


class _Tagged(views.PlainViews):
  """Views that can be told apart: what is weak is 1 up, what is strong 2."""

  def weak(self, examples, seed):
    return self.plain(examples) + 1

  def strong(self, examples, seed):
    return self.plain(examples) + 2


class _Linear:
  """A predictor whose logits are its inputs; keeps what it was given."""

  def __init__(self):
    self.seen = []

  def __call__(self, x, *, training=True, seed=None):
    self.seen.append(x.numpy())
    return x


def _problem():
  rng = np.random.default_rng(0)
  batch = collections.OrderedDict(
    x=tf.constant(rng.uniform(size=(4, 3)), tf.float32),
    y=tf.constant([0, 2, 1, 0]),
  )
  pool = objectives.MixPool(
    tf.constant(rng.uniform(size=(50, 3)), tf.float32),
    tf.constant(rng.integers(0, 3, 50), tf.int32),
  )
  return batch, pool


def _cross_entropy(logits, labels):
  nats = -scipy.special.log_softmax(logits, axis=1)
  return nats[np.arange(len(labels)), labels]


@pytest.mark.parametrize('weight', [1.0, 0.5])
def test_both_terms_equal_numpy(weight):
  batch, pool = _problem()
  predict = _Linear()
  loss, metrics = objectives.FixAndMix(_Tagged(), weight)(
    predict, batch, pool, _SEED
  )
  x, y = batch['x'].numpy(), batch['y'].numpy()
  strong, mixture = predict.seen
  np.testing.assert_allclose(strong, x + 2, rtol=1e-6)
  fix = _cross_entropy(x + 2, y)
  # The one mixing weight, and for each example the partner, that explain it.
  others = pool.x.numpy()
  best = None
  for share in np.linspace(0.05, 0.95, 2001):
    rest = (mixture - 1 - share * x) / (1 - share)
    distances = np.abs(rest[:, None] - others).max(axis=2)
    worst = distances.min(axis=1).max() * (1 - share)
    if best is None or worst < best[0]:
      best = (worst, share, distances.argmin(axis=1))
  error, share, partners = best
  assert error < 1e-3
  mixed = share * _cross_entropy(mixture, y)
  mixed += (1 - share) * _cross_entropy(mixture, pool.labels.numpy()[partners])
  assert float(loss) == pytest.approx(
    fix.mean() + weight * mixed.mean(), abs=2e-3
  )
  totals = {name: tuple(map(float, pair)) for name, pair in metrics.items()}
  assert totals['loss'] == pytest.approx((fix.sum(), 4))
  assert totals['mixup_loss'] == pytest.approx((mixed.sum(), 4), abs=5e-3)


def test_without_weight_it_is_the_fixed_loss_alone():
  batch, pool = _problem()
  predict = _Linear()
  loss, metrics = objectives.FixAndMix(_Tagged(), 0.0)(
    predict, batch, pool, _SEED
  )
  assert len(predict.seen) == 1
  fix = _cross_entropy(batch['x'].numpy() + 2, batch['y'].numpy())
  assert float(loss) == pytest.approx(fix.mean())
  assert float(metrics['mixup_loss'][0]) == 0


@pytest.mark.parts
def test_partners_are_drawn_from_all_evenly():
  batch, _ = _problem()
  x = tf.one_hot(tf.range(3), 3) * 100
  pool = objectives.MixPool(x, tf.range(3))
  counts = np.zeros(3)
  objective = objectives.FixAndMix(views.PlainViews())
  for number in range(200):
    predict = _Linear()
    objective(predict, batch, pool, tf.constant([0, number]))
    counts += (predict.seen[1] > 2).sum(axis=0)
  # 800 draws, less those whose own share is nearly 1; 4 standard deviations.
  assert counts.sum() > 700
  assert np.abs(counts / counts.sum() - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 700)
