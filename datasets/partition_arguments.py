"""Checks of what `datasets.partitions.build` is asked for."""

import math
import numbers
import re
import sys
from collections.abc import Callable, Sequence

import numpy as np

from datasets.native_partition import SERVER_WRITERS
from datasets.source import UNKNOWN, Split

# Below, numpy draws a Dirichlet distribution of few clients without end; above,
# the shares are equal to six digits.
ALPHA_INTERVAL = (1e-3, 1e6)


def check_source(name: str, train: Split, num_classes: int, needs_labels: bool):
  """Checks the labels of a source's training split.

  Args:
    name: Of the source.
    train: The split.
    num_classes: d.
    needs_labels: Whether the partition needs the class of each example.

  Raises:
    ValueError: If they are not what a partition needs.
  """
  labels = train.labels
  if not len(labels):
    raise ValueError(
      f'source {name!r} has no training examples: choose another.'
    )
  if labels.min() < UNKNOWN or labels.max() >= num_classes:
    raise ValueError(
      f'source {name!r} has labels from {labels.min()} to {labels.max()}, '
      f'outside [0, {num_classes}): correct them.'
    )
  unknown = np.count_nonzero(labels == UNKNOWN)
  if unknown and needs_labels:
    raise ValueError(
      f'source {name!r} has {unknown:,} training images without a label, and '
      'this partition goes by the class of each image: label or leave out '
      'these, or choose --partition=r with --noniid_r=0, --partition=pooled, '
      'or --partition=native where images have owners.'
    )


def whole_number(argument: str, value: int, lowest: int) -> int:
  """Returns an integer that is at least `lowest`.

  Raises:
    TypeError: If it is no integer.
    ValueError: If it is too small.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(
      f'{argument}={value!r} is a {type(value).__name__}: give a whole number.'
    )
  if value < lowest:
    raise ValueError(f'{argument}={value} is too small: at least {lowest}.')
  return int(value)


def _real_number(argument: str, value: float, interval) -> float:
  low, high = interval
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(
      f'{argument}={value!r} is a {type(value).__name__}: give a number in '
      f'[{low:g}, {high:g}].'
    )
  if math.isnan(value) or not low <= value <= high:
    raise ValueError(
      f'{argument}={value} is outside [{low:g}, {high:g}]: choose one inside.'
    )
  return float(value)


def share(argument: str, value: float) -> float:
  """Returns a number in [0, 1].

  Raises:
    TypeError: If it is no number.
    ValueError: If it is outside, or NaN.
  """
  return _real_number(argument, value, (0, 1))


def not_negative(argument: str, value: float) -> float:
  """Returns a finite number of at least 0.

  Raises:
    TypeError: If it is no number.
    ValueError: If it is negative, infinite or NaN.
  """
  return _real_number(argument, value, (0, sys.float_info.max))


def choice(argument: str, value: str, choices: Sequence[str]) -> str:
  """Returns a value that is among the choices.

  Raises:
    ValueError: If it is not.
  """
  if value not in choices:
    raise ValueError(
      f'{argument}={value!r} is unknown: choose {" or ".join(choices)}.'
    )
  return value


def numbers_of_sets(value: int | str, num_clients: int) -> list[int]:
  """Returns M_c, the number of sets of each client.

  Args:
    value: One number for all, or one for each, separated by commas.
    num_clients: C.

  Raises:
    ValueError: If it is no such list.
  """
  given = str(value).split(',')
  if not all(re.fullmatch('[1-9][0-9]{0,5}', number) for number in given):
    raise ValueError(
      f'sets_per_client={value} must be a whole number of at least 1, or one '
      'for each client, separated by commas.'
    )
  if len(given) not in (1, num_clients):
    raise ValueError(
      f'sets_per_client={value} has {len(given)} numbers for {num_clients} '
      'clients: give one number for all, or one for each.'
    )
  return [int(number) for number in given] * (num_clients // len(given))


def check_mask(mask_ratio: float, labelled_examples: int):
  """Checks a label mask before the partition is made.

  Args:
    mask_ratio: The share of each client's labels that is hidden.
    labelled_examples: See `datasets.partitions.build`.

  Raises:
    ValueError: If the ratio is outside [0, 1], or both say whose labels are
      hidden.
    TypeError: If the ratio is no number.
  """
  share('mask_ratio', mask_ratio)
  if labelled_examples:
    raise ValueError(
      f'mask_ratio={mask_ratio} and labelled_examples={labelled_examples} '
      'exclude each other: both say which labels clients have; give one.'
    )


def check_maskable(name: str, labels: np.ndarray, mask_ratio: float):
  """Checks that a mask finds labels to hide.

  Args:
    name: Of the source.
    labels: `int [M]`, the classes of the clients' examples.
    mask_ratio: The share of each client's labels that is hidden.

  Raises:
    ValueError: If some of them are unknown.
  """
  unknown = np.count_nonzero(labels == UNKNOWN)
  if unknown:
    raise ValueError(
      f'mask_ratio={mask_ratio} hides a share of the labels, and {unknown:,} '
      f"of the clients' images in source {name!r} have none to begin with: "
      'give --mask_ratio=0 to train on the labels that there are.'
    )


# For each argument that some partitions have: value -> checked plain value.
CHECKS: dict[str, Callable] = {
  'num_clients': lambda value: whole_number('num_clients', value, 1),
  'noniid_r': lambda value: share('noniid_r', value),
  'dirichlet_alpha': lambda value: _real_number(
    'dirichlet_alpha', value, ALPHA_INTERVAL
  ),
  'min_client_examples': lambda value: whole_number(
    'min_client_examples', value, 0
  ),
  'server_writers': lambda value: choice(
    'server_writers', value, SERVER_WRITERS
  ),
}
