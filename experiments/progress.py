"""What a person sees while a run goes on: a bar, or lines when piped."""

import sys

import tqdm


class Progress:
  """A progress bar on a terminal; one line per evaluation elsewhere."""

  def __init__(self, first_round: int, total_rounds: int):
    """Starts the display.

    Args:
      first_round: Rounds done before.
      total_rounds: Rounds of the whole run.
    """
    self._total = total_rounds
    self._shown = {}
    self._bar = None
    if sys.stderr.isatty():
      self._bar = tqdm.tqdm(
        total=total_rounds, initial=first_round, unit='round'
      )

  def update(self, rounds_done: int, metrics: dict[str, object]) -> None:
    """Shows a finished round.

    Args:
      rounds_done: Number of rounds done.
      metrics: The row of metrics.csv; `accuracy` is there after an evaluation.
    """
    for name in ('train_loss', 'server_loss', 'mask_rate', 'accuracy'):
      value = metrics.get(name)
      if value is not None and value == value:
        self._shown[name] = f'{value:.4f}'
    if self._bar is not None:
      self._bar.set_postfix(self._shown, refresh=False)
      self._bar.update()
    elif 'accuracy' in metrics:
      text = ', '.join(f'{name} {value}' for name, value in self._shown.items())
      print(f'round {rounds_done}/{self._total}: {text}', flush=True)

  def close(self) -> None:
    """Ends the display."""
    if self._bar is not None:
      self._bar.close()
