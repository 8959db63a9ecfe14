"""What all tests share: one TFF context."""

import builtins
import contextlib
import gc
import hashlib
import math
import os
import sys

import pytest

from experiments.preparing import execution_context

# In tests/support, which pyproject.toml puts on the path.
pytest_plugins = ('costs',)

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
# With oneDNN, what computes in bfloat16 ends the process on some processors.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')
# As in runs, whichever test imports TensorFlow first.
execution_context.choose_kernels(None)
# The whole suite can be run in TFF's worker, too.
_KIND = os.environ.get('TFF_SSL_TEST_CONTEXT', 'in_process')
# By default the processes that Ray starts give way to all others, and a test
# waits for them while other tests take the cores.
os.environ.setdefault('RAY_worker_niceness', '0')

# Building processes makes many objects that stay: with Python's default of 700,
# the search for cycles among them takes a twentieth of the time.
gc.set_threshold(100_000)


_LONGEST = ('tests/experiments/test_', 'tests/tff_ssl/testing/')

_INSTALLED = pytest.StashKey[object]()


# Before pytest-xdist, which reads the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Keeps a file, whose tests share fixtures, in one process of pytest-xdist.

  Tests that have a group of their own stay in that. What takes longest goes
  first, so that all processes end at about one time: whole runs, one of whose
  files takes minutes, then the contract suite.
  """
  items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))
  for item in items:
    if not item.get_closest_marker('xdist_group'):
      file, _, _ = item.nodeid.partition('::')
      item.add_marker(pytest.mark.xdist_group(file))


@pytest.fixture(scope='session')
def _compiled_once():
  """Spares TFF's compiler what it has done before.

  It parses the type of each part of a computation, and optimises each of its
  TensorFlow graphs. Builds of one process, and often of two, share most of
  them to the byte.
  """
  from tensorflow_federated.python.core.environments.tensorflow_backend import (
    compiled_computation_transformations as transformations,
  )
  from tensorflow_federated.python.core.impl.types import type_serialization

  parse, types = type_serialization.deserialize_type, {}
  optimise, graphs = transformations.optimize_tensorflow_comp, {}

  def parse_once(proto):
    key = proto.SerializeToString()
    if key not in types:
      types[key] = parse(proto)
    return types[key]

  def optimise_once(comp, config):
    proto = comp.proto.SerializeToString(deterministic=True)
    key = (
      hashlib.sha256(proto).digest(),
      # Names the Python containers, which the former does not.
      comp.type_signature,
      config.SerializeToString(deterministic=True),
    )
    if key not in graphs:
      graphs[key] = optimise(comp, config)
    return graphs[key]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(type_serialization, 'deserialize_type', parse_once)
    patch.setattr(transformations, 'optimize_tensorflow_comp', optimise_once)
    yield


@pytest.fixture(scope='session')
def tff_context(request, _compiled_once):
  """Installs this library's context as TFF's default one, once."""
  from tff_ssl.simulation import contexts, worker_context

  context = contexts.install_context(_KIND)
  request.session.stash[_INSTALLED] = context
  yield context
  worker_context.stop_workers()


@pytest.fixture(scope='module', autouse=True)
def _ready_tff(request):
  """Installs the context again where a module has installed another one.

  Where TFF is imported at all, its compiler is spared, too.
  """
  if 'tensorflow_federated' in sys.modules:
    request.getfixturevalue('_compiled_once')
  if context := request.session.stash.get(_INSTALLED, None):
    import tensorflow_federated as tff

    from tff_ssl.simulation import contexts, worker_context

    if _KIND == contexts.WORKER and not worker_context.ports():
      context = contexts.install_context(_KIND)
      request.session.stash[_INSTALLED] = context
    tff.framework.set_default_context(context)


@pytest.fixture(scope='session')
def data_dir():
  """The folder of real data; skips where there is none."""
  folder = os.environ.get('TFF_SSL_DATA_DIR')
  if not folder:
    pytest.skip('needs real data: set TFF_SSL_DATA_DIR to their folder')
  return folder


@pytest.fixture(scope='session')
def refusal():
  """Expects an error whose message is one line that holds all these texts.

  It may have to match a regular expression, too.
  """

  @contextlib.contextmanager
  def expect(*texts, error=ValueError, match=None):
    with pytest.raises(error, match=match) as caught:
      yield
    message = str(caught.value)
    assert '\n' not in message
    for text in texts:
      assert text in message, message

  return expect


@pytest.fixture
def error_of(capsys):
  """Runs a command line that is refused, and returns the one line of error."""

  def run_and_read(main, *arguments, code=2):
    assert main(['program', *map(str, arguments)]) == code
    error = capsys.readouterr().err
    assert error.startswith('error: ') and error.count('\n') == 1
    return error

  return run_and_read


@pytest.fixture
def pictures(monkeypatch):
  """The figures of matplotlib that the test has saved, in their order."""
  from matplotlib import figure

  found = []
  save = figure.Figure.savefig

  def save_and_keep(self, *args, **options):
    found.append(self)
    save(self, *args, **options)

  monkeypatch.setattr(figure.Figure, 'savefig', save_and_keep)
  return found


@pytest.fixture
def failing_calls(monkeypatch):
  """A context in which the n-th call of some functions of `os` fails.

  With 'open', the built-in function fails, too.
  All later ones fail, too, unless `last` is given. It yields the calls made.
  """

  @contextlib.contextmanager
  def patch_calls(names, error, first, last=math.inf):
    made = []

    def wrap(function):
      def call(*args, **kwargs):
        made.append(function)
        if first <= len(made) <= last:
          raise error
        return function(*args, **kwargs)

      return call

    with monkeypatch.context() as patch:
      for name in names:
        patch.setattr(os, name, wrap(getattr(os, name)))
      if 'open' in names:
        patch.setattr(builtins, 'open', wrap(open))
      yield made

  return patch_calls
