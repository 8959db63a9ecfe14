"""Runs that end too early: their folder, what they said, and what differs."""

import pathlib
import re
import shutil
import signal
from collections.abc import Sequence

from experiments.artifacts import durable_files, run_folder

# Of any of them.
SMALL = (
  *('--dataset=digits', '--model=dense', '--num_clients=6'),
  *('--clients_per_round=4', '--rounds_per_checkpoint=1'),
)
SERVER = ('--server_examples=50', '--server_warmup_rounds=0')
SAME = 'same'
LEDGER = 'released_rounds.json'
# Events of TensorFlow, a process number, and what may count more.
_NOT_COMPARED = (run_folder.TENSORBOARD, '.lock', LEDGER)


class BrokenRuns:
  """Runs of one process that end too early.

  Attributes:
    process: Its name.
    seed: That of the runs.
  """

  process: str

  def __init__(self, flags: Sequence[str], seed: int, place: pathlib.Path):
    """Takes a folder for the run, its cache, and what it prints."""
    self.seed, self._folder = seed, place / 'run'
    self._arguments = (
      *(*flags, f'--seed={seed}'),
      f'--cache_dir={place / "cache"}',
    )
    self._output, self._errors = place / 'output', place / 'errors'
    self._expected: dict[str, str] = {}

  def _clear(self) -> None:
    shutil.rmtree(self._folder, ignore_errors=True)

  def _difference(self) -> str:
    found, expected = digests(self._folder), self._expected
    names = sorted(
      name
      for name in {*found, *expected}
      if found.get(name) != expected.get(name)
    )
    return f'other {", ".join(names)}' if names else SAME

  def _said(self) -> str:
    if not self._errors.exists():
      return 'nothing said'
    return (self._errors.read_text().splitlines() or ['nothing said'])[-1]

  def _wrong_ending(self, code: int) -> str:
    """Returns what is wrong with the end of a run that was not killed."""
    if not code:
      return ''
    said = self._errors.read_text()
    sentences = re.findall('^error: .+', said, re.MULTILINE)
    if code not in (1, 2) or 'Traceback' in said or len(sentences) != 1:
      return f'not one sentence: {self._said()}'
    if code == 2 and num_rows(self._folder):
      return f'refused after a round: {self._said()}'
    return ''


def num_rows(folder: pathlib.Path) -> int:
  """Returns how many rounds a run has written to its table."""
  path = folder / run_folder.METRICS
  return path.read_bytes().count(b'\n') - 1 if path.exists() else 0


def digests(folder: pathlib.Path) -> dict[str, str]:
  """Returns the SHA-256 of each file of a run, and of its folders."""
  found = {}
  for path in folder.rglob('*'):
    name = path.relative_to(folder)
    if name.parts[0] not in _NOT_COMPARED:
      content = path.read_bytes() if path.is_file() else b''
      found[str(name)] = durable_files.sha256(content)
  return found


def in_words(code: int) -> str:
  """Returns a process's exit code, or the signal that killed it."""
  return signal.Signals(-code).name if code < 0 else f'exit {code}'
