"""Several runs one after another, each in a process of its own.

A run that fails, or that the system kills, then takes no other with it, and
what it held of memory is given back.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import Sequence

from experiments.config import command_line
from experiments.config import settings as settings_lib
from experiments.running import signals

_ROOT = pathlib.Path(__file__).parents[2]

# A run must not outlast the process that counts on it: it would hold its folder
# when the same command is started again. It loses nothing by being killed.
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
  """A run to be had.

  Attributes:
    name: What people call it.
    given: Its flags by name, as `flags.parse` returns them, with `run_dir`.
    settings: What `recipes.make` returns for them.
  """

  name: str
  given: dict[str, object]
  settings: types.SimpleNamespace


@dataclasses.dataclass(frozen=True)
class Outcome:
  """How several runs ended.

  Attributes:
    failed: Names of those that failed.
    signal_number: The signal that ended the sequence, or `None`.
  """

  failed: tuple[str, ...]
  signal_number: int | None

  @property
  def exit_code(self) -> int:
    """0 if all is done, 1 if a run failed, 128 plus the number of a signal."""
    if self.signal_number is not None:
      return 128 + self.signal_number
    return 1 if self.failed else 0


def read_summary(run_dir: str | os.PathLike) -> dict | None:
  """Returns a run's summary.json, or `None` if there is none yet."""
  path = pathlib.Path(run_dir) / 'summary.json'
  return json.loads(path.read_text()) if path.is_file() else None


def is_finished(settings) -> bool:
  """Whether the folder of a run holds just this run, to its last round."""
  summary = read_summary(settings.run_dir)
  if summary is None or summary['rounds'] != settings.total_rounds:
    return False
  done, wanted = (
    {k: v for k, v in used.items() if k not in settings_lib.FREE}
    for used in (summary['flags'], settings.used)
  )
  return done == wanted


def run_all(runs: Sequence[ChildRun]) -> Outcome:
  """Runs what is not finished; a run that fails does not stop the others.

  SIGTERM and Ctrl-C stop the current run as they stop a single one, and no
  other begins; a second signal ends the current run at once.

  Args:
    runs: The runs, in order.

  Returns:
    How they ended.

  Raises:
    BrokenPipeError: If nobody reads the output any more.
  """
  failed = []
  finished = {run.name for run in runs if is_finished(run.settings)}
  waiting = [run for run in runs if run.name not in finished]
  if finished:
    print(f'{len(finished)}/{len(runs)} were done before.', flush=True)
  with _Relay() as relay:
    began = time.monotonic()
    for number, run in enumerate(waiting):
      if relay.signal_number is not None:
        break
      print(f'--- {run.name}: {run.settings.run_dir}', flush=True)
      exit_code = relay.run(run.given)
      if relay.signal_number is not None:
        break
      if exit_code == command_line.UNREAD:
        # Its output is that of this process.
        raise BrokenPipeError(f'Nobody reads the output of {run.name}.')
      if exit_code != 0:
        failed.append(run.name)
        print(
          f'{run.name} failed (exit code {exit_code}); the others go on.',
          file=sys.stderr,
          flush=True,
        )
      per_run = (time.monotonic() - began) / (number + 1)
      left = len(waiting) - number - 1
      done = len(runs) - left - len(failed)
      text = f'{done}/{len(runs)} done'
      if left:
        text += f', ETA {max(1, round(left * per_run / 60))} min'
      print(text, flush=True)
  return Outcome(tuple(failed), relay.signal_number)


class _Relay(signals.SignalHandler):
  """Passes the signals that come to this process on to the run it waits for."""

  def __init__(self):
    self.signal_number = None
    self._process = None

  def run(self, given) -> int:
    arguments = [f'--{name}={value}' for name, value in given.items()]
    search = [str(_ROOT), os.environ.get('PYTHONPATH', '')]
    self._process = subprocess.Popen(
      [sys.executable, '-c', _BOUND_RUN, str(os.getpid()), *arguments],
      stdin=subprocess.DEVNULL,
      env={
        **os.environ,
        'PYTHONPATH': os.pathsep.join(filter(None, search)),
      },
      # Ctrl-C reaches a whole group. Sent twice, by the terminal and from here,
      # it would end the run at once.
      process_group=0,
    )
    # One that came before there was a process to pass it to.
    if self.signal_number is not None:
      self._process.send_signal(self.signal_number)
    return self._process.wait()

  def _handle(self, signal_number: int, frame) -> None:
    del frame  # Python's handlers take it.
    if self.signal_number is None:
      self.signal_number = signal_number
    if self._process is not None:
      self._process.send_signal(signal_number)
