"""What each process asks of a platform: a page of the reference.

    python -m tools.deployment --process=NAME[,NAME] [--write=FILE]

Every cell of the table is made by building and running a process of the
registry, on tiny data; all of them take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epy

import tff_ssl
from experiments.config import command_line
from tff_ssl import algorithms
from tff_ssl.aggregators import recommended
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
_YES, _NO = 'yes', '-'


def measure(name: str) -> Mapping[str, str]:
  """Builds and runs a process with each aggregator; returns cells by heading.

  Sizes are in models. Of an aggregator, a cell is 'yes' or why it is refused;
  the last one has the sums that the server sees in the clear with `secure`.
  """
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
  keeps_state = problem.spec.takes('client_state_dir')
  row = {
    'process': f'`{name}`',
    'MapReduceForm': map_reduce,
    'DistributeAggregateForm': distribute_aggregate,
    'down': f'{sent.down / size:.1f}',
    'up': f'{sent.up / size:.1f}',
    'client keeps': str(problem.spec.models_in_state) if keeps_state else _NO,
    'server keeps': f'{_num_bytes(problem.initial_state) / size:.1f}',
  }
  built: dict[str, Any] = {}
  for aggregator in AGGREGATORS:
    head = f'`{aggregator}`'
    row[head] = _NO
    if problem.spec.needs.clients != 'none':
      built[aggregator], row[head] = _attempt(
        lambda aggregator=aggregator: _run_with(problem, aggregator)
      )
  row['seen with `secure`'] = _seen(built.get('secure'))
  return row


def _run_with(problem: TinyProblem, name: str):
  """Runs a round with an aggregator; returns the process."""
  process = problem.build(**problem.aggregation(name, len(CLIENT_SIZES)))
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


def text(rows: Sequence[Mapping[str, str]]) -> str:
  """Returns the page of some rows."""
  reasons: dict[str, int] = {}

  def cell(head: str, outcome: str) -> str:
    is_reason = head.startswith('`') or head.endswith('Form')
    if not is_reason or outcome in (_YES, _NO):
      return outcome
    return f'no ({reasons.setdefault(outcome, len(reasons) + 1)})'

  table = [list(itertools.starmap(cell, row.items())) for row in rows]
  heads = list(rows[0])
  lines = [
    '# What a process asks of a platform',
    '',
    f'`{COMMAND}` builds and runs each process on tiny data and writes this '
    'page.',
    '',
    'Down and up are what a client receives and sends in a round. These, and '
    'what client and server keep, are in sizes of the model. A column with the '
    'name of an aggregator says whether a round runs with it '
    '(`tff_ssl.recommended_aggregator`). The last column: which sums over '
    'clients the server sees in the clear when model deltas and metrics are '
    'summed securely.',
    '',
    *(f'| {" | ".join(cells)} |' for cells in (heads, ['---'] * len(heads))),
    *(f'| {" | ".join(cells)} |' for cells in table),
  ]
  if reasons:
    lines += ['', 'The reasons, as the builder gives them:', '']
    lines += [f'{number}. {reason}' for reason, number in reasons.items()]
  return '\n'.join(lines) + '\n'


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command, and returns the exit code."""
  parser = argparse.ArgumentParser(prog='python -m tools.deployment')
  parser.add_argument(
    '--process', required=True, help='a process, several with commas, or all'
  )
  parser.add_argument('--write', help='write the page to this file')
  values = parser.parse_args(arguments)
  known = algorithms.PROCESSES
  names = list(known) if values.process == 'all' else values.process.split(',')
  if unknown := [name for name in names if name not in known]:
    parser.error(f'--process={unknown[0]} is none of {", ".join(known)}.')
  logging.getLogger('tensorflow').setLevel(logging.CRITICAL)
  tff_ssl.install_context()
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
  command_line.run(main)
