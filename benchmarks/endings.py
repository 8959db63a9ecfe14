"""What a run on a Ray cluster of its own leaves behind, however it ends.

    python -m benchmarks.endings

starts `experiments.run --cluster=local` once for each kind of ending and prints
one JSON object: the exit code of the run, and which of the processes that it
had started were left 30 seconds later. `--write=FILE` writes it down, too.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

import psutil

from benchmarks import results_file

_ROOT = pathlib.Path(__file__).parents[1]
# Processes that a run starts inherit it, also those that leave its session.
_MARK = 'TFF_SSL_ENDING'
_GRACE_S = 30.0
_TIMEOUT_S = 300.0
_COMMAND = (
  *(sys.executable, '-m', 'experiments.run', '--process=grouping'),
  *('--dataset=digits', '--model=dense', '--num_clients=6'),
  *('--clients_per_round=4', '--server_examples=50'),
  *('--server_warmup_rounds=0', '--cluster=local', '--cluster_parts=2'),
)
_ENDLESS = '--total_rounds=100000'


def main() -> None:
  """Runs all endings and prints what they left."""
  parser = argparse.ArgumentParser(prog='python -m benchmarks.endings')
  parser.add_argument('--only', help='comma-separated names of endings')
  parser.add_argument('--write', metavar='FILE')
  flags = parser.parse_args()
  names = flags.only.split(',') if flags.only else list(_ENDINGS)
  found = {}
  for name in names:
    with tempfile.TemporaryDirectory() as folder:
      found[name] = _try(_ENDINGS[name], pathlib.Path(folder))
    print(f'{name}: {found[name]}', file=sys.stderr, flush=True)
    if flags.write:
      results_file.write(found, flags.write)
  print(json.dumps(found, indent=2))


class _Run:
  """A run that was started, and the processes below it."""

  def __init__(self, folder: pathlib.Path, *flags: str):
    self.folder = folder / 'run'
    self._mark = uuid.uuid4().hex
    self._errors = (folder / 'stderr').open('wb')
    self.process = subprocess.Popen(
      [*_COMMAND, f'--run_dir={self.folder}', *flags],
      cwd=_ROOT,
      env={**os.environ, _MARK: self._mark},
      stdout=subprocess.PIPE,
      stderr=self._errors,
      start_new_session=True,
    )

  def wait_for(self, condition: Callable[[], bool]) -> None:
    """Waits until a condition holds.

    Raises:
      RuntimeError: If the run ends before, or it takes minutes.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
      if self.process.poll() is not None or time.monotonic() > deadline:
        raise RuntimeError(f'{self.process.args}: {self.process.returncode}')
      time.sleep(0.05)

  def train(self) -> None:
    """Waits until it has trained for some rounds."""
    table = self.folder / 'metrics.csv'
    self.wait_for(
      lambda: table.exists() and table.read_bytes().count(b'\n') > 3
    )

  def start_ray(self) -> None:
    """Waits until its cluster begins to start."""
    self.wait_for(lambda: bool(self.named('gcs_server')))

  def named(self, part: str) -> Sequence[psutil.Process]:
    """Returns its processes whose program has a part in its name."""
    return [one for one in self.alive() if part in _program(one)]

  def alive(self) -> Sequence[psutil.Process]:
    """Returns all processes that it has started, itself among them."""
    return [
      one
      for one in psutil.process_iter()
      if _environment(one).get(_MARK) == self._mark
    ]

  def end(self) -> int:
    """Waits for its end, and returns the exit code."""
    code = self.process.wait(timeout=_TIMEOUT_S)
    self.process.stdout.close()
    self._errors.close()
    return code


def _environment(process) -> Mapping[str, str]:
  try:
    return process.environ()
  except psutil.Error:  # It has ended, or belongs to another user.
    return {}


def _program(process) -> str:
  try:
    return ' '.join(process.cmdline()[:1])
  except psutil.Error:
    return ''


def _try(ending: Callable[[_Run], None], folder: pathlib.Path) -> dict:
  endless = ending is not _of_itself
  run = _Run(folder, _ENDLESS if endless else '--total_rounds=5')
  ending(run)
  code = run.end()
  began = time.monotonic()
  while left := run.alive():
    if time.monotonic() - began > _GRACE_S:
      break
    time.sleep(0.1)
  names = sorted(_program(one) for one in left)
  for one in left:
    one.kill()
  return {
    'exit_code': code,
    'left': names,
    'seconds_until_all_had_ended': round(time.monotonic() - began, 1),
  }


def _of_itself(run: _Run) -> None:
  """All rounds are done."""


def _by_signal(number: signal.Signals, *, times: int = 1):
  def ending(run):
    run.train()
    for _ in range(times):
      run.process.send_signal(number)
      time.sleep(0.01)

  return ending


def _while_it_starts(number: signal.Signals):
  def ending(run):
    run.start_ray()
    run.process.send_signal(number)

  return ending


def _without_reader(run) -> None:
  """Whoever reads what it prints goes away, as `| head` does."""
  run.train()
  run.process.stdout.close()


def _without(part: str):
  """A process of the cluster is killed that Ray cannot replace."""

  def ending(run):
    run.train()
    for one in run.named(part):
      one.kill()

  return ending


_ENDINGS = {
  'all rounds done': _of_itself,
  'SIGTERM': _by_signal(signal.SIGTERM),
  'SIGTERM twice': _by_signal(signal.SIGTERM, times=2),
  'SIGINT': _by_signal(signal.SIGINT),
  'SIGHUP': _by_signal(signal.SIGHUP),
  'SIGKILL': _by_signal(signal.SIGKILL),
  'SIGTERM while Ray starts': _while_it_starts(signal.SIGTERM),
  'SIGKILL while Ray starts': _while_it_starts(signal.SIGKILL),
  'nobody reads what it prints': _without_reader,
  'its node killed': _without('raylet'),
  'the head killed': _without('gcs_server'),
}


if __name__ == '__main__':
  main()
