"""Several runs one after another, each in a process of its own.

So a run that fails or is killed does not end the others, and its memory is
freed when it ends.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import Sequence

from experiments.artifacts import results
from experiments.config import command_line
from experiments.config import settings as settings_lib
from experiments.config.command_line import UsageError
from experiments.preparing import data

_ROOT = pathlib.Path(__file__).parents[2]
_NOT_TRIED, _GO_ON = 'the others are not tried', 'the others go on'

# A run must not outlive the process that started it: it would still lock its
# folder when the same command is started again. Killing it loses nothing.
_BOUND_RUN = """
import ctypes, os, runpy, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL) != 0:  # 1: PR_SET_PDEATHSIG
  sys.exit('prctl(PR_SET_PDEATHSIG) was refused')
if os.getppid() != int(sys.argv.pop(1)):
  sys.exit('the parent process is gone')
runpy.run_module('experiments.run', run_name='__main__', alter_sys=True)
"""


@dataclasses.dataclass(frozen=True)
class ChildRun:
  """A run that a table needs.

  Attributes:
    name: Its name in messages.
    given: Its flags by name, as `flags.parse` returns them, with `run_dir`.
    settings: The result of `recipes.make` for these flags.
  """

  name: str
  given: dict[str, object]
  settings: types.SimpleNamespace

  @property
  def arguments(self) -> list[str]:
    """Its flags as a command line."""
    return [f'--{name}={value}' for name, value in self.given.items()]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """Names of the runs that failed, and the signal that ended all, if any."""

  failed: tuple[str, ...]
  signal_number: int | None

  @property
  def exit_code(self) -> int:
    """0 if all are done, 1 if one failed, 128 plus the number of a signal."""
    if self.signal_number is not None:
      return 128 + self.signal_number
    return 1 if self.failed else 0


def is_finished(settings) -> bool:
  """Returns whether a run's folder holds this very run, with all its rounds.

  It is of other data where the files have changed since, or are others of the
  same names. Data are read only where all else agrees.
  """
  summary = results.read(settings.run_dir)
  if summary is None or summary['rounds'] != settings.total_rounds:
    return False
  done, wanted = (
    {k: v for k, v in used.items() if k not in settings_lib.FREE}
    for used in (summary['flags'], settings.used)
  )
  return done == wanted and summary.get('partition_digest') == _digest(settings)


def _digest(settings) -> str:
  """Returns the digest of data and partition, as a run would find them now."""
  try:
    return data.digest(settings)
  except (ValueError, TypeError) as error:
    raise UsageError(
      f'{settings.run_dir} holds a finished run, but not its data any more: '
      f'{error} To read results alone, see python -m experiments.report.'
    ) from error


def run_all(runs: Sequence[ChildRun], *, are_alike: bool = False) -> Outcome:
  """Runs those that are not finished; a failed run does not stop the others.

  SIGTERM and Ctrl-C stop the current run as they would stop a single run, and
  no other run begins. A second signal ends the current run at once.

  Args:
    are_alike: Whether all are likely to be refused if the first is. Then none
      begins after it.

  Raises:
    BrokenPipeError: If nobody reads the output any more.
  """
  tally = Tally(runs)
  with _Relay() as relay:
    for number, run in enumerate(tally.waiting):
      if relay.signal_number is not None:
        break
      print(f'--- {run.name}: {run.settings.run_dir}', flush=True)
      exit_code = relay.run(run.arguments)
      if relay.signal_number is not None:
        break
      if exit_code == command_line.UNREAD:
        # The run writes to the output of this process.
        raise BrokenPipeError(f'Nobody reads the output of {run.name}.')
      ends = (
        are_alike
        and exit_code == command_line.REFUSED
        and len(tally.waiting) == len(runs)
        and number == 0
      )
      tally.count(run, exit_code, _NOT_TRIED if ends else _GO_ON)
      if ends:
        break
  return Outcome(tuple(tally.failed), relay.signal_number)


class Tally:
  """Counts the runs that have ended, and prints how many are left.

  Attributes:
    waiting: The runs that were not finished at the beginning.
    failed: Names of those that have failed.
  """

  def __init__(self, runs: Sequence[ChildRun]):
    finished = {run.name for run in runs if is_finished(run.settings)}
    data.forget()  # The runs need the memory.
    self.waiting = [run for run in runs if run.name not in finished]
    self.failed = []
    self._num_runs = len(runs)
    self._num_ended = 0
    self._began = time.monotonic()
    if finished:
      print(f'{len(finished)}/{len(runs)} were done before.', flush=True)

  def count(self, run: ChildRun, exit_code: int, others: str = _GO_ON) -> None:
    """Counts a run that has ended; if it has failed, says what others do."""
    self._num_ended += 1
    left = len(self.waiting) - self._num_ended
    if exit_code != 0:
      self.failed.append(run.name)
      print(
        f'{run.name} failed (exit code {exit_code}); {others}.',
        file=sys.stderr,
        flush=True,
      )
      if others == _NOT_TRIED:
        return
    done = self._num_runs - left - len(self.failed)
    text = f'{done}/{self._num_runs} done'
    if left:
      per_run = (time.monotonic() - self._began) / self._num_ended
      text += f', ETA {max(1, round(left * per_run / 60))} min'
    print(text, flush=True)


class _Relay(command_line.SignalHandler):
  """Passes this process's signals on to the run that it waits for."""

  def __init__(self):
    self.signal_number = None
    self._process = None

  def run(self, arguments: Sequence[str]) -> int:
    search = [str(_ROOT), os.environ.get('PYTHONPATH', '')]
    self._process = subprocess.Popen(
      [sys.executable, '-c', _BOUND_RUN, str(os.getpid()), *arguments],
      stdin=subprocess.DEVNULL,
      # With --json, all but the document.
      stdout=sys.__stderr__ if sys.stdout is sys.stderr else None,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, search))},
      # Ctrl-C reaches all processes of a group. A run in the same group would
      # get it twice, from the terminal and from here, and end at once.
      process_group=0,
    )
    # A signal that came before the run was started.
    if self.signal_number is not None:
      self._process.send_signal(self.signal_number)
    return self._process.wait()

  def _handle(self, signal_number: int, frame) -> None:
    del frame  # Python's handlers take it.
    if self.signal_number is None:
      self.signal_number = signal_number
    if self._process is not None:
      self._process.send_signal(signal_number)
