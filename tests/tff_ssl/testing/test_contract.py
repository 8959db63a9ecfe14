"""Every registered process keeps the promises of the contract suite.

The exceptions stand in its spec; a check that passes in spite of one fails.
"""

import functools
import itertools

import pytest

from tff_ssl import algorithms, testing


@functools.cache
def problem_for(name):
  """One problem for all checks of a process: they share its built process."""
  return testing.TinyProblem(algorithms.PROCESSES[name])


class NormalisedProblem(testing.TinyProblem):
  """A problem whose network has batch and group normalisation."""

  def build_model(self, normalised=True):
    return super().build_model(normalised)


# What moving statistics could break, where a server keeps most of them.
WITH_STATISTICS = (
  'model_weights_round_trip',
  'map_reduce_form_equals_next',
  'deterministic',
  'resumes',
  'non_finite_clients_are_left_out',
)


@functools.cache
def normalised_problem_for(name):
  return NormalisedProblem(algorithms.PROCESSES[name])


@pytest.mark.contract
@pytest.mark.xdist_group('contract of normalised models')
@pytest.mark.parametrize(
  'process, check',
  [
    *itertools.product(['grouping', 'fedavg'], WITH_STATISTICS),
    # Not with a server that trains: its steps move them at any learning rate.
    ('fedavg', 'empty_clients_change_nothing'),
  ],
)
def test_contract_with_moving_statistics(process, check, tff_context):
  problem = normalised_problem_for(process)
  assert problem.build_model().weights_spec.non_trainable
  testing.CHECKS[check](problem)


# Processes that differ in kind: `make test` holds them to the checks, others by
# their own tests.
KINDS = (
  *('fedavg', 'grouping', 'scaffold', 'easgd'),
  *('fedmatch', 'fedtrinet', 'ssjo', 'fedul'),
)
# Checks that build, or compile, processes of their own, and the pairs of kinds
# that `make test` holds to them. Those of a line share what they build.
OWN_BUILDS = {
  ('norms_and_aggregators_compose',): ('grouping', 'ssjo'),
  ('deterministic', 'seed_reaches_clients', 'resumes'): (
    'grouping',
    'scaffold',
  ),
  (
    'map_reduce_form_equals_next',
    'distribute_aggregate_form_equals_next',
  ): ('fedtrinet', 'fedul'),
  ('takes_plain_data',): ('easgd', 'fedmatch'),
  ('runs_under_train_model',): ('fedavg', 'fedul'),
}


def is_in_make_test(process, check):
  """Whether each change pays for it; all run in `make test-contract`."""
  for checks, pair in OWN_BUILDS.items():
    if check in checks:
      return process in pair
  return process in KINDS


def cases():
  for process, spec in algorithms.PROCESSES.items():
    for check in testing.CHECKS:
      # The checks of a process share a problem; the file is long.
      marks = [pytest.mark.xdist_group(f'contract of {process}')]
      if is_in_make_test(process, check):
        marks.append(pytest.mark.dear)
      marks.append(pytest.mark.contract)
      reason = spec.exceptions.get(check)
      if reason:
        marks.append(
          pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)
        )
      yield pytest.param(process, check, marks=marks, id=f'{process}-{check}')


@pytest.mark.parametrize(('process', 'check'), cases())
def test_contract(process, check, tff_context):
  testing.CHECKS[check](problem_for(process))


@pytest.mark.parametrize('spec', algorithms.PROCESSES.values(), ids=str)
def test_exceptions_name_a_check_and_a_reason(spec):
  assert set(spec.exceptions) <= set(testing.CHECKS)
  assert all(reason.strip() for reason in spec.exceptions.values())
