import numpy as np
import pytest

from tff_ssl.models import heads

_FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)


def test_parameter_counts():
  # The label-hungry paper's classifier and decoder.
  assert heads.linear_head(256, 10).count_params() == 256 * 10 + 10
  decoder = heads.dense_decoder(256, (28, 28, 1))
  assert decoder.count_params() == 256 * 784 + 784


def test_linear_head_equals_numpy():
  model = heads.linear_head(6, 4)
  kernel, bias = model.get_weights()
  bias += np.arange(4)
  model.set_weights([kernel, bias])
  np.testing.assert_allclose(
    model(_FEATURES), _FEATURES @ kernel + bias, atol=1e-6
  )


def test_decoder_gives_images_without_a_sigmoid():
  model = heads.dense_decoder(6, (2, 3, 2))
  kernel, _ = model.get_weights()
  # Far outside [0, 1], in the order height, width, channels.
  bias = np.arange(12) * 10
  model.set_weights([kernel, bias])
  pixels = _FEATURES @ kernel + bias
  np.testing.assert_allclose(
    model(_FEATURES), pixels.reshape(3, 2, 3, 2), rtol=1e-5
  )


@pytest.mark.parametrize(
  'build, message',
  [
    (lambda: heads.linear_head(0, 3), 'num_features must be .* >= 1, but is 0'),
    (lambda: heads.linear_head(3, 0), 'num_outputs must be .* >= 1, but is 0'),
    (lambda: heads.dense_decoder(0, (4,)), 'num_features must be .* but is 0'),
    (lambda: heads.dense_decoder(3, (4, 0)), r'output_shape is \(4, 0\)'),
    (lambda: heads.dense_decoder(3, ()), r'output_shape is \(\)'),
  ],
)
def test_bad_arguments(build, message):
  with pytest.raises(ValueError, match=message):
    build()
