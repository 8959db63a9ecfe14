"""Several runs side by side on a Ray cluster, each on cores of its own."""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

from experiments.artifacts import run_folder
from experiments.config import command_line
from experiments.config.command_line import UsageError
from experiments.tables import child_runs
from tff_ssl.common.setting import Setting
from tff_ssl.simulation import processes, ray_cluster

_ROOT = pathlib.Path(__file__).parents[2]
# A lost machine; a run goes on from its last round then.
_MAX_RETRIES = 5
_POLL_S = 1.0
_INTERRUPT_EVERY_S = 10.0
_CORES = 2
_PROGRESS_EVERY_S = 60.0

SETTINGS = (
  Setting(
    'cluster',
    str,
    'Runs side by side on a Ray cluster: local starts one on this machine, '
    'auto takes the one that runs here, HOST:PORT another. --runs_dir and '
    '--cache_dir must lie on a disk that all its machines share. Needs Ray '
    '(make ray).',
  ),
  Setting(
    'cluster_cores',
    int,
    f'Cores of each run, with --cluster; by default {_CORES}.',
    at_least=1,
    at_most=1024,
  ),
)


def run_all(
  runs: Sequence[child_runs.ChildRun], *, cluster: str | None, cores: int | None
) -> child_runs.Outcome:
  """Runs those that are not finished, as `child_runs.run_all` does.

  On a cluster, a run whose machine is lost goes on elsewhere from its last
  round. SIGTERM and Ctrl-C end all runs after their round; a second one ends
  them at once.

  Args:
    cluster: Where: `--cluster`; `None` for one after another, here.
  """
  if not cluster and cores is not None:
    raise UsageError(
      f'--cluster_cores={cores} has no effect without --cluster: leave it out, '
      'or name a cluster.'
    )
  if not cluster:
    return child_runs.run_all(runs)
  cores = cores or _CORES
  try:
    ray_cluster.connect(cluster)
  except RuntimeError as error:
    raise UsageError(f'--cluster={cluster}: {error}') from error
  ray = ray_cluster.import_ray()
  if not any(node['Resources'].get('CPU', 0) >= cores for node in ray.nodes()):
    raise UsageError(
      f'--cluster_cores={cores}: no machine of the cluster has as many; lower '
      'it.'
    )
  tally = child_runs.Tally(runs)
  remote = ray.remote(num_cpus=cores, max_retries=_MAX_RETRIES)(processes.run)
  with command_line.GracefulStop() as stop:
    waiting = {}
    for run in tally.waiting:
      print(f'--- {run.name}: {run.settings.run_dir}', flush=True)
      command = [sys.executable, '-m', 'experiments.run', *run.arguments]
      task = remote.remote(
        command, cores=cores, folder=os.getcwd(), import_from=str(_ROOT)
      )
      waiting[task] = run
    progress = _Progress(tally.waiting)
    while waiting:
      ready, _ = ray.wait(list(waiting), timeout=_POLL_S)
      if stop.requested:
        _end(list(waiting), ray)
        break
      for task in ready:
        _count(tally, waiting.pop(task), task, ray)
      progress.show()
  return child_runs.Outcome(tuple(tally.failed), stop.signal_number)


def _end(tasks, ray) -> None:
  """Interrupts tasks until all have ended: one that just begins may miss it."""
  while tasks:
    for task in tasks:
      ray.cancel(task)
    _, tasks = ray.wait(
      tasks, num_returns=len(tasks), timeout=_INTERRUPT_EVERY_S
    )


def _count(tally, run, task, ray) -> None:
  """Counts a run that has ended; shows the end of what a failed one said."""
  try:
    ended = ray.get(task)
  except ray.exceptions.RayError as error:
    ended = subprocess.CompletedProcess([], 1, str(error).splitlines()[0])
  if ended.returncode != 0:
    print(ended.stdout, file=sys.stderr, flush=True)
  tally.count(run, ended.returncode)


class _Progress:
  """Says now and then how many rounds all runs together have done."""

  def __init__(self, runs):
    self._runs = runs
    self._next = time.monotonic() + _PROGRESS_EVERY_S

  def show(self) -> None:
    if time.monotonic() < self._next:
      return
    self._next = time.monotonic() + _PROGRESS_EVERY_S
    done = sum(run_folder.rounds_done(run.settings) for run in self._runs)
    total = sum(run.settings.total_rounds for run in self._runs)
    print(f'{done:,} of {total:,} rounds', flush=True)
