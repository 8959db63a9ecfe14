"""Runs in this process, and the folders that runs leave."""

import json
import pathlib

import pandas as pd

from experiments import run
from experiments.artifacts import results, run_folder

# Flags of a run of milliseconds a round.
SMALL = (
  *('--dataset=digits', '--model=dense'),
  *('--num_clients=6', '--clients_per_round=4'),
)
# What two runs that do the same do not share.
OF_THE_MACHINE = ['seconds', 'python_mib']


def train(folder, *arguments):
  """Runs a command line to its end in a folder, and returns its summary."""
  assert run.main(['run', *arguments, f'--run_dir={folder}']) == 0
  return summary_of(folder)


def summary_of(folder):
  return json.loads((folder / 'summary.json').read_text())


def metrics_of(folder):
  return pd.read_csv(folder / 'metrics.csv')


def assert_same_metrics(folder, other, beside=()):
  """Asserts that two runs did the same, in whatever time and memory.

  Args:
    folder: Of one of them.
    other: Of the other.
    beside: Further columns that need not be equal, nor there.
  """
  ignored = [*OF_THE_MACHINE, *beside]
  first, second = (
    metrics_of(each).drop(columns=ignored, errors='ignore')
    for each in (folder, other)
  )
  pd.testing.assert_frame_equal(first, second)


def write(folder, metrics=None, **summary):
  """Writes what is read of a finished run, and returns its folder.

  Args:
    folder: To be made, if it is not there.
    metrics: Columns of metrics.csv, by name; without any there is no such file.
    **summary: What summary.json says.
  """
  folder.mkdir(parents=True, exist_ok=True)
  if metrics is not None:
    pd.DataFrame(metrics).to_csv(folder / 'metrics.csv', index=False)
  # Of a summary that is changed here, all but its seal.
  summary.pop('sha256', None)
  sealed = results.sealed(summary, folder)
  (folder / run_folder.SUMMARY).write_text(json.dumps(sealed))
  return folder


def write_run(folder, process, metrics, seed=0, flags=(), **facts):
  """Writes a finished run of a process, with what all summaries say."""
  summary = {
    'process': process,
    'data': 'some digits',
    'seed': seed,
    'rounds': len(metrics['accuracy']),
    'accuracy': metrics['accuracy'][-1],
    'flags': {'process': process, 'seed': seed, **dict(flags)},
  }
  return write(folder, metrics, **{**summary, **facts})


def write_finished(settings, **facts):
  """Writes what makes a run with these settings look finished."""
  from experiments.preparing import data

  summary = {
    'process': settings.process,
    'seed': settings.seed,
    'rounds': settings.total_rounds,
    'flags': {**settings.used, 'run_dir': 'elsewhere'},
    'partition_digest': data.digest(settings),
  }
  return write(pathlib.Path(settings.run_dir), **{**summary, **facts})
