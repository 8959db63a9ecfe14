"""Runs on a Ray cluster of their own that a signal reaches.

`benchmarks.chaos --signals=N` tries them.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import psutil

from benchmarks import broken_runs, rehearsal
from experiments import run
from experiments.config import command_line

_ROUNDS = 40
# On a Ray cluster that ends with the run.
_COMMAND = (
  *('--process=grouping', *broken_runs.SMALL, *broken_runs.SERVER),
  *(f'--total_rounds={_ROUNDS}', '--rounds_per_evaluation=10'),
  '--threshold=0.5',
  *('--cluster=local', '--cluster_parts=2', '--part_timeout=10'),
)
NAME = 'cluster'
# By which word of its command a process of Ray is known.
_OF_RAY = {'node': 'raylet', 'head': 'gcs_server', 'worker': 'ray::RayWorker'}
# `SIGPIPE`: whoever reads what a run prints goes away.
SIGNALS = (
  *(f'{name}_{part}' for part in _OF_RAY for name in ('SIGKILL', 'SIGSTOP')),
  *('SIGKILL_run', 'SIGINT_run', 'SIGTERM_run', 'SIGHUP_run', 'SIGPIPE_run'),
)
# Processes that a run starts inherit it, also those that leave its session.
_MARK = 'TFF_SSL_CHAOS'
# Seconds that a run may take to end, and then its processes.
_PATIENCE_S, _GRACE_S = 120, 30


class ClusterChaos(broken_runs.BrokenRuns):
  """Runs on a Ray cluster of their own that a signal reaches.

  It comes at a random moment, while the cluster starts or after any round, and
  is sent to the run or to one of the processes of its cluster.
  """

  def __init__(self, seed: int, place: pathlib.Path):
    """Takes a folder for the run, its cache, and what it prints."""
    super().__init__(_COMMAND, seed, place)
    self.process = NAME

  def __enter__(self) -> 'ClusterChaos':
    with self._started() as process:
      self._wait_for_part(process, 'head')
      began = time.monotonic()
      self._wait_for_rounds(process, 1)
      self._seconds = time.monotonic() - began
      if code := process.wait():
        raise RuntimeError(
          f'on a cluster: {broken_runs.in_words(code)}, {self._said()}'
        )
    self._expected = broken_runs.digests(self._folder)
    return self

  def __exit__(self, *unused) -> None:
    pass

  def try_point(self, point: int, fault: str) -> tuple[str, str]:
    """Returns how a run ended after a signal, and what its resumption gave."""
    self._clear()
    rng = np.random.default_rng([self.seed, point, SIGNALS.index(fault)])
    name, part = fault.split('_')
    with self._started() as process:
      self._wait_for_part(process, 'head')
      if rng.random() < 0.5:
        time.sleep(self._seconds * rng.random())
      else:
        self._wait_for_rounds(process, int(rng.integers(_ROUNDS)))
      if part == 'run':
        _send(process, name)
      else:
        victims = self._wait_for_part(process, part)
        for victim in rng.choice(victims, 1) if victims else ():
          victim.send_signal(signal.Signals[name])
      try:
        code = process.wait(_PATIENCE_S)
      except subprocess.TimeoutExpired:
        return 'none', f'it hangs for {_PATIENCE_S} s: {self._said()}'
      _, left = psutil.wait_procs(_marked(), timeout=_GRACE_S)
      names = [_program(one) for one in left]
    ending, number = broken_runs.in_words(code), signal.Signals[name]
    if names:
      return ending, f'left: {", ".join(names)}'
    was_ended = code in (-number, 128 + number)
    wrong = '' if was_ended else self._wrong_ending(code)
    return ending, wrong or self._resume(code)

  def _resume(self, code: int) -> str:
    if code:
      with self._started() as process:
        if code := process.wait():
          return f'not resumable: {broken_runs.in_words(code)}, {self._said()}'
    return self._difference()

  @contextlib.contextmanager
  def _started(self) -> Iterator[subprocess.Popen]:
    """Starts the command in a process group; nothing outlives the block."""
    code = (
      'import sys; from benchmarks import cluster_chaos as c; c.train(sys.argv)'
    )
    command = (sys.executable, '-c', code)
    with self._errors.open('w') as errors:
      process = subprocess.Popen(
        [*command, *self._arguments, f'--run_dir={self._folder}'],
        env={**os.environ, _MARK: str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
      )
    try:
      yield process
    finally:
      for one in _marked():
        one.kill()
      process.wait()
      process.stdout.close()

  def _wait_for_part(self, process, part: str) -> list[psutil.Process]:
    """Waits for a part of the cluster, or the end; returns its processes."""
    found = []
    while process.poll() is None and not found:
      time.sleep(0.01)
      found = [one for one in _marked() if _OF_RAY[part] in _program(one)]
    return found

  def _wait_for_rounds(self, process, number: int) -> None:
    while (
      process.poll() is None and broken_runs.num_rows(self._folder) < number
    ):
      time.sleep(0.01)


def train(command: Sequence[str]) -> NoReturn:
  """Runs a command with the times of a rehearsal, and ends this process."""
  with rehearsal.pinned():
    command_line.run(lambda: run.main(command))


def _send(process: subprocess.Popen, name: str) -> None:
  number = signal.Signals[name]
  if number == signal.SIGPIPE:
    process.stdout.close()
  elif number == signal.SIGINT:  # A terminal sends it to the whole group.
    os.killpg(process.pid, number)
  else:
    process.send_signal(number)


def _marked() -> list[psutil.Process]:
  """Returns the processes of runs that this one has started."""
  return [
    one
    for one in psutil.process_iter()
    if _asked(one.environ, {}).get(_MARK) == str(os.getpid())
  ]


def _program(process: psutil.Process) -> str:
  return ' '.join(_asked(process.cmdline, [])[:1])


def _asked(question, otherwise):
  try:
    return question()
  except psutil.Error:  # It has ended, or belongs to another user.
    return otherwise
