"""A network of a user's own, which a function of theirs builds.

What cannot be trained is refused in one sentence, which says what to write in
that function: whoever names it cannot give arguments of `from_keras`.
"""

import dataclasses
import functools
import inspect
import logging
import pathlib
import traceback
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tff_ssl.common import user_modules
from tff_ssl.models import functional, keras_template, split, structures

_DRAWN = '_tff_ssl_drawn'


def build(
  name: str, input_shape, num_classes: int, norm: str, num_tokens: int | None
) -> functional.FunctionalModel:
  """Builds the model of a function; see `tff_ssl.models.build`.

  Weights that the function loads or sets are kept, whatever the seed, and a
  line says so; all others are drawn from the seed.
  """
  said = f'model={name!r}'
  function = user_modules.load('model', name)
  more = {} if num_tokens is None else {'num_tokens': num_tokens}
  arguments = (tuple(input_shape), num_classes, norm)
  _check_signature(said, function, arguments, more)
  try:
    with tf.variable_creator_scope(_remember):
      built = function(*arguments, **more)
  except Exception as error:  # Whatever a user's code raises.
    raise ValueError(
      f'{said} stops at {user_modules.describe(error)}: repair that.'
    ) from error
  end = f'let it end in a Dense({num_classes}) layer without activation'
  dtype = tf.float32 if num_tokens is None else tf.int32
  spec = tf.TensorSpec([None, *input_shape], dtype)
  if isinstance(built, functional.FunctionalModel):
    model = built
  else:
    build_again = functools.partial(function, *arguments, **more)
    model = _of_keras(said, built, build_again, spec, end)
  _check_input(said, model, spec)
  try:
    outputs = split.features_spec(model).shape
    gives_probabilities = functional.gives_probabilities(model)
  except ValueError as error:
    raise ValueError(f'{said}: {error}') from error
  if outputs[1:] != (num_classes,):
    raise ValueError(
      f'{said} gives outputs of shape {list(outputs)}, but the data have '
      f'{num_classes} classes: {end}.'
    )
  if gives_probabilities:
    raise ValueError(
      f'{said} gives outputs that are not negative and sum to 1, '
      'probabilities, but the objectives take logits: leave the softmax out, '
      f'and {end}.'
    )
  return model


def _check_signature(said, function, arguments, more) -> None:
  try:
    signature = inspect.signature(function)
  except ValueError:
    return  # Not every function of C has one.
  try:
    signature.bind(*arguments, **more)
  except TypeError as error:
    taken = ', '.join(['input_shape', 'num_classes', 'norm', *more])
    raise ValueError(
      f'{said} cannot be called with {taken} ({error}): begin it with '
      f'def {function.__name__}({taken}).'
    ) from error


def _remember(next_creator, **kwargs) -> tf.Variable:
  """Makes a variable that knows what its initialiser drew."""
  variable = next_creator(**kwargs)
  if tf.executing_eagerly():
    setattr(variable, _DRAWN, variable.numpy())
  return variable


def _of_keras(
  said: str,
  built,
  build_again: Callable[[], tf.keras.Model],
  spec: tf.TensorSpec,
  end: str,
) -> functional.FunctionalModel:
  if not isinstance(built, tf.keras.Model):
    raise ValueError(
      f'{said} returned a {type(built).__name__}: let it return a '
      'tf.keras.Model, such as keras.Sequential([keras.Input(shape='
      'input_shape), ...]).'
    )
  keras_template.warn_of_rescaling(built)
  try:
    if not built.built:
      with tf.variable_creator_scope(_remember):
        built(tf.keras.Input(spec.shape[1:], dtype=spec.dtype))
    model = _converted(built, build_again, spec)
  except keras_template.NoLogitsError as error:
    raise ValueError(
      f'{said} returned a model that ends in a softmax or a sigmoid, but the '
      f'objectives take logits: leave it out, and {end}.'
    ) from error
  except Exception as error:  # Keras raises errors of many types.
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    if pathlib.Path(last).parent == pathlib.Path(__file__).parent:
      raise ValueError(f'{said}: {error}') from error
    raise ValueError(
      f'{said} returned a model that cannot be used '
      f'({type(error).__name__}: {" ".join(str(error).split())[:200]}). Let it '
      'begin with keras.Input(shape=input_shape), and consist of layers of '
      'tf.keras.'
    ) from error
  return _with_given_weights(said, built, model)


def _converted(built, build_again, spec) -> functional.FunctionalModel:
  if getattr(built, 'inputs', None):
    try:
      return functional.from_keras(built)
    except keras_template.NoLogitsError:
      raise
    except ValueError:
      pass  # Maybe of layers that Keras cannot clone.
  return functional.from_keras(build_again, spec)


def _with_given_weights(said, built, model) -> functional.FunctionalModel:
  """Lets training begin with the weights that the function has set."""
  trainable, others = keras_template.weights_of(built)
  weights = [*trainable, *others]
  given = [_if_set(weight) for weight in weights]
  count = sum(array is not None for array in given)
  if not count:
    return model
  specs = [*model.weights_spec.trainable, *model.weights_spec.non_trainable]
  if [spec.shape for spec in specs] != [weight.shape for weight in weights]:
    raise ValueError(
      f'{said} sets weights of its model, whose layers are built later or '
      'share some: return a model of layers that is built.'
    )
  logging.getLogger(__name__).warning(
    '%s: %d of %d weights begin as the function sets them, whatever the seed; '
    'all others are drawn from it.',
    *(said, count, len(given)),
  )

  def draw(seed):
    drawn = model.initial_weights(seed)
    flat = [*drawn.trainable, *drawn.non_trainable]
    mixed = [
      own if array is None else array.copy()
      for own, array in zip(flat, given, strict=True)
    ]
    end = len(drawn.trainable)
    return functional.ModelWeights(mixed[:end], mixed[end:])

  return dataclasses.replace(model, initial_weights=draw)


def _if_set(weight) -> np.ndarray | None:
  """Returns the value of a weight, `None` if its initialiser drew it."""
  # Under mixed precision Keras wraps a variable in one that casts.
  variable = getattr(weight, '_variable', weight)
  value = variable.numpy()
  # One that was loaded as a whole knows of no draw.
  drawn = getattr(variable, _DRAWN, None)
  same = drawn is not None and np.array_equal(drawn, value, equal_nan=True)
  return None if same else value


def _check_input(said, model, spec) -> None:
  found = model.input_spec
  if (
    isinstance(found, tf.TensorSpec)
    and found.dtype == spec.dtype
    and found.shape.is_compatible_with(spec.shape)
  ):
    return
  taken = structures.describe(found)
  if isinstance(found, tf.TensorSpec):
    taken = f'{found.dtype.name} {taken}'
  kind = '' if spec.dtype == tf.float32 else f", dtype='{spec.dtype.name}'"
  raise ValueError(
    f'{said} takes {taken}, but examples are {spec.dtype.name} '
    f'{structures.describe(spec)}: let it begin with '
    f'keras.Input(shape=input_shape{kind}) alone.'
  )
