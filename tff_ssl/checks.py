"""Checks of arguments, with errors that name argument, value and remedy."""

import math
import numbers
from collections.abc import Sequence

# The values of arguments that have names for values. They stand here, and not
# with the code that tells them apart, so that a runner can refuse others before
# it imports TensorFlow.
CHOICES = {
  'base_process': ('fedavg', 'fedprox', 'fedadam', 'fednova', 'scaffold'),
  'bn_statistics': ('averaged', 'local'),
  'client_momentum': ('reset', 'slot'),
  'confidence': ('variance', 'entropy'),
  'consistency_view': ('plain', 'strong'),
  'control_update': ('from_steps', 'full_gradient'),
  'client_weighting': ('examples', 'uniform'),
  'encoder_training': ('fine_tuned', 'frozen'),
  'epoch_batches': ('separate', 'continuous'),
  'expert_view': ('plain', 'weak', 'strong'),
  'experts': ('both', 'global', 'local'),
  'group_assignment': ('sampler', 'in_process'),
  'idle_momentum': ('coasts', 'rests'),
  'kl_direction': ('printed', 'reverse'),
  'mix': ('inputs', 'logits'),
  'pseudo_labels': ('sets', 'model'),
  'norm': ('none', 'batch', 'group'),
  'pretraining_images': ('all', 'unlabelled'),
  'proxy_task': ('reconstruction', 'reconstruction_mse', 'rotation'),
  'pseudo_label_view': ('plain', 'weak'),
  'reconstruction_loss': ('binary_crossentropy', 'mean_squared_error'),
  'rows': ('all', 'labelled', 'unlabelled', 'either', 'sets'),
  'server_replicas': ('one', 'per_group'),
  'start_model': ('group', 'slot'),
  'supervised_loss': ('cross_entropy', 'double_softmax'),
  'surrogate_loss': ('log_transition', 'published_code'),
  'unlabelled_mean': ('all', 'passed'),
  'unlabelled_loss': ('crl', 'self_training', 'uda'),
  'unmixed_batches': ('trained', 'skipped'),
  'vat_ramp': ('none', 'published_code'),
  'views_forward': ('auto', 'joint', 'separate'),
}


def integers_at_least(least: int, **arguments) -> None:
  """Raises `ValueError` unless each argument is an integer >= `least`.

  Args:
    least: The smallest that is allowed.
    **arguments: The values, by the name that the caller's user knows; `None`
      stands for "not given" and passes.
  """
  for name, value in arguments.items():
    if value is None:
      continue
    is_integer = isinstance(value, numbers.Integral)
    if not is_integer or isinstance(value, bool) or value < least:
      raise ValueError(
        f'{name} must be an integer >= {least}, but is {value!r}.'
      )


def numbers_at_least(least: float, *, above: bool = False, **arguments) -> None:
  """Raises `ValueError` unless each argument is a finite number >= `least`.

  Args:
    least: The smallest that is allowed.
    above: Whether `least` itself is not allowed.
    **arguments: The values, by the name that the caller's user knows.
  """
  for name, value in arguments.items():
    is_number = isinstance(value, numbers.Real) and math.isfinite(value)
    if not is_number or value < least or (above and value == least):
      raise ValueError(
        f'{name} must be a number {">" if above else ">="} {least}, but is '
        f'{value!r}.'
      )


def fractions(**arguments) -> None:
  """Raises `ValueError` unless each argument is a number in [0, 1].

  Args:
    **arguments: The values, by the name that the caller's user knows.
  """
  for name, value in arguments.items():
    if not isinstance(value, numbers.Real) or not 0 <= value <= 1:
      raise ValueError(
        f'{name} must be a number between 0 and 1, but is {value!r}.'
      )


def positive_distribution(size: int | None = None, **arguments) -> None:
  """Raises `ValueError` unless each argument is a distribution without zeros.

  Args:
    size: How many numbers there must be, where that is known.
    **arguments: The values, by the name that the caller's user knows.
  """
  for name, value in arguments.items():
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not all(isinstance(p, numbers.Real) for p in value):
      raise ValueError(
        f'{name} must be a tuple of one number per class, but is {value!r}.'
      )
    # Not `<=`, which NaN would pass.
    if not all(p > 0 for p in value):
      raise ValueError(
        f'{name} must be above 0 for each class, but is {value!r}: leave '
        'classes that never occur out of the model.'
      )
    if not abs(math.fsum(value) - 1) <= 1e-3:
      raise ValueError(
        f'{name} must sum to 1, but {value!r} sums to {math.fsum(value):g}: '
        'divide it by its sum.'
      )
    if size is not None and len(value) != size:
      raise ValueError(
        f'{name} is {value!r}, of {len(value)} classes, but there are {size}: '
        'give one number per class.'
      )


def choice(**arguments) -> None:
  """Raises `ValueError` unless each argument is one of its `CHOICES`.

  Args:
    **arguments: The values, by the name that the caller's user knows.
  """
  for name, value in arguments.items():
    if value not in CHOICES[name]:
      raise ValueError(
        f'{name} must be one of {CHOICES[name]}, but is {value!r}.'
      )
