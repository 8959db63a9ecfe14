"""Checks of a builder: what it composes with, refuses and documents."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epy

from tff_ssl.testing import assertions, tiny_problems
from tff_ssl.testing.tiny_problems import TinyProblem

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import aggregators, compat

_BAD_SEEDS = (-1, 2**31, 0.5)

_NUM_CLIENTS = len(tiny_problems.CLIENT_SIZES)

# The least change of a weight that counts as one.
_CHANGE = 1e-3

# What `tff.aggregators.zeroing_factory` measures.
_METRIC_OF_GUARDED_MEAN = 'zeroed_count'

_PAPER = re.compile(
  r'arXiv:? ?\d{4}\.\d{4,5}|arxiv\.org/abs/\d|doi\.org/|\bEqs?\. \(?\d'
  r'|\bFigure \d'
)


def norms_and_aggregators_compose(problem: TinyProblem) -> None:
  """A normalised model and a robust and compressed mean run a round.

  All at once, since building is what takes the time. Not with noise, which
  processes refuse where there are moving statistics. The metrics of the mean
  must be among those of the round, which shows that the mean was used.
  """
  overrides: dict[str, Any] = {}
  if 'local_steps' in problem.spec.setting_names:
    # The other way to count a client's work, which the shared process lacks.
    overrides = {'local_steps': 2, 'local_epochs': None}
  factory = _build_guarded_mean()
  if problem.averages_groups:
    factory = aggregators.GroupMeanFactory(
      problem.num_groups, mean_factory=factory
    )
  process = problem.build(
    model=problem.build_model(normalised=True),
    model_aggregator=factory,
    **overrides,
  )
  state = process.initialize()
  output = process.next(state, problem.clients())
  what = 'A round with a normalised model and a guarded mean'
  assertions.require_finite(
    output.state, f'{what} must leave the state finite.'
  )
  assertions.require(
    _has_key(output.metrics, _METRIC_OF_GUARDED_MEAN),
    f'{what} must report {_METRIC_OF_GUARDED_MEAN}: use the model_aggregator '
    'that is given, and pass its measurements on.',
  )
  before, after = (process.get_model_weights(s) for s in (state, output.state))
  assertions.require(
    assertions.largest_difference(before.trainable, after.trainable) > _CHANGE,
    f'{what} must move the model.',
  )
  assertions.require(
    not assertions.is_equal(before.non_trainable, after.non_trainable),
    f'{what} must move the moving statistics.',
  )


def refuses_meaningless_aggregators(problem: TinyProblem) -> None:
  """Aggregators that cannot do what the paper's rule wants are refused.

  These are a sum where the rule averages within groups, and a mean that ignores
  the weights where the rule weighs.
  """
  factory = (
    tff.aggregators.SumFactory()
    if problem.averages_groups
    else tff.learning.dp_aggregator(0.01, _NUM_CLIENTS)
  )
  overrides = {'model_aggregator': factory}
  if problem.spec.takes('client_weighting'):
    # Whatever the default is.
    overrides['client_weighting'] = 'examples'
  failure = missing_refusal(problem, overrides, ('model_aggregator',))
  assertions.require(failure is None, failure or '')


def refuses_bad_arguments(problem: TinyProblem) -> None:
  """Errors come before `initialize`, and name the argument and its value.

  Every setting of the spec is tried with the values that its record excludes.
  """
  settings = problem.spec.settings
  untried = [each.name for each in settings if not each.bad_values()]
  assertions.require(
    not untried,
    f'Any value passes for the settings {untried}, so none was tried: give '
    'their records bounds, choices or values that are refused.',
  )
  other_shape = (5, 5, 1)
  # What is given, words of its refusal, and maybe what is left out.
  cases: list[tuple[Any, ...]] = [
    ({each.name: value}, (each.argument_name, repr(value)))
    for each in settings
    for value in each.bad_values()
  ]
  cases += [({'seed': seed}, ('seed', repr(seed))) for seed in _BAD_SEEDS]
  if problem.spec.takes('group_assignment'):
    given = {'group_assignment': 'by_hand'}
    cases.append((given, ('group_assignment', repr('by_hand'))))
  other_data = {'data_spec': problem.data_spec(other_shape)}
  cases.append((other_data, ('model', str(other_shape))))
  if problem.spec.takes('server_data'):
    wrong_images = tiny_problems.build_server_data(
      np.zeros((3, *other_shape), np.float32), np.zeros(3, np.int32)
    )
    cases += [
      ({'server_data': None}, ('server', 'data', 'None')),
      ({'server_data': wrong_images}, ('model', str(other_shape))),
      ({}, ('server', 'data'), ('server_data',)),
    ]
  found = [missing_refusal(problem, *case) for case in cases]
  failures = list(filter(None, found))
  assertions.require(not failures, '\n'.join(failures))


def documented(problem: TinyProblem) -> None:
  """Every argument of the builder stands in its docstring; papers are cited."""
  function = problem.spec.builder
  docstring = inspect.getdoc(function) or ''
  _, _, sections = docstring.partition('Args:')
  arguments = re.split(r'\n(?=\S)', sections)[0]
  missing = [
    name
    for name in inspect.signature(function).parameters
    if not re.search(rf'^\s+\**{name}: \S', arguments, re.MULTILINE)
  ]
  assertions.require(
    not missing,
    f'The Args of {function.__name__} must document {missing}.',
  )
  module = inspect.getmodule(function)
  text = f'{module.__doc__ if module else ""}\n{docstring}'
  assertions.require(
    bool(_PAPER.search(text)) and bool(problem.spec.source),
    f'{function.__name__} or its module must cite the paper (arXiv number, '
    'DOI, equation or figure), and the spec must name its source.',
  )


def _has_key(metrics, key) -> bool:
  """Whether a mapping has the key, or one of the mappings in it does."""
  return isinstance(metrics, Mapping) and (
    key in metrics or any(_has_key(each, key) for each in metrics.values())
  )


def _build_guarded_mean():
  """Returns a weighted mean that zeroes, clips and compresses.

  TFF's own compression passes over tensors as small as those of tiny models.
  """
  compressed = compat.EncodedSumFactory.quantize_above_threshold(
    quantization_bits=8, threshold=100
  )
  return tff.aggregators.zeroing_factory(
    10.0,
    tff.aggregators.clipping_factory(
      1.0, tff.aggregators.MeanFactory(compressed)
    ),
  )


def missing_refusal(
  problem: TinyProblem,
  overrides: Mapping[str, Any],
  words: Sequence[str],
  without: Sequence[str] = (),
) -> str | None:
  """Returns what is wrong with the error that the arguments raise, or None."""
  # `local_steps` and `local_epochs` exclude each other.
  if 'local_steps' in overrides:
    overrides = {**overrides, 'local_epochs': None}
  what = ', '.join(f'{k}={v!r}' for k, v in overrides.items())
  what = what or f'no {without[0]}'
  try:
    problem.build(without=without, **overrides)
  except (TypeError, ValueError) as error:
    # Python's own error, which names the argument too.
    if 'unexpected keyword argument' in str(error):
      return f'{what} is no argument of the builder: {error}'
    lost = [word for word in words if word not in str(error)]
    if not lost:
      return None
    return f'The error for {what} must say {lost}, but is: {error}'
  except Exception as error:  # noqa: BLE001
    return f'{what} must raise a ValueError or TypeError, but is: {error!r}'
  return f'{what} must be refused before initialize, but is accepted.'
