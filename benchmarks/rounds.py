"""How long a round takes: this library, stock TFF, and a bare loop.

    python -m benchmarks.rounds --json

prints one JSON object; without `--json` a table. See `benchmarks/README.md` for
what is compared.
"""

import argparse
import functools
import json
import os
import sys
import tempfile

from experiments.preparing import execution_context

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


def main(arguments: list[str] | None = None) -> None:
  """Runs the benchmark and prints its results."""
  flags = _parse(arguments)
  results = run(flags)
  print(json.dumps(results, indent=2) if flags.json else _table(results))


def run(flags: argparse.Namespace) -> dict:
  """Returns the results for parsed flags, a dict of JSON types."""
  # Imported here: parsing and its errors should not wait for TensorFlow.
  from benchmarks import (
    candidates,
    fedlabel,
    fedul,
    floor,
    label_hungry,
    machine,
    measurement,
    overheads,
    workloads,
  )

  comparisons = {
    name: functools.partial(measurement.compare, workload)
    for name, workload in workloads.WORKLOADS.items()
  }
  sections = {
    'label_hungry': label_hungry.SECTION,
    'fedlabel': fedlabel.SECTION,
    'fedul': fedul.SECTION,
    **overheads.SECTIONS,
  }
  for name, section in sections.items():
    comparisons[name] = section.compare
  comparisons['floor'] = floor.compare
  names = [flags.only] if flags.only else list(comparisons)
  results = {'machine': machine.describe()}
  with tempfile.TemporaryDirectory() as folder:
    for name in names:
      results[name] = comparisons[name](folder, flags.repetitions)
    dense = workloads.WORKLOADS['dense']
    if flags.scaling:
      results |= measurement.scale(dense, folder, flags.repetitions)
    if flags.memory_rounds:
      store = workloads.build_store(dense.clients, dense.examples, folder)
      measured = {'ours': candidates.build_ours}
      if flags.memory_stock:
        measured['stock_tff'] = candidates.build_stock_tff
      results['memory'] = {}
      for name, build in measured.items():
        results['memory'][name] = measurement.follow_memory(
          build(dense, store), flags.memory_rounds
        )
  return results


def _parse(arguments: list[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog='python -m benchmarks.rounds',
    description='Times rounds of this library, stock TFF and a bare loop.',
  )
  parser.add_argument(
    '--json', action='store_true', help='print one JSON object, not a table'
  )
  parser.add_argument(
    '--repetitions', type=int, default=6, help='timed rounds of each candidate'
  )
  parser.add_argument(
    '--only',
    choices=(
      *('dense', 'cnn', 'label_hungry', 'fedlabel', 'fedul', 'robust'),
      *('own_models', 'kernels', 'aggregation', 'floor'),
    ),
    help='measure one section only',
  )
  parser.add_argument(
    '--scaling',
    action='store_true',
    help='also time rounds with more clients and larger populations',
  )
  parser.add_argument(
    '--memory_rounds',
    type=int,
    default=0,
    help='also follow the memory of our process over this many rounds',
  )
  parser.add_argument(
    '--memory_stock',
    action='store_true',
    help='with --memory_rounds: follow stock TFF, too',
  )
  flags = parser.parse_args(arguments)
  if flags.repetitions < 1:
    parser.error(f'--repetitions is {flags.repetitions}: give at least 1')
  if flags.memory_rounds < 0:
    parser.error(f'--memory_rounds is {flags.memory_rounds}: give at least 0')
  if flags.memory_stock and not flags.memory_rounds:
    parser.error('--memory_stock needs --memory_rounds: give both')
  return flags


def _table(results: dict) -> str:
  """Returns the results as lines of a name and its values."""
  lines = []
  for section, values in results.items():
    lines.append(section)
    lines += [f'  {name:<22} {value}' for name, value in values.items()]
  return '\n'.join(lines)


if __name__ == '__main__':
  # As in runs.
  execution_context.choose_kernels(None)
  main(sys.argv[1:])
