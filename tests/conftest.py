"""What all tests share: one TFF context whose worker ends with the tests."""

import os

import pytest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


_INSTALLED = pytest.StashKey[bool]()


# Before pytest-xdist, which reads the marks in the same hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Keeps a file, whose tests share fixtures, in one process of pytest-xdist.

  Tests that have a group of their own stay in that.
  """
  for item in items:
    if not item.get_closest_marker('xdist_group'):
      file, _, _ = item.nodeid.partition('::')
      item.add_marker(pytest.mark.xdist_group(file))


@pytest.fixture(scope='session')
def _types_parsed_once():
  """Spares TFF's compiler work that is a seventh of what these tests take.

  Of each part of a computation it parses the type anew, most of which it has
  parsed before; types do not change.
  """
  from tensorflow_federated.python.core.impl.types import type_serialization

  parse, parsed = type_serialization.deserialize_type, {}

  def parse_once(proto):
    key = proto.SerializeToString()
    if key not in parsed:
      parsed[key] = parse(proto)
    return parsed[key]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(type_serialization, 'deserialize_type', parse_once)
    yield


@pytest.fixture(scope='session')
def tff_context(request, _types_parsed_once):
  """Installs this library's local worker as TFF's default context, once."""
  from tff_ssl.simulation import workers

  request.session.stash[_INSTALLED] = True
  context = workers.install_context()
  yield context
  workers.stop_workers()


@pytest.fixture(scope='module', autouse=True)
def _living_context(request):
  """Installs the context again where an earlier module has stopped it."""
  if request.session.stash.get(_INSTALLED, False):
    from tff_ssl.simulation import workers

    if not workers.worker_memory_mib():
      workers.install_context()


@pytest.fixture(scope='session')
def data_dir():
  """The folder of real data; skips where there is none."""
  folder = os.environ.get('TFF_SSL_DATA_DIR')
  if not folder:
    pytest.skip('needs real data: set TFF_SSL_DATA_DIR to their folder')
  return folder
