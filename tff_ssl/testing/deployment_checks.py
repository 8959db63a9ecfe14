"""Checks that a process runs where TFF's own processes run."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from etils import epy

from tff_ssl.testing import assertions, builder_checks, client_checks
from tff_ssl.testing.tiny_problems import TinyProblem

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import compat
  from tff_ssl.simulation import client_reader, contexts

_READER_CLIENTS = 6
_READER_SIZE = 12


def map_reduce_form_equals_next(problem: TinyProblem) -> None:
  """The process compiles to a MapReduceForm which computes the same round."""
  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
    problem.process.next
  )
  assertions.require(
    not form.securely_aggregates_tensors,
    'The check sums in the clear: give it a process without secure sums.',
  )
  assertions.require_close(
    _run_map_reduce(form, problem.initial_state, problem.clients()),
    problem.first_round,
    'The MapReduceForm, executed, must equal next.',
  )


def distribute_aggregate_form_equals_next(problem: TinyProblem) -> None:
  """The process compiles to a DistributeAggregateForm of the same round."""
  forms = tff.backends.mapreduce
  rebuilt = forms.get_computation_for_distribute_aggregate_form(
    forms.get_distribute_aggregate_form_for_computation(problem.process.next)
  )
  assertions.require_close(
    rebuilt(problem.initial_state, problem.clients()),
    problem.first_round,
    'The DistributeAggregateForm, executed, must equal next.',
  )


def takes_plain_data(problem: TinyProblem) -> None:
  """Clients may hold a plain sequence, in any order of clients.

  Where examples lie in sets, a sequence has no place for the class priors of
  these: there it must be refused.
  """
  if problem.lies_in_sets:
    failure = builder_checks.missing_refusal(
      problem,
      {'data_spec': problem.data_spec(in_context=False)},
      ('priors_shape',),
    )
    assertions.require(failure is None, failure or '')
    return
  overrides: dict[str, Any] = {'data_spec': problem.data_spec(in_context=False)}
  if problem.spec.takes('group_assignment'):
    overrides['group_assignment'] = 'in_process'
  process = problem.build(**overrides)
  state, clients = process.initialize(), problem.clients(in_context=False)
  output = process.next(state, clients)
  assertions.require_finite(
    output.state, 'A round on plain client data must leave the state finite.'
  )
  if problem.spec.needs.clients != 'none':
    client_checks.require_count(output, 'participating', len(clients))
  assertions.require_close(
    process.next(state, clients[::-1]).state,
    output.state,
    'The order of clients with plain data must not matter.',
  )


def runs_under_train_model(problem: TinyProblem) -> None:
  """`tff.learning.programs.train_model` ends as calls of `next` end."""
  clients = [
    problem.examples(_READER_SIZE, digits_of=index)
    for index in range(_READER_CLIENTS)
  ]
  process = client_reader.compose_with_reader(
    problem.process, problem.reader(clients)
  )
  source = client_reader.ClientKeySource(
    num_clients=_READER_CLIENTS, num_groups=problem.num_groups, seed=3
  )
  clients_per_round, rounds = 4, 2
  state, keys = process.initialize(), source.iterator()
  for _ in range(rounds):
    state = process.next(state, keys.select(clients_per_round)).state

  model = compat.MemoryReleaseManager()
  stack = compat.get_context_stack()
  context = compat.NativeFederatedContext(
    contexts.BackgroundContext(stack.current)
  )
  with tempfile.TemporaryDirectory() as folder, stack.install(context):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=process,
        train_data_source=source,
        train_per_round_clients=clients_per_round,
        train_total_rounds=rounds,
        program_state_manager=tff.program.FileProgramStateManager(folder),
        model_output_manager=model,
        # Without one, it would not look for the metrics client_work/train.
        train_metrics_manager=compat.MemoryReleaseManager(),
        evaluation_manager=None,
        evaluation_periodicity=1,
      )
    )
  (released,) = model.values().values()
  assertions.require_equal(
    released,
    state,
    'train_model must end in the state that calls of next end in.',
  )


def _run_map_reduce(form, state, clients):
  """Computes a round as a MapReduce system would, with two mappers."""
  sent = form.prepare(state)
  partial_sums = []
  for part in (clients[::2], clients[1::2]):
    accumulated = form.zero()
    for client in part:
      to_sum, *_ = form.work(client, sent)
      accumulated = form.accumulate(accumulated, to_sum)
    partial_sums.append(accumulated)
  report = form.report(form.merge(*partial_sums))
  no_secure_sums = ((), (), ())
  return form.update(state, (report, *no_secure_sums))
