"""Tiny clients in sets: priors are exact, and tell the classes apart."""

import dataclasses

import numpy as np
import pytest

from tff_ssl import algorithms, testing
from tff_ssl.testing import tiny_problems, tiny_sets

PROBLEM = testing.TinyProblem(
  dataclasses.replace(algorithms.PROCESSES['fedavg'], labels_at='sets')
)


def test_each_pass_brings_each_class_once():
  labels = np.array([0, 0, 1, 2, 2, 2])
  order = tiny_sets.in_passes(labels, 8)
  np.testing.assert_array_equal(labels[order], [0, 1, 2] * 2 + [0, 1])
  # The one example of class 1 comes again, those of class 0 after both.
  np.testing.assert_array_equal(order, [0, 2, 3, 1, 2, 4, 0, 2])


@pytest.mark.parametrize('size', [*tiny_problems.CLIENT_SIZES, 20])
@pytest.mark.parametrize('client', [0, 42])
def test_priors_have_full_column_rank(client, size):
  arrays = PROBLEM.examples(size, digits_of=client)
  priors = PROBLEM.constants(arrays)['class_priors']
  assert priors.shape == (12, 10)
  assert np.linalg.matrix_rank(priors) == 10


def test_priors_and_shares_are_counted():
  arrays = PROBLEM.examples(30, digits_of=5)
  constants = PROBLEM.constants(arrays)
  for m in range(tiny_sets.NUM_SETS):
    members = arrays['true_y'][arrays['y'] == m]
    assert constants['set_shares'][m] == pytest.approx(len(members) / 30)
    np.testing.assert_allclose(
      constants['class_priors'][m],
      np.bincount(members, minlength=10) / len(members),
      rtol=1e-6,
    )
  # Pure, mixed, and what is left of the second pass.
  sizes = np.bincount(arrays['y'])
  np.testing.assert_array_equal(sizes, [2] * 2 + [3] * 8 + [1] * 2)


def test_a_client_holds_its_constants_and_the_spec_knows_them():
  spec = PROBLEM.data_spec()
  assert spec.priors_shape == (12, 10)
  for size in (0, 1, 30):
    client = PROBLEM.client(4, size)
    context = next(iter(client['context'].as_numpy_iterator()))
    assert list(context) == list(spec.context_fields)
    for name, field in spec.context_fields.items():
      assert np.shape(context[name]) == tuple(field.shape)
    assert context['set_shares'].sum() == pytest.approx(float(size > 0))
    assert context['class_priors'].sum() == np.sum(context['set_shares'] > 0)
