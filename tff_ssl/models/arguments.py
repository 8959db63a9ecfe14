"""Checks of the arguments that all networks share."""

from collections.abc import Sequence

from tff_ssl.common.setting import Setting

NORM = Setting(
  'norm',
  str,
  'Normalisation: none, batch or group. The published emnist_cnn has none, '
  'though its paper says group.',
  default='none',
  choices=('none', 'batch', 'group'),
)


def check_network(num_classes: int, norm: str) -> None:
  """Checks what every network takes.

  Args:
    num_classes: Number of outputs.
    norm: Name of a normalisation.

  Raises:
    ValueError: If `num_classes` is not positive or `norm` is unknown.
  """
  if num_classes < 1:
    raise ValueError(f'num_classes is {num_classes}: give a positive number.')
  NORM.check(norm)


def check_image_network(
  input_shape: Sequence[int], num_classes: int, norm: str, smallest: int
) -> None:
  """Checks what every network for images takes.

  Args:
    input_shape: Height, width and channels.
    num_classes: Number of outputs.
    norm: Name of a normalisation.
    smallest: The least height and width that the network has use for.

  Raises:
    ValueError: If an argument is out of range.
  """
  if (
    len(input_shape) != 3
    or min(input_shape[:2]) < smallest
    or input_shape[2] < 1
  ):
    raise ValueError(
      f'input_shape is {tuple(input_shape)}: give height, width and channels, '
      f'of at least {smallest} by {smallest} by 1.'
    )
  check_network(num_classes, norm)
