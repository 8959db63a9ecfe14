"""The ratios against numpy's norms, and their values in known geometries."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from diversities import NORMS, ratio

from tff_ssl.metrics import diversity_ratios


def _terms(vector):
  """The terms of a flat vector, given as a 2x2 matrix and the rest."""
  parts = (vector[:4].reshape(2, 2), vector[4:])
  return diversity_ratios.terms([tf.constant(p, tf.float32) for p in parts])


def _total(vectors):
  return functools.reduce(diversity_ratios.add, map(_terms, vectors))


def _ratios(vectors):
  ratios = diversity_ratios.ratios(_total(np.asarray(vectors, float)))
  return {name: float(value) for name, value in ratios.items()}


@pytest.mark.parametrize('num_participants', [1, 2, 7])
def test_ratios_of_random_vectors_equal_numpys(num_participants):
  vectors = np.random.default_rng(0).normal(1, 2, [num_participants, 7])
  actual = _ratios(vectors)
  assert list(actual) == list(NORMS)
  for name, how in NORMS.items():
    assert actual[name] == pytest.approx(ratio(vectors, *how), rel=1e-5)


@pytest.mark.parametrize(
  'vectors, expected',
  [
    # One participant.
    ([[3, -1, 0, 2, 5]], (1, 1, 1, 1)),
    # Equal ones: the squared are 1/n, the plain 1.
    ([[1, -2, 3, -4, 5]] * 4, (0.25, 1, 0.25, 1)),
    # Orthogonal ones of equal norm, for n = 5 in the l2-norm: 5/5 and
    # 5/sqrt(5); l1 adds up like equal ones.
    (3 * np.eye(5), (1, 5**0.5, 0.2, 1)),
  ],
)
def test_known_geometries(vectors, expected):
  expected = dict(zip(NORMS, expected, strict=True))
  assert _ratios(vectors) == pytest.approx(expected)


def test_vectors_of_one_sign_have_plain_l1_diversity_one():
  vectors = -np.random.default_rng(1).uniform(size=[6, 8])
  assert _ratios(vectors)['l1_plain'] == pytest.approx(1)


def test_ratios_do_not_depend_on_scale_or_order():
  vectors = np.random.default_rng(2).normal(size=[5, 6])
  expected = _ratios(vectors)
  assert _ratios(1000 * vectors) == pytest.approx(expected, rel=1e-5)
  assert _ratios(vectors[[3, 0, 4, 2, 1]]) == pytest.approx(expected, rel=1e-5)


def test_zero_vectors_are_nan_and_cancelling_ones_infinite():
  assert np.isnan(list(_ratios(np.zeros([3, 5])).values())).all()
  opposite = np.outer([1, -1], np.ones(5))
  assert np.isposinf(list(_ratios(opposite).values())).all()


class TestMeanScaledRatio:
  _GROUPS = [
    np.random.default_rng(3).normal(size=[size, 6]) for size in (2, 4, 3)
  ]
  _SERVER = np.random.default_rng(4).normal(size=6)

  def _mean(self, groups, server=None):
    rows = [
      _total(group if len(group) else np.zeros([1, 6])) for group in groups
    ]
    counts = tf.constant([len(group) for group in groups], tf.float32)
    stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *rows)
    return float(
      diversity_ratios.mean_scaled_ratio(
        stacked, counts, None if server is None else _terms(server)
      )
    )

  @staticmethod
  def _scaled(vectors):
    return len(vectors) * ratio(vectors)

  def test_equals_numpys(self):
    expected = np.mean([self._scaled(group) for group in self._GROUPS])
    assert self._mean(self._GROUPS) == pytest.approx(expected, rel=1e-5)

  def test_the_server_counts_in_every_group(self):
    expected = np.mean(
      [self._scaled(np.vstack([g, self._SERVER])) for g in self._GROUPS]
    )
    assert self._mean(self._GROUPS, self._SERVER) == pytest.approx(
      expected, rel=1e-5
    )

  @pytest.mark.parametrize('server', [None, _SERVER])
  def test_an_empty_group_is_left_out(self, server):
    with_empty = [self._GROUPS[0], np.zeros([0, 6]), self._GROUPS[2]]
    assert self._mean(with_empty, server) == pytest.approx(
      self._mean(with_empty[::2], server)
    )

  def test_is_nan_without_clients(self):
    assert np.isnan(self._mean([np.zeros([0, 6])] * 2, self._SERVER))
