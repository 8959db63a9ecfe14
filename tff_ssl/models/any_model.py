"""Takes models in the forms that TFF's own builders take."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models import functional, keras_template

ModelWeights = tff.learning.models.ModelWeights

_KERAS_LOSS = tf.keras.losses.SparseCategoricalCrossentropy
# What every process here measures anyway.
_MEASURED = (tf.keras.metrics.SparseCategoricalAccuracy,)


def as_functional(model: Any) -> tuple[functional.FunctionalModel, Any]:
  """Returns a model as this library computes with it, and its data.

  Args:
    model: One of
      - a `tff_ssl.FunctionalModel` or `SplitModel`;
      - a `tff.learning.models.FunctionalModel`. Its loss and metrics are left
        behind;
      - a `tf.keras.Model`. Training begins with its present weights, whatever
        the seed;
      - a function without arguments that returns a `tf.keras.Model`, or what
        `tff.learning.models.from_keras_model` returns, a `model_fn`. Weights
        are drawn by the seed. The loss must be `SparseCategoricalCrossentropy`
        and the metrics `SparseCategoricalAccuracy`: the processes of this
        library train classifiers, and measure that.

  Returns:
    The model, and the spec of a batch of examples and labels where the model
    says it, else `None`.

  Raises:
    TypeError: If it is none of these.
    ValueError: If it is one of these, and cannot be used.
  """
  if hasattr(model, 'weights_spec'):
    return model, None
  if isinstance(model, tff.learning.models.FunctionalModel):
    converted = functional.from_tff_functional_model(model)
    return converted, model.input_spec
  if isinstance(model, tf.keras.Model):
    return _of_instance(model), None
  if isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
      f'model is a {type(model).__name__}: give the function that makes it, '
      'as to build_weighted_fed_avg.'
    )
  if isinstance(model, type) and issubclass(
    model, tff.learning.models.VariableModel
  ):
    raise _cannot_be_given(model.__name__)
  if isinstance(model, type) or not callable(model):
    raise TypeError(
      f'model is a {type(model).__name__}: give a Keras model or a function '
      'that makes one, a model_fn, or a tff.learning.models.FunctionalModel.'
    )
  return _of_function(model)


def _of_instance(model: tf.keras.Model) -> functional.FunctionalModel:
  weights = None
  if model.built:
    constants = {
      id(weight)
      for layer in keras_template.adaptable_layers(model)
      for weight in layer.weights
    }
    weights = ModelWeights(
      [weight.numpy() for weight in model.trainable_weights],
      [
        weight.numpy()
        for weight in model.non_trainable_weights
        if id(weight) not in constants
      ],
    )
  return functional.from_keras(model, initial_weights=weights)


def _of_function(build: Callable[[], Any]):
  made = build()
  if isinstance(made, tf.keras.Model):
    if build() is made:
      raise ValueError(
        'model is a function that returns the same Keras model each time: let '
        'it build a new one, or give the model itself.'
      )
    return functional.from_keras(build), None
  if not isinstance(made, tff.learning.models.VariableModel):
    raise TypeError(
      f'model is a function that returns a {type(made).__name__}: let it '
      'return a Keras model, or what tff.learning.models.from_keras_model '
      'returns.'
    )
  # TFF gives no other way to what a model was made of.
  keras_model = getattr(made, '_keras_model', None)
  if keras_model is None:
    raise _cannot_be_given(type(made).__name__)
  _check_metrics(made)
  converted = functional.from_keras(
    keras_model,
    functional.examples_spec(made),
    from_logits=_from_logits(made),
  )
  return converted, made.input_spec


def _cannot_be_given(name: str) -> TypeError:
  return TypeError(
    f'model makes a {name}, a VariableModel without a Keras model, whose '
    'weights cannot be given from outside: write it as a '
    'tff.learning.models.FunctionalModel.'
  )


def _from_logits(made) -> bool | None:
  """Returns what the outputs are, by the loss of a Keras model of TFF."""
  losses = made._loss_fns
  if len(losses) != 1 or not isinstance(losses[0], _KERAS_LOSS):
    names = ', '.join(type(loss).__name__ for loss in losses)
    raise ValueError(
      f'model_fn has the loss {names}, which no process here minimises: they '
      'train classifiers by cross-entropy; give SparseCategoricalCrossentropy.'
    )
  settings = losses[0].get_config()
  if settings.get('ignore_class') is not None:
    raise ValueError(
      f'model_fn has a loss with ignore_class={settings["ignore_class"]}: '
      'leave it out; here, -1 marks an example without a label.'
    )
  # True needs no more: from_keras looks for a softmax.
  return None if settings['from_logits'] else False


def _check_metrics(made) -> None:
  names = [
    type(metric).__name__
    for metric in made._metrics
    # TFF adds the loss and the counts of examples and batches.
    if not type(metric).__module__.startswith('tensorflow_federated')
    and not isinstance(metric, _MEASURED)
    and metric.name not in ('loss', 'num_examples', 'num_batches')
  ]
  if names:
    raise ValueError(
      f'model_fn has the metrics {", ".join(names)}, which no process here '
      'measures in training: leave them out, and evaluate with '
      'tff.learning.algorithms.build_fed_eval.'
    )
