"""Kills runs at each of their file operations, and lets each of these fail.

    python -m benchmarks.chaos --write=results/chaos.csv
    python -m benchmarks.chaos --replay=grouping:0:57:kill_half

A run of three rounds is rehearsed (`benchmarks.rehearsal`), and its operations
that change files are counted (`benchmarks.faulty_disk`). Then the whole command
is run again and again. At each operation in turn it is killed, or an error of
the disk begins. It is resumed without a fault, and must end with the same
files, byte for byte. An error must end it with one sentence, and a run that
ends with exit code 0 must have lost nothing. A private run must have counted
each round before it drew noise, and draw none anew for a round that it keeps.

`--kills=N` kills real runs, which compute, at random moments. `--signals=N`
sends signals to runs on a Ray cluster and to the processes of that cluster
(`make ray` installs Ray).
"""

import argparse
import collections
import contextlib
import csv
import gc
import json
import multiprocessing
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np

from benchmarks import broken_runs, cluster_chaos, faulty_disk, rehearsal
from benchmarks.broken_runs import SAME, SERVER, SMALL
from experiments import run
from experiments.artifacts import checkpoints, run_folder
from tff_ssl import privacy

PROCESSES = {
  'grouping': (
    *('--process=grouping', *SMALL, *SERVER, '--total_rounds=3'),
    *('--threshold=0.5', '--rounds_per_evaluation=1'),
    '--pseudo_label_examples=100',
  ),
  'private': (
    *('--process=fedavg', *SMALL, '--total_rounds=3', '--aggregator=dp'),
    *('--noise_multiplier=0.1', '--clip_norm=0.5', '--rounds_per_evaluation=2'),
  ),
  'scaffold': (
    *('--process=scaffold', *SMALL, '--total_rounds=3', '--batch_size=20'),
    *('--labelled_fraction=0.5', '--rounds_per_evaluation=2'),
  ),
  'fedtrinet': (
    *('--process=fedtrinet', *SMALL, '--total_rounds=3'),
    *('--model=dense_encoder', '--batch_size=10', '--local_epochs=1'),
    *('--supervised_rounds=1', '--rounds_per_evaluation=2'),
  ),
  # A model that hardly knows anything labels everything.
  'rewinds': (
    *('--process=fedavg_ssfl', *SMALL, *SERVER, '--total_rounds=5'),
    *('--threshold=0', '--server_steps=10', '--learning_rate=0.03'),
    *('--rounds_per_evaluation=2', '--on_collapse=rewind'),
  ),
}
# Killed at its point, and twice more while it is resumed.
THRICE = 'kill_thrice'
FAULTS = (*faulty_disk.KILLS, THRICE, *faulty_disk.ERRORS)
# At random moments; its points count them.
MOMENTS = 'kill_at_random'
_COLUMNS = (
  *('process', 'seed', 'point', 'fault', 'operation', 'ending', 'outcome'),
)
_SERVER_OF_FORKS = multiprocessing.get_context('forkserver')
_SERVER_OF_FORKS.set_forkserver_preload(['benchmarks.rehearsal'])


class Chaos(broken_runs.BrokenRuns):
  """Runs of one process that end too early, and what becomes of them.

  Attributes:
    operations: Those of the undisturbed run: names, and paths in its folder.
  """

  operations: list[tuple[str, str]]

  def __init__(self, process: str, seed: int, place: pathlib.Path):
    """Takes a folder for the run, its cache, and what it prints."""
    super().__init__(PROCESSES[process], seed, place)
    self.process = process
    self._run = rehearsal.Rehearsal(self._arguments, self._folder)
    self._seconds: float | None = None

  def __enter__(self) -> 'Chaos':
    with contextlib.ExitStack() as stack:
      with (
        self._output.open('w') as output,
        contextlib.redirect_stdout(output),
      ):
        stack.enter_context(self._run)
      self._expected = broken_runs.digests(self._folder)
      self._is_private = (self._folder / broken_runs.LEDGER).exists()
      self.count()
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *unused) -> None:
    self._stack.close()

  def count(self) -> None:
    """Counts the operations of an undisturbed run.

    Raises:
      RuntimeError: If it ends otherwise than the run that was rehearsed.
    """
    self._clear()
    code = self._start()
    if code or (outcome := self._difference()) != SAME:
      outcome = self._said() if code else outcome
      raise RuntimeError(
        f'{self.process}: {broken_runs.in_words(code)}, {outcome}'
      )
    self.operations = json.loads(self._output.read_text().splitlines()[-1])

  def points(self) -> Iterator[tuple[int, str]]:
    """Yields each operation, from 1, with each fault that it can have."""
    for point, (name, _) in enumerate(self.operations, start=1):
      for fault in FAULTS:
        # After one operation is before the next one.
        is_last = point == len(self.operations)
        if (fault != faulty_disk.AFTER or is_last) and (
          fault != faulty_disk.HALF or name in faulty_disk.WRITES
        ):
          yield point, fault

  def saved_at(self, point: int) -> int:
    """Returns the last round whose checkpoint must survive an operation.

    The operation itself may be done, or not: what it removes need not survive.
    """
    there = {0}
    for number, (name, where) in enumerate(self.operations[:point], 1):
      match = re.fullmatch(rf'{run_folder.CHECKPOINTS}/(\D+)(\d+)', where)
      if name == 'rename' and match:
        saved = int(match[2])
        if match[1] != 'round_':  # It is being removed.
          there.discard(saved)
        elif number < point - 1:  # The folder is synced, too.
          there.add(saved)
    return max(there, default=0)

  def try_point(self, point: int, fault: str) -> tuple[str, str]:
    """Returns how a run with a fault ended, and what its resumption gave."""
    self._clear()
    rng = np.random.default_rng([self.seed, point])
    if fault == MOMENTS:
      self._train_for_real(self._length() * rng.uniform())
      return broken_runs.in_words(-signal.SIGKILL), self._resume()
    is_kill = fault in (*faulty_disk.KILLS, THRICE)
    first = faulty_disk.KILLS[0] if fault == THRICE else fault
    code = self._start(point, first)
    ended = broken_runs.in_words(code)
    if is_kill:
      wrong = '' if code == -signal.SIGKILL else 'not killed'
    else:
      wrong = self._wrong_ending(code)
    if wrong:
      return ended, wrong
    if not code:  # Then nothing may be missing, and nothing is resumed.
      return ended, self._difference()
    if (kept := self._rounds_kept()) < (saved := self.saved_at(point)):
      return ended, f'round {saved} was saved, and {kept} is left'
    for _ in range(2 * (fault == THRICE)):
      self._start(int(rng.integers(1, len(self.operations))), first)
    return ended, self._resume()

  def _resume(self) -> str:
    """Starts the run again, and returns what is wrong with its end, if any."""
    kept = self._rounds_kept()
    drawn_before = len(self._run.drawn())
    if code := self._start():
      return f'not resumable: {broken_runs.in_words(code)}, {self._said()}'
    if self._is_private:
      drawn = self._run.drawn()
      counted = _counted(self._folder / broken_runs.LEDGER)
      if any(counted[n] < drawn.count(n) for n in drawn):
        return f'rounds {drawn} are drawn, and {dict(counted)} counted'
      if any(number < kept for number in drawn[drawn_before:]):
        return f'rounds {drawn} are drawn, though {kept} are kept'
    return self._difference()

  def _rounds_kept(self) -> int:
    return checkpoints.rounds_done(self._folder / run_folder.CHECKPOINTS)

  def _start(self, point: int = 0, fault: str | None = None) -> int:
    """Runs the command in a fork, and returns its exit code."""
    disk = faulty_disk.FaultyDisk(self._folder, point, fault)

    def run():
      with disk.hooked():
        code = self._run.main()
      print(json.dumps(disk.operations))
      return code

    child = os.fork()
    if not child:
      self._become(run)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

  def _become(self, run) -> NoReturn:
    """Ends this process with what a function returns."""
    code = 70
    gc.disable()  # It would copy most of the memory.
    try:
      sys.stdout, sys.stderr = self._output.open('w'), self._errors.open('w')
      code = run()
    except BaseException:
      traceback.print_exc()
    finally:
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(code)

  def _length(self) -> float:
    """Returns how many seconds a real run trains."""
    if self._seconds is None:
      self._seconds = self._train_for_real(None)
      if (outcome := self._difference()) != SAME:
        raise RuntimeError(f'{self.process}, for real: {outcome}')
      self._clear()
    return self._seconds

  def _train_for_real(self, seconds: float | None) -> float:
    """Trains with TensorFlow for some seconds, or to the end.

    Returns how long it took.
    """
    process = _SERVER_OF_FORKS.Process(
      target=_for_real, args=(self._run.command, str(self._output))
    )
    process.start()
    flags = self._folder / run_folder.FLAGS
    while process.is_alive() and not flags.exists():
      time.sleep(0.01)
    began = time.monotonic()
    process.join(seconds)
    process.kill()
    process.join()
    return time.monotonic() - began

  def _clear(self) -> None:
    super()._clear()
    self._run.forget_drawn()


def _for_real(command: Sequence[str], output: str) -> NoReturn:
  """Runs a command in this process, with the times of a rehearsal."""
  with pathlib.Path(output).open('w') as file, rehearsal.pinned():
    sys.stdout = sys.stderr = file
    os._exit(run.main(command))


def _counted(ledger: pathlib.Path) -> collections.Counter:
  """Returns how often each round counts in a ledger of released rounds."""
  said = privacy.ReleaseLedger.unpack(ledger.read_bytes())
  return collections.Counter(
    {n: sum(said.repeated.get(n, [1])) for n in range(said.begun)}
  )


@contextlib.contextmanager
def _opened(
  process: str, seed: int
) -> Iterator[Chaos | cluster_chaos.ClusterChaos]:
  with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name).resolve()
    if process == cluster_chaos.NAME:
      opened = cluster_chaos.ClusterChaos(seed, place)
    else:
      opened = Chaos(process, seed, place)
    with opened as chaos:
      yield chaos


def _points(chaos, asked) -> list[tuple[int, str]]:
  """Returns what is tried of a process: numbers and faults."""
  if isinstance(chaos, cluster_chaos.ClusterChaos):
    return [
      (n + 1, name)
      for n in range(asked.signals)
      for name in cluster_chaos.SIGNALS
    ]
  points = [each for each in chaos.points() if each[0] % asked.every == 0]
  if chaos.process != 'private':  # The noise of real runs is another.
    points += [(n + 1, MOMENTS) for n in range(asked.kills)]
  return points


def _try(
  chaos: Chaos | cluster_chaos.ClusterChaos, point: int, fault: str
) -> dict[str, str]:
  """Tries a point, and returns its row."""
  ending, outcome = chaos.try_point(point, fault)
  is_random = fault in (MOMENTS, *cluster_chaos.SIGNALS)
  where = '' if is_random else ' '.join(chaos.operations[point - 1])
  values = (chaos.process, chaos.seed, point, fault, where, ending, outcome)
  row = dict(zip(_COLUMNS, map(str, values), strict=True))
  if outcome != SAME:
    print(*row.values(), flush=True)
  return row


def _try_all(asked, file) -> bool:
  """Tries what a file has not yet; returns whether all has ended well."""
  rows = list(csv.DictReader(file))
  done = {tuple(row.values())[:4] for row in rows}
  writer = csv.DictWriter(file, _COLUMNS, lineterminator='\n')
  if not rows:
    writer.writeheader()
  for process in asked.only.split(','):
    began = time.monotonic()
    with _opened(process, asked.seed) as chaos:
      points = _points(chaos, asked)
      for point, fault in points:
        key = (process, *map(str, (asked.seed, point)), fault)
        if key not in done:
          rows.append(_try(chaos, point, fault))
          writer.writerow(rows[-1])
          file.flush()
    print(
      f'{process}: {len(points)} faults, {time.monotonic() - began:.0f} s',
      flush=True,
    )
  wrong = [row for row in rows if row['outcome'] != SAME]
  print(
    f'{len(rows)} runs with a fault, {len(wrong)} of them with another end.'
  )
  return not wrong


def main() -> int:
  """Tries all points, or the one to replay; returns 1 after a failure."""
  parser = argparse.ArgumentParser(prog='python -m benchmarks.chaos')
  parser.add_argument(
    '--only',
    default=','.join(PROCESSES),
    help=f'of these, or {cluster_chaos.NAME}',
    metavar='A,B',
  )
  parser.add_argument(
    '--every',
    type=int,
    default=1,
    help='tries each N-th operation',
    metavar='N',
  )
  parser.add_argument('--seed', type=int, default=0, help='of the runs')
  parser.add_argument(
    '--kills',
    type=int,
    default=0,
    help='random kills of real runs of each process, but the private one',
  )
  parser.add_argument(
    '--signals',
    type=int,
    default=0,
    help='signals of each kind to a run on a cluster, and to each part of it',
  )
  parser.add_argument(
    '--write',
    metavar='FILE',
    default=os.devnull,
    help='gets a row for each run; those that it has are not done again',
  )
  parser.add_argument(
    '--replay', metavar='PROCESS:SEED:POINT:FAULT', help='tries a row again'
  )
  asked = parser.parse_args()
  if asked.replay:
    process, seed, point, fault = asked.replay.split(':')
    with _opened(process, int(seed)) as chaos:
      row = _try(chaos, int(point), fault)
    print(row)
    return row['outcome'] != SAME
  with open(asked.write, 'a+', newline='') as file:
    file.seek(0)
    return not _try_all(asked, file)


if __name__ == '__main__':
  sys.exit(main())
