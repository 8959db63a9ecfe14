"""Lets a builder take what TFF's own builders take, under TFF's names.

A program with `tff.learning.algorithms.build_weighted_fed_avg` then changes the
name of the builder, and adds what that one has nothing of, such as views.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from etils import epy

from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl.models import functional
  from tff_ssl.templates import client_data

# TFF's arguments that are fields of `Wiring` here.
_OF_WIRING = ('model_distributor', 'model_aggregator', 'metrics_aggregator')
_USUAL = ('client_optimizer_fn', 'server_optimizer_fn', *_OF_WIRING)


def taken(build: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a builder that also takes TFF's arguments.

  - `model`: whatever `tff_ssl.models.functional.as_functional` takes, such as a
    `model_fn`, a Keras model or a `tff.learning.models.FunctionalModel`;
  - `data_spec`: an `element_spec`; by default the model's own `input_spec`,
    where that has examples and labels;
  - `client_weighting`: a `tff.learning.ClientWeighting`;
  - `client_optimizer_fn`, `server_optimizer_fn`: a
    `tff.learning.optimizers.Optimizer`, or a function that returns one;
  - `model_distributor`, `model_aggregator` and `metrics_aggregator`, which are
    fields of `wiring` here.

  Args:
    build: The builder, `build(model, *, data_spec, ...)`.
  """

  known = inspect.signature(build).parameters
  passes_on = any(p.kind is p.VAR_KEYWORD for p in known.values())

  @functools.wraps(build)
  def with_tff_arguments(
    model=None,
    client_optimizer_fn=None,
    server_optimizer_fn=None,
    *,
    model_fn=None,
    **arguments,
  ):
    if (model is None) == (model_fn is None):
      raise TypeError('Give the model once, as model or as model_fn.')
    model, element_spec = functional.as_functional(
      model_fn if model is None else model
    )
    # TFF's own builders take None for their defaults.
    arguments = {
      name: value
      for name, value in {
        **arguments,
        'client_optimizer_fn': client_optimizer_fn,
        'server_optimizer_fn': server_optimizer_fn,
      }.items()
      if value is not None
      or (name in known and name not in ('data_spec', 'client_weighting'))
    }
    spec = arguments.get('data_spec', element_spec)
    if spec is None:
      raise TypeError(
        'data_spec is missing, and the model does not say what labels are: '
        'give data_spec=tff_ssl.ClientDataSpec(element_spec of the data).'
      )
    if not isinstance(spec, client_data.ClientDataSpec):
      spec = client_data.ClientDataSpec(
        tuple(spec) if isinstance(spec, list) else spec
      )
    if 'server_optimizer_fn' in arguments and not (
      passes_on or 'server_optimizer' in known
    ):
      raise TypeError(
        f'server_optimizer_fn has no place in {build.__name__}, whose server '
        'has no optimizer on the mean of the clients: leave it out.'
      )
    return build(model, **_renamed({**arguments, 'data_spec': spec}))

  return with_tff_arguments


def _renamed(arguments: dict[str, Any]) -> dict[str, Any]:
  given = {name: arguments.pop(name) for name in _USUAL if name in arguments}
  plan = arguments.get('client_training', TrainingPlan())
  for name, ours, other in (
    ('client_optimizer_fn', 'client_training', plan.optimizer),
    (
      'server_optimizer_fn',
      'server_optimizer',
      arguments.get('server_optimizer'),
    ),
  ):
    if name in given and other is not None:
      raise TypeError(
        f'{name} and {ours} exclude each other: give the optimizer once.'
      )
  if 'client_optimizer_fn' in given:
    arguments['client_training'] = dataclasses.replace(
      plan, optimizer=_optimizer('client_optimizer_fn', given)
    )
  if 'server_optimizer_fn' in given:
    arguments['server_optimizer'] = _optimizer('server_optimizer_fn', given)
  wired = {name: given[name] for name in _OF_WIRING if name in given}
  if wired:
    arguments['wiring'] = dataclasses.replace(
      arguments.get('wiring', Wiring()), **wired
    )
  if 'client_weighting' in arguments:
    arguments['client_weighting'] = _weighting(arguments['client_weighting'])
  return arguments


def _optimizer(name: str, given) -> tff.learning.optimizers.Optimizer:
  value = given[name]
  if callable(value) and not isinstance(
    value, tff.learning.optimizers.Optimizer
  ):
    needed = [
      parameter.name
      for parameter in inspect.signature(value).parameters.values()
      if parameter.default is parameter.empty
      and parameter.kind is not parameter.VAR_KEYWORD
      and parameter.kind is not parameter.VAR_POSITIONAL
    ]
    if needed:
      raise TypeError(
        f'{name} is a function of {", ".join(needed)}, and is called with no '
        'arguments: give an optimizer, and let its learning rate change by '
        'client_training=tff_ssl.TrainingPlan(schedule=...).'
      )
    value = value()
  if not isinstance(value, tff.learning.optimizers.Optimizer):
    raise TypeError(
      f'{name} gives a {type(value).__name__}: give a '
      'tff.learning.optimizers.Optimizer, such as '
      'tff.learning.optimizers.build_sgdm(learning_rate=0.02), in the place of '
      'a Keras optimizer.'
    )
  return value


def _weighting(value: Any) -> Any:
  if isinstance(value, tff.learning.ClientWeighting):
    is_uniform = value is tff.learning.ClientWeighting.UNIFORM
    return 'uniform' if is_uniform else 'examples'
  if callable(value):
    raise TypeError(
      f'client_weighting={value!r} is a function, which no builder here takes: '
      "give 'examples' or 'uniform'."
    )
  return value
