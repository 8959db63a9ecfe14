"""What each process asks of a platform: a page of the reference.

    python -m tools.deployment --process=NAME[,NAME] [--write=FILE]

Every cell of the table is made by building and running a process of the
registry, on tiny data; all of them take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epy

from tff_ssl import algorithms
from tff_ssl.aggregators import recommended
from tff_ssl.testing import commands
from tff_ssl.testing.tiny_problems import CLIENT_SIZES, TinyProblem

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import compat, metrics

COMMAND = (
  'python -m tools.deployment --process=all '
  '--write=docs/reference/deployment.md'
)

# The plain mean is what processes are built with otherwise.
AGGREGATORS = tuple(name for name in recommended.AGGREGATORS if name != 'mean')
_VALUES = {'noise_multiplier': 0.01, 'clip_norm': 1.0, 'trimmed_share': 0.1}
_YES, _NO = 'yes', '-'


@dataclasses.dataclass(frozen=True)
class Row:
  """What one process asks of a platform.

  Attributes:
    process: Its name.
    map_reduce: Whether it compiles to TFF's MapReduceForm.
    distribute_aggregate: Whether it compiles to a DistributeAggregateForm.
    down: What a client receives in a round, in model sizes.
    up: What it sends, in model sizes.
    client_state: What a client keeps between rounds, in model sizes.
    server_state: What the server keeps, in model sizes.
    aggregators: For each name, 'yes' or why it is refused.
    seen: With the aggregator `secure`, the sums that the server sees in the
      clear; '-' for none.
  """

  process: str
  map_reduce: str
  distribute_aggregate: str
  down: str
  up: str
  client_state: str
  server_state: str
  aggregators: Mapping[str, str]
  seen: str


def measure(name: str) -> Row:
  """Builds and runs a process, by its name, with each aggregator."""
  problem = TinyProblem(algorithms.PROCESSES[name])
  process = problem.process
  size = _num_bytes(process.get_model_weights(problem.initial_state))
  forms = tff.backends.mapreduce
  form, distribute_aggregate = _attempt(
    lambda: forms.get_distribute_aggregate_form_for_computation(process.next)
  )
  _, map_reduce = _attempt(
    lambda: forms.get_map_reduce_form_for_computation(process.next)
  )
  sent = metrics.measure_communication(process, form)
  built, outcomes = {}, {}
  for aggregator in AGGREGATORS if problem.spec.needs.clients != 'none' else ():
    built[aggregator], outcomes[aggregator] = _attempt(
      lambda aggregator=aggregator: _run_with(problem, aggregator)
    )
  return Row(
    name,
    map_reduce,
    distribute_aggregate,
    _in_models(sent.down, size),
    _in_models(sent.up, size),
    str(problem.spec.models_in_state)
    if problem.spec.takes('client_state_dir')
    else _NO,
    _in_models(_num_bytes(problem.initial_state), size),
    outcomes,
    _seen(built.get('secure')),
  )


def _run_with(problem: TinyProblem, name: str):
  """Runs a round with an aggregator; returns the process."""
  spec = recommended.AGGREGATORS[name]
  overrides: dict[str, Any] = {
    'model_aggregator': recommended.recommended_aggregator(
      name,
      clients_per_round=len(CLIENT_SIZES),
      **{s.name: _VALUES[s.name] for s in spec.settings},
    )
  }
  if spec.is_secure:
    overrides['metrics_aggregator'] = recommended.CLIENT_METRICS['secure']
  if problem.takes('client_weighting') and not spec.is_weighted:
    overrides['client_weighting'] = 'uniform'
  process = problem.build(**overrides)
  state = process.next(process.initialize(), problem.clients()).state
  for value in tf.nest.flatten(process.get_model_weights(state)):
    tf.debugging.assert_all_finite(value, 'The model must stay finite.')
  return process


def _attempt(run: Callable[[], Any]) -> tuple[Any, str]:
  """Returns what a function returns, and 'yes' or why it fails."""
  try:
    return run(), _YES
  except (TypeError, ValueError) as error:
    return None, str(error)


def _seen(secure) -> str:
  if secure is None:
    return _NO
  try:
    compat.assert_not_contains_unsecure_aggregation(secure.next)
  except AssertionError as error:
    return str(error).partition('\n')[0]
  return 'nothing'


def _num_bytes(structure) -> int:
  return sum(
    len(leaf)
    if isinstance(leaf, bytes)
    else tf.convert_to_tensor(leaf).numpy().nbytes
    for leaf in tf.nest.flatten(structure)
  )


def _in_models(num_bytes: int, size: int) -> str:
  return f'{num_bytes / size:.1f}'


def text(rows: Sequence[Row]) -> str:
  """Returns the page of some rows."""
  reasons: dict[str, int] = {}

  def cell(outcome: str) -> str:
    if outcome in (_YES, _NO):
      return outcome
    return f'no ({reasons.setdefault(outcome, len(reasons) + 1)})'

  table = [
    [
      f'`{row.process}`',
      cell(row.map_reduce),
      cell(row.distribute_aggregate),
      row.down,
      row.up,
      row.client_state,
      row.server_state,
      *(cell(row.aggregators.get(name, _NO)) for name in AGGREGATORS),
      row.seen,
    ]
    for row in rows
  ]
  heads = [
    'process',
    *('MapReduceForm', 'DistributeAggregateForm', 'down', 'up'),
    *('client keeps', 'server keeps', *(f'`{name}`' for name in AGGREGATORS)),
    'seen with `secure`',
  ]
  lines = [
    '# What a process asks of a platform',
    '',
    f'`{COMMAND}` builds and runs each process on tiny data and writes this '
    'page.',
    '',
    'Down and up is what a client receives and sends in a round, and what '
    'client and server keep, in sizes of the model. A column of an aggregator '
    'says whether a round runs with it (`tff_ssl.recommended_aggregator`). The '
    'last one: which sums over clients the server sees in the clear when model '
    'deltas and metrics are summed securely.',
    '',
    *(f'| {" | ".join(cells)} |' for cells in (heads, ['---'] * len(heads))),
    *(f'| {" | ".join(cells)} |' for cells in table),
  ]
  if reasons:
    lines += ['', 'The reasons, as the builder gives them:', '']
    lines += [f'{number}. {reason}' for reason, number in reasons.items()]
  return '\n'.join(lines) + '\n'


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  parser = argparse.ArgumentParser(prog='python -m tools.deployment')
  parser.add_argument(
    '--process', required=True, help='a process, several with commas, or all'
  )
  parser.add_argument('--write', help='write the page to this file')
  values = parser.parse_args(argv[1:])
  known = algorithms.PROCESSES
  names = list(known) if values.process == 'all' else values.process.split(',')
  if unknown := [name for name in names if name not in known]:
    parser.error(f'--process={unknown[0]} is none of {", ".join(known)}.')
  commands.install_context()
  rows = []
  for name in names:
    print(f'{name} ...', file=sys.stderr, flush=True)
    rows.append(measure(name))
  if values.write is None:
    print(text(rows), end='')
  else:
    pathlib.Path(values.write).write_text(text(rows), encoding='utf-8')
    print(f'{values.write} is written.')
  return 0


if __name__ == '__main__':
  commands.end(main)
