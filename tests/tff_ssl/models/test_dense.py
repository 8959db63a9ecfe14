import numpy as np
import pytest

from tff_ssl.models import dense


def test_parameter_counts():
  # 784*200 + 200 + 200*10 + 10 = 159,010
  assert dense.dense().count_params() == 159_010
  # 64*32 + 32 + 32*16 + 16 + 16*3 + 3 = 2,659
  model = dense.dense((8, 8, 1), 3, hidden=(32, 16))
  assert model.count_params() == 2_659
  # Logistic regression: 784*10 + 10.
  assert dense.dense(hidden=()).count_params() == 7_850
  # A scale and an offset for each of 200 units.
  assert dense.dense(norm='group').count_params() == 159_410


_X = np.random.default_rng(0).normal(size=(3, 4, 4, 2)).astype(np.float32)


def test_equals_numpy():
  model = dense.dense((4, 4, 2), 5, hidden=(7, 6))
  w1, b1, w2, b2, w3, b3 = model.get_weights()
  hidden = np.maximum(_X.reshape(3, -1) @ w1 + b1, 0)
  hidden = np.maximum(hidden @ w2 + b2, 0)
  np.testing.assert_allclose(model(_X), hidden @ w3 + b3, atol=1e-5)
  encoder = dense.dense_encoder((4, 4, 2), features=7)
  kernel, bias = encoder.get_weights()
  expected = np.maximum(_X.reshape(3, -1) @ kernel + bias, 0)
  assert 0 < (expected == 0).mean() < 1
  np.testing.assert_allclose(encoder(_X), expected, atol=1e-5)


def test_bad_sizes():
  with pytest.raises(ValueError, match=r'hidden is \(10, 0\)'):
    dense.dense(hidden=(10, 0))
  with pytest.raises(ValueError, match='features must be .* but is 0'):
    dense.dense_encoder(features=0)


def test_encoder_parameter_counts():
  # The label-hungry paper's encoder.
  assert dense.dense_encoder().count_params() == 784 * 256 + 256
  # A scale and an offset for each unit; batch has two moving averages as well.
  small = dense.dense_encoder((8, 8, 3), 'none', 5).count_params()
  assert small == 192 * 5 + 5
  for norm, more in (('group', 2 * 5), ('batch', 4 * 5)):
    model = dense.dense_encoder((8, 8, 3), norm, 5)
    assert model.count_params() == small + more
