"""Checks of class priors: what a program calls before round 1."""

import numpy as np
import pytest

import tff_ssl
from tff_ssl.common import prior_checks


def test_condition_number_is_that_of_the_singular_values():
  priors = np.random.default_rng(0).dirichlet(np.ones(4), 6)
  values = np.sqrt(np.linalg.eigvalsh(priors.T @ priors))
  padded = np.pad(priors, ((0, 3), (0, 0)))
  assert prior_checks.condition_number(padded) == pytest.approx(
    values.max() / values.min()
  )
  # Equal sets of one class each are the easiest case.
  assert prior_checks.condition_number(np.eye(3)) == 1
  assert prior_checks.condition_number(np.eye(3)[:, [0, 2]]) == 1
  assert prior_checks.condition_number(np.ones((3, 2))) == pytest.approx(2**52)
  # Of what tells nothing.
  largest = 1 / np.finfo(float).eps
  assert tff_ssl.condition_number([[0.5, 0.5]]) == largest
  assert tff_ssl.condition_number([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]) == largest
  # But for classes that the client does not have.
  assert tff_ssl.condition_number([[1, 0], [1, 0], [0, 0]]) == 1


@pytest.mark.parametrize(
  'own', [np.zeros((2, 2)), [[np.nan, 1.0]], [0.5, 0.5], np.zeros((0, 2))]
)
def test_no_condition_number(own):
  with pytest.raises(ValueError, match='no matrix of finite numbers'):
    tff_ssl.condition_number(own)


NAMES = {'client_names': ('a', 'b'), 'class_names': ('x', 'y', 'z')}
# Rank 2, for two sets are alike.
ALIKE = np.eye(3)[[0, 1, 1]]
NEGATIVE = np.array([[1, 0, 0], [-0.5, 1.5, 0], [0, 0, 1]])


def test_rank_is_demanded_unless_told_otherwise():
  priors = [np.eye(3) * 0.4 + 0.2, ALIKE * 0.4 + 0.2]
  with pytest.raises(ValueError, match="'b' have rank 2 for 3 classes"):
    tff_ssl.check_class_priors(priors, **NAMES)
  tff_ssl.check_class_priors(priors, **NAMES, full_rank=False)
  # Clients and classes have numbers if no names.
  with pytest.raises(ValueError, match="'client 1' have rank 2"):
    tff_ssl.check_class_priors([np.eye(3), ALIKE])
  with pytest.raises(ValueError, match="class '2' has a prior of 0"):
    tff_ssl.check_class_priors([ALIKE])


@pytest.mark.parametrize('full_rank', [True, False])
@pytest.mark.parametrize(
  'priors, message',
  [
    ([ALIKE[:2], np.eye(3)], "'a' has 2 sets for 3 classes"),
    ([np.pad(ALIKE[:2], ((0, 1), (0, 0))), np.eye(3)], "'a' has 2 sets for 3"),
    ([np.zeros((3, 3)), np.eye(3)], "'a' has 0 sets for 3 classes"),
    ([ALIKE, ALIKE], "class 'z' has a prior of 0 in every set of every"),
    ([np.eye(3) * 2, np.eye(3)], "set 0 of 'a'.*sum to 2 instead of 1"),
    ([np.eye(3), np.eye(3) * 100], "set 0 of 'b'.*not percentages"),
    ([NEGATIVE, np.eye(3)], "set 1 of 'a'.*at least 0"),
    ([np.full((3, 3), np.nan), np.eye(3)], "set 0 of 'a'.*at least 0"),
    ([np.eye(3)[[0, 1]] * [[0], [1]], np.eye(3)], "set 0 of 'a'.*sum to 0"),
    ([np.eye(4), np.eye(3)], r'\(4, 4\), \(3, 3\).*2 clients and 3 classes'),
    ([np.eye(3)], '2 clients and 3 classes'),
    ([np.eye(3), [0.2, 0.8]], 'sets x classes'),
    ([], 'sets x classes'),
    ([[[0.2, 'much']]], 'not all matrices of numbers.*much'),
    ([[[0.2, 0.8], [1.0]]], 'not all matrices of numbers'),
  ],
)
def test_what_cannot_be_learnt_from(priors, message, full_rank):
  with pytest.raises(ValueError, match=message) as caught:
    tff_ssl.check_class_priors(priors, **NAMES, full_rank=full_rank)
  assert '\n' not in str(caught.value)


def test_rows_come_back_normalised_and_without_padding():
  rounded = np.array([[0.333, 0.667], [0.7, 0.2995], [0.0, 0.0]])
  (checked,) = tff_ssl.check_class_priors([rounded])
  sums = rounded[:2].sum(axis=1, keepdims=True)
  np.testing.assert_allclose(checked, rounded[:2] / sums, rtol=1e-15)
