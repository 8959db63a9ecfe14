import pytest

from tff_ssl.models import arguments


def test_accepts_the_smallest():
  arguments.check_image_network((8, 9, 1), 1, 'batch', smallest=8)


@pytest.mark.parametrize(
  'input_shape', [(8, 8), (7, 8, 3), (8, 7, 3), (8, 8, 0), (2, 8, 8, 3)]
)
def test_refuses_shapes(input_shape):
  with pytest.raises(ValueError, match='input_shape is .* at least 8 by 8'):
    arguments.check_image_network(input_shape, 10, 'none', smallest=8)
