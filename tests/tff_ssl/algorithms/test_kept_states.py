"""What clients keep: repeated and resumed runs read what they should."""

import pathlib

import pytest

from tff_ssl import testing
from tff_ssl.algorithms import PROCESSES
from tff_ssl.testing import assertions


@pytest.mark.parts
@pytest.mark.parametrize(
  'spec',
  [s for s in PROCESSES.values() if s.takes('client_state_dir')],
  ids=str,
)
def test_a_repeated_run_gives_the_same_and_so_does_a_resumed_one(
  spec, tff_context
):
  """Of the same clients in each round, so that all find what they have left."""
  problem = testing.TinyProblem(spec)
  clients = problem.clients()

  def run(num_rounds, state):
    for _ in range(num_rounds):
      state = problem.process.next(state, clients).state
    return state

  def written():
    folder = pathlib.Path(problem.tiny_arguments['client_state_dir'])
    return {path: path.read_bytes() for path in folder.rglob('*.state')}

  half = run(2, problem.initial_state)
  whole = run(2, half)
  files = written()
  assert files
  # Beside states of later rounds, which the first run has left.
  for state, num_rounds in ((problem.initial_state, 4), (half, 2)):
    assertions.require_equal(
      run(num_rounds, state), whole, 'A later state must count for nothing.'
    )
    assert written() == files
