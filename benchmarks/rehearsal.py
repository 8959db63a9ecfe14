"""A command `experiments.run` that is run again without computing anything.

What TensorFlow computes in a run is remembered by the bits of its input. So the
run can be had again within a tenth of a second, in a forked process, where
TensorFlow does not work. Whatever is not remembered ends that process.

These differ from a run: times and memory are zero. TensorFlow writes the
clients' states and TensorBoard's events in C++; here Python writes in their
place, and gives TensorFlow's kind of error. Noise for privacy is that of the
round's first draw. Epsilon is left out, since a repeated round rightly raises
it. Pictures are not drawn.
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
import tree
from matplotlib import figure

from experiments import run
from experiments.artifacts import pictures, run_folder, versions
from experiments.config import flags
from experiments.measuring import evaluation, privacy_loss, pseudo_labels
from experiments.preparing import building, description, execution_context
from experiments.running import progress, round_loop
from experiments.tables import recipes
from tff_ssl.templates import client_state

# The exit code of a run that comes to bits that the first one did not have.
UNSEEN = 99


class _Picture:
  """In the place of one that takes long to draw."""

  @staticmethod
  def savefig(file, **unused):
    """Writes something."""
    file.write(b'a picture')


def _draw(of_what, path, *unused):
  del of_what
  pictures.save(_Picture, path)


# What is always the same, and not computed.
_PINNED = (
  (round_loop, 'time', types.SimpleNamespace(monotonic=lambda: 0.0)),
  (round_loop, '_memory', dict),
  (privacy_loss.PrivacyLoss, 'measure', lambda *unused: {}),
  (privacy_loss.PrivacyLoss, 'facts', lambda *unused: {}),
  (pictures, 'draw_curves', _draw),
  (figure.Figure, 'savefig', lambda self, file, **how: _Picture.savefig(file)),
)


@contextlib.contextmanager
def pinned() -> Iterator[None]:
  """Lets runs of this process have equal files, if they compute the same."""
  with contextlib.ExitStack() as stack:
    for owner, name, new in _PINNED:
      stack.enter_context(mock.patch.object(owner, name, new))
    yield


class Unseen(BaseException):
  """A run asks for what the first one has not computed."""


class Rehearsal:
  """A command that has been run once, and can be run again in a fork."""

  def __init__(self, arguments: Sequence[str], folder: pathlib.Path):
    """Takes the flags of a run that will be in a folder."""
    self.command = ['run', *arguments, f'--run_dir={folder}']
    self.folder = folder
    self._functions: list[_Remembered] = []
    self._stack = contextlib.ExitStack()
    self._drawn = folder.with_name('drawn')

  def __enter__(self) -> 'Rehearsal':
    """Runs the command; from now on, `run` computes nothing.

    Raises:
      RuntimeError: If the run fails.
    """
    with contextlib.ExitStack() as stack:
      self._replace(stack)
      if code := run.main(self.command):
        raise RuntimeError(f'{" ".join(self.command)}: exit code {code}')
      for one in self._functions:
        one.is_frozen = True
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *unused) -> None:
    self._stack.close()

  def main(self) -> int:
    """Runs the command again, and returns its exit code."""
    try:
      return run.main(self.command)
    except Unseen:
      return UNSEEN

  def drawn(self) -> list[int]:
    """Returns the rounds whose results were given, from 0, in their order."""
    text = self._drawn.read_text() if self._drawn.exists() else ''
    return [int(line) for line in text.split()]

  def forget_drawn(self) -> None:
    """Begins anew with these rounds."""
    self._drawn.unlink(missing_ok=True)

  def _remember(self, compute, kind=None) -> '_Remembered':
    self._functions.append((kind or _Remembered)(compute))
    return self._functions[-1]

  def _replace(self, stack) -> None:
    """Lets whatever computes be remembered."""
    settings = recipes.make(flags.parse(self.command))
    execution_context.choose_kernels(settings.clients_per_round)
    opened = building.Run.open(settings)
    process, over_data = opened.process, opened.over_data
    rounds = self._remember(process.next, _Rounds)
    rounds.states = self.folder / run_folder.CLIENT_STATES
    rounds.seed, rounds.drawn = settings.seed, self._drawn
    rehearsed = dataclasses.replace(
      opened,
      process=types.SimpleNamespace(
        initialize=self._remember(process.initialize),
        next=rounds,
        get_model_weights=self._remember(process.get_model_weights),
      ),
      over_data=types.SimpleNamespace(
        read_model_weights=self._remember(over_data.read_model_weights)
      ),
    )
    communication = self._once(description.communication)
    counters = {}

    def count(model, views, split, summed, **options):
      if summed not in counters:
        sums = _counter(model, views, split, summed, **options)
        counters[summed] = self._remember(
          lambda number, weights: sums(
            types.SimpleNamespace(number=number, weights=weights)
          )
        )
      return lambda done: counters[summed](done.number, done.weights)

    _counter = pseudo_labels._counter
    for owner, name, new in (
      (building.Run, 'open', lambda settings: rehearsed),
      (execution_context, 'install', self._once(execution_context.install)),
      (
        evaluation,
        'Evaluator',
        self._once(self._evaluator(evaluation.Evaluator)),
      ),
      (pseudo_labels, '_counter', count),
      (progress, 'TensorBoardLog', _Board),
      (versions, 'describe_code', self._once(versions.describe_code)),
      (
        description,
        'communication',
        lambda settings, _, weights: communication(settings, process, weights),
      ),
    ):
      stack.enter_context(mock.patch.object(owner, name, new))
    stack.enter_context(pinned())

  def _once(self, compute):
    """Returns a function of one result, whatever its arguments are."""
    results = []

    def call(*args, **kwargs):
      if not results:
        results.append(compute(*args, **kwargs))
      return results[0]

    return call

  def _evaluator(self, kind):
    remember = self._remember

    class Evaluator(kind):
      def __init__(self, *args):
        super().__init__(*args)
        self.scores = remember(super().scores)

    return Evaluator


class _Remembered:
  """A function whose results are kept by the bits of its arguments."""

  def __init__(self, compute: Callable):
    self._compute = compute
    self._found: dict[str, Any] = {}
    self.is_frozen = False

  def __call__(self, *args):
    key = _digest(args)
    if key not in self._found:
      if self.is_frozen:
        raise Unseen
      self._found[key] = self._result(*args)
    return self._found[key]

  def _result(self, *args):
    return tree.map_structure(
      lambda leaf: leaf.numpy() if tf.is_tensor(leaf) else leaf,
      self._compute(*args),
    )


def _digest(args) -> str:
  digest = hashlib.sha256()
  for path, leaf in tree.flatten_with_path(args):
    array = np.asarray(leaf)
    digest.update(f'{path} {array.dtype} {array.shape} '.encode())
    digest.update(array.tobytes())
  return digest.hexdigest()


class _Rounds(_Remembered):
  """`process.next`, with the states that clients read and write in it."""

  states: pathlib.Path
  seed: int
  # Gets a line for each round whose result is given.
  drawn: pathlib.Path

  def __call__(self, state, keys):
    result, number, read, written = super().__call__(state, keys)
    if self.is_frozen:
      with self.drawn.open('a') as file:
        file.write(f'{list(self._found).index(_digest((state, keys)))}\n')
      if self._read(number, keys) != read:
        raise Unseen
      with _as_tensorflow():
        for path, content in written.items():
          os.makedirs(path.parent, exist_ok=True)
          with open(path, 'wb') as file:
            file.write(content)
    return result

  def _result(self, state, keys):
    before = self._contents()
    result = super()._result(state, keys)
    written = {
      path: content
      for path, content in self._contents().items()
      if before.get(path) != content
    }
    number = max((int(path.stem) for path in written), default=0)
    return result, number, self._read(number, keys), written

  def _contents(self) -> dict[pathlib.Path, bytes]:
    return {path: path.read_bytes() for path in self.states.rglob('*.state')}

  def _read(self, number, keys) -> dict[int, tuple[str, bytes]]:
    newest = client_state.newest(
      *(str(self.states), self.seed, number, [int(key[0]) for key in keys])
    )
    return {k: (path.name, path.read_bytes()) for k, path in newest.items()}


class _Board:
  """In the place of `progress.TensorBoardLog`, which writes in C++."""

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    with _as_tensorflow():
      folder.mkdir(exist_ok=True)

  def write(self, round_number, metrics):
    with _as_tensorflow(), (self._folder / 'events').open('ab') as file:
      file.write(f'{round_number} {metrics}\n'.encode())


@contextlib.contextmanager
def _as_tensorflow() -> Iterator[None]:
  """Turns an error of the disk into what TensorFlow makes of it."""
  try:
    yield
  except OSError as error:
    raise tf.errors.UnknownError(None, None, str(error)) from error
