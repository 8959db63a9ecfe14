"""Runs whose processes are built and compiled once for all tests.

A build and the compilation of its first round take a second or two, every later
round hundredths.
"""

import contextlib
import dataclasses
import types

import costs
import pytest
import tensorflow_federated as tff

from experiments.preparing import building
from tff_ssl.simulation import contexts

# What the data, the network and the process do not know of.
_OF_THE_RUN = {
  'on_collapse',
  'rounds_per_checkpoint',
  'rounds_per_evaluation',
  'run_dir',
  'total_rounds',
}
# What was built, and the context in which it was compiled.
_built = {}
_installed = {}


def _key(settings):
  """What a build depends on; None where tests must not share it."""
  used, process = settings.used, settings.chosen['process']
  is_own = any(':' in value for value in used.values() if type(value) is str)
  # Files may have changed, states lie in the folder, noise knows the rounds.
  if (
    is_own
    or used.get('data_dir')
    or used.get('target_epsilon')
    or process.takes('client_state_dir')
  ):
    return None
  return frozenset(
    (name, value) for name, value in used.items() if name not in _OF_THE_RUN
  )


@contextlib.contextmanager
def built_once():
  """Lets runs in this process share what they build with equal settings."""
  open_run, install = building.Run.open, contexts.install_context

  def open_once(settings):
    key = _key(settings)
    if key is None:
      return open_run(settings)
    if key not in _built:
      with costs.booked_apart():
        _built[key] = settings, open_run(settings)
    asked, opened = _built[key]
    # What the data decided, such as the number of participants.
    fitted = {
      name: value
      for name, value in vars(opened.settings).items()
      if vars(asked).get(name) is not value
    }
    own = types.SimpleNamespace(**{**vars(settings), **fitted})
    return dataclasses.replace(opened, settings=own)

  def install_once(kind, **options):
    if kind == contexts.WORKER:
      return install(kind, **options)
    # A context keeps what it has compiled.
    current = tff.framework.get_context_stack().current
    asked = (kind, options)
    if _installed.get('context') is not current or _installed['asked'] != asked:
      _installed.update(context=install(kind, **options), asked=asked)
    return _installed['context']

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(building.Run, 'open', open_once)
    patch.setattr(contexts, 'install_context', install_once)
    yield


@contextlib.contextmanager
def without_pictures():
  """Leaves the files of pictures empty: drawing takes a quarter of a run."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('matplotlib.figure.Figure.savefig', lambda *_, **__: None)
    yield
