"""Shows how a run goes on: a bar or lines for a person, and TensorBoard."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from concurrent import futures

import tensorflow_federated as tff
import tqdm

from experiments.config import command_line
from experiments.measuring import pseudo_labels

_TRAINING = 'training'


class Progress:
  """A progress bar on a terminal; one line per evaluation elsewhere."""

  def __init__(
    self,
    first_round: int,
    total_rounds: int,
    phases: Sequence[tuple[str, int]] = (),
  ):
    """Starts the display of a run that goes on after `first_round`.

    `phases` says what the first rounds are for, and how many they are.
    """
    self._total = total_rounds
    self._phases = phases
    self._shown = {}
    self._first = first_round + 1
    # The rounds that tell how long others take begin here.
    self._since = None
    # Without smoothing, time left is by the mean of the rounds that count.
    self._bar = tqdm.tqdm(
      desc=self._phase(first_round),
      total=total_rounds,
      initial=first_round,
      unit='round',
      smoothing=0,
      disable=None,  # Where standard error is no terminal.
    )

  def update(self, rounds_done: int, metrics: dict[str, object]) -> None:
    """Shows a finished round by its row of metrics.csv."""
    for name in ('train_loss', 'server_loss', 'mask_rate', 'accuracy'):
      value = metrics.get(name)
      if value is not None and value == value:
        self._shown[name] = f'{value:.4f}'
    if words := pseudo_labels.in_words(metrics):
      self._shown['pseudo-labels'] = words
    left = self._left(rounds_done)
    if self._is_first_of_a_phase(rounds_done):
      # It compiled, and tells nothing of the rounds to come.
      self._since = rounds_done, time.time()
    if not self._bar.disable:
      self._bar.set_postfix(self._shown, refresh=False)
      self._bar.update()
      self._bar.set_description(self._phase(rounds_done))
      if self._is_first_of_a_phase(rounds_done):
        self._bar.initial, self._bar.start_t = self._since
    elif 'accuracy' in metrics or (left and rounds_done - self._since[0] == 1):
      said = [f'{name} {value}' for name, value in self._shown.items()]
      text = ', '.join([*said, *left])
      print(f'round {rounds_done}/{self._total}: {text}', flush=True)

  def close(self) -> None:
    """Ends the display."""
    self._bar.close()

  def _left(self, rounds_done: int) -> list[str]:
    """Returns the time left, once a round of the last phase was compiled."""
    rounds = self._total - rounds_done
    if not rounds or self._phase(rounds_done - 1) != _TRAINING:
      return []
    if self._is_first_of_a_phase(rounds_done):
      return []
    first, then = self._since
    seconds = (time.time() - then) / (rounds_done - first) * rounds
    return [f'about {command_line.in_words(seconds)} left']

  def _phase(self, rounds_done: int) -> str:
    """Returns the name of the phase that the next round is in."""
    for name, rounds in self._phases:
      if rounds_done < rounds:
        return f'{name} {rounds_done + 1}/{rounds}'
    return _TRAINING

  def _is_first_of_a_phase(self, rounds_done: int) -> bool:
    ends = {rounds for _, rounds in self._phases}
    return rounds_done == self._first or rounds_done - 1 in ends


class TensorBoardLog:
  """Writes the numbers of each round as TensorBoard events."""

  def __init__(self, folder: str | os.PathLike):
    self._manager = tff.program.TensorBoardReleaseManager(folder)

  def write(self, round_number: int, metrics: Mapping[str, object]) -> None:
    """Writes the numbers of a round, and leaves out strings."""
    release = self._manager.release(metrics, round_number)
    # In a thread of its own, for that of a notebook has a loop that runs.
    with futures.ThreadPoolExecutor(max_workers=1) as thread:
      thread.submit(asyncio.run, release).result()
