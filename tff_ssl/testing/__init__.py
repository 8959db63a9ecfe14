"""The contract of a process: what a user may rely on, as checks to run.

Every process of `tff_ssl.algorithms` passes them, but for the exceptions in its
spec. To hold a process of your own to them, describe it with a `ProcessSpec`
and run the checks in a test:

```
from tff_ssl import algorithms, testing
from tff_ssl import shared_settings

SPEC = algorithms.ProcessSpec(
  'mine', 'What it does.', build_mine, shared_settings.LOCAL,
  source='Where it is defined', needs=algorithms.Needs(labels_at='clients'))
PROBLEM = testing.TinyProblem(SPEC)

@pytest.mark.parametrize('name', testing.CHECKS)
def test_contract(name):
  testing.run_check(name, PROBLEM)
```

or from the command line with `python -m tff_ssl.testing my_module:SPEC`.

TFF needs an execution context first (`tff_ssl.install_context`). A promise
that a process cannot keep stands in `ProcessSpec.exceptions` with the reason;
`run_check` then demands that the check fails, so that no exception outlives its
reason.

A check that stops with any error has failed: a process that TFF cannot compile
is as broken as one that computes something else. `run_check` raises an
`AssertionError` for both.
"""

import types
from collections.abc import Callable, Mapping

from tff_ssl import algorithms
from tff_ssl.testing import (
  builder_checks,
  client_checks,
  deployment_checks,
  learning_checks,
)
from tff_ssl.testing.tiny_problems import TinyProblem

__all__ = ['CHECKS', 'TinyProblem', 'run_check']

Check = Callable[[TinyProblem], None]

CHECKS: Mapping[str, Check] = types.MappingProxyType(
  {
    check.__name__: check
    for check in (
      learning_checks.is_learning_process,
      learning_checks.model_weights_round_trip,
      learning_checks.learns,
      deployment_checks.map_reduce_form_equals_next,
      deployment_checks.distribute_aggregate_form_equals_next,
      learning_checks.deterministic,
      learning_checks.seed_reaches_clients,
      learning_checks.resumes,
      client_checks.empty_clients_change_nothing,
      client_checks.non_finite_clients_are_left_out,
      client_checks.client_order_does_not_matter,
      client_checks.copies_count_as_one,
      client_checks.zero_learning_rate_moves_nothing,
      learning_checks.hparams_round_trip,
      client_checks.any_minibatch_remainder,
      client_checks.traces_once,
      builder_checks.norms_and_aggregators_compose,
      builder_checks.refuses_meaningless_aggregators,
      builder_checks.refuses_bad_arguments,
      builder_checks.documented,
      deployment_checks.takes_plain_data,
      deployment_checks.runs_under_train_model,
    )
  }
)


def run_check(name: str, problem: TinyProblem) -> None:
  """Runs one check, or makes sure of an exception to it.

  Args:
    name: A key of `CHECKS`.
    problem: The process under test.

  Raises:
    AssertionError: If the check fails or stops with another error, or if
      `problem.spec.exceptions` names it and it passes.
    ValueError: If there is no such check.
  """
  if name not in CHECKS:
    raise ValueError(f'name is {name!r}: choose one of {list(CHECKS)}.')
  is_excepted = name in problem.spec.exceptions
  try:
    CHECKS[name](problem)
  except AssertionError:
    if not is_excepted:
      raise
    return
  except Exception as error:
    # An error of another kind is no proof that the exception still holds.
    if is_excepted:
      raise
    raise AssertionError(
      f'The process stops with {type(error).__name__}: {error}'
    ) from error
  if is_excepted:
    raise AssertionError(
      f'{problem.spec.name} passes {name}, to which its spec makes an '
      'exception: remove that.'
    )


def check_exceptions(spec: algorithms.ProcessSpec) -> None:
  """Raises `ValueError` where an exception of the spec names no check."""
  if unknown := sorted(set(spec.exceptions) - set(CHECKS)):
    raise ValueError(
      f'exceptions of {spec.name} names {unknown}: choose among {list(CHECKS)}.'
    )
