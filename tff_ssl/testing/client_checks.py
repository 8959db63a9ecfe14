"""Checks of what single clients may and may not do to a round."""

from tff_ssl.testing import assertions
from tff_ssl.testing.tiny_problems import BATCH_SIZE, TinyProblem


def empty_clients_change_nothing(problem: TinyProblem) -> None:
  """A client without examples changes nothing, nor does a round of them."""
  clients = problem.clients()
  # At least one in each group, and six clients in all, as in other checks: a
  # number of clients that is new costs TFF the time of many rounds.
  empty = [problem.client(8 + i, 0) for i in range(max(2, problem.num_groups))]
  without = problem.first_round
  with_empty = _round(problem, clients[:1] + empty + clients[1:])
  assertions.require_close(
    with_empty.state,
    without.state,
    'A round with empty clients must equal the round without them.',
  )
  require_count(with_empty, 'empty', len(empty))
  alone = _round(problem, empty)
  assertions.require_finite(
    alone.state, 'A round of empty clients must leave the state finite.'
  )
  state = without_server_training(problem, problem.initial_state)
  _require_same_model(
    problem,
    state,
    problem.process.next(state, empty).state,
    'A round of empty clients must not move the model.',
  )


def non_finite_clients_are_left_out(problem: TinyProblem) -> None:
  """A client with NaN or Inf contributes nothing and is counted."""
  clients = problem.clients()
  broken = [
    problem.client(8, pixel=float('nan')),
    problem.client(9, pixel=float('inf')),
  ]
  without = problem.first_round
  with_broken = _round(problem, broken[:1] + clients + broken[1:])
  assertions.require_finite(
    with_broken.state, 'A client with NaN or Inf must leave the state finite.'
  )
  assertions.require_close(
    with_broken.state,
    without.state,
    'A round with clients that hold NaN or Inf must equal the round without '
    'them.',
  )
  if problem.spec.needs.clients != 'none':
    require_count(with_broken, 'non_finite', len(broken))
    assertions.require_close(
      with_broken.metrics['client_work']['train'],
      without.metrics['client_work']['train'],
      'Clients with NaN or Inf must leave the metrics client_work/train alone.',
    )


def client_order_does_not_matter(problem: TinyProblem) -> None:
  """The participants in reverse order give the same round."""
  assertions.require_close(
    _round(problem, problem.clients()[::-1]).state,
    problem.first_round.state,
    'The order of the clients must not matter.',
  )


def copies_count_as_one(problem: TinyProblem) -> None:
  """Copies of one client give the same model as the client alone."""
  client = problem.client(0)
  _require_same_model(
    problem,
    _round(problem, [client]).state,
    _round(problem, [client] * 4).state,
    'Four copies of a client must give the model of that client alone.',
  )


def zero_learning_rate_moves_nothing(problem: TinyProblem) -> None:
  """With learning rate 0 at clients, they do not move the model."""
  process = problem.process
  state = without_server_training(problem, problem.initial_state)
  hparams = process.get_hparams(state)
  hparams['client_work']['learning_rate'] = 0.0
  state = process.set_hparams(state, hparams)
  _require_same_model(
    problem,
    state,
    process.next(state, problem.clients()).state,
    'With client learning rate 0 the deltas must be 0.',
  )


def any_minibatch_remainder(problem: TinyProblem) -> None:
  """Clients of any size take part, whatever is left for the last minibatch."""
  sizes = (
    1,
    BATCH_SIZE - 1,
    BATCH_SIZE,
    BATCH_SIZE + 1,
    2 * BATCH_SIZE,
    2 * BATCH_SIZE + 1,
  )
  clients = [problem.client(index, size) for index, size in enumerate(sizes)]
  output = _round(problem, clients)
  assertions.require_finite(
    output.state, f'Clients of {sizes} examples must leave the state finite.'
  )
  if problem.spec.needs.clients == 'none':
    return
  require_count(output, 'non_finite', 0)
  require_count(output, 'participating', len(sizes))
  assertions.require_finite(
    _round(problem, clients[:1]).metrics['client_work']['train']['loss'],
    'One client with one example must give a finite loss.',
  )


def traces_once(problem: TinyProblem) -> None:
  """The model's Python is not called again from the second round on."""
  output = problem.first_round
  before = problem.num_traces
  assertions.require(before > 0, 'The process must call its model.')
  state = problem.process.next(output.state, problem.clients(1)).state
  problem.process.next(state, [problem.client(0, 3), problem.client(1, 0)])
  assertions.require(
    problem.num_traces == before,
    'From round 2 on nothing may be traced again, but the model was called '
    f'{problem.num_traces - before} more times.',
  )


def without_server_training(problem: TinyProblem, state):
  """Returns the state with the learning rate of the server's training at 0."""
  if not problem.spec.takes('server_data'):
    return state
  hparams = problem.process.get_hparams(state)
  assertions.require(
    'learning_rate' in hparams['finalizer'],
    'A process with server training must have the hyperparameter '
    'finalizer/learning_rate.',
  )
  hparams['finalizer']['learning_rate'] = 0.0
  return problem.process.set_hparams(state, hparams)


def require_count(output, name: str, expected: int) -> None:
  """Raises `AssertionError` unless so many clients are counted as `name`."""
  count = output.metrics['client_work'].get('clients', {}).get(name)
  assertions.require(
    count is not None and int(count) == expected,
    f'The metric client_work/clients/{name} must be {expected}, but is '
    f'{count}.',
  )


def _round(problem, clients):
  return problem.process.next(problem.initial_state, clients)


def _require_same_model(problem, state, other_state, promise):
  assertions.require_close(
    problem.process.get_model_weights(other_state),
    problem.process.get_model_weights(state),
    promise,
  )
