"""What the tests of settings share."""

import pytest

from experiments.config import catalogue, settings
from experiments.config.command_line import UsageError

_SETTINGS = catalogue.known()


@pytest.fixture(autouse=True)
def _no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


@pytest.fixture(scope='session')
def read_flags():
  """A function from a text such as `seed=1 split=own` to values by name."""

  def value(name, text):
    kind = _SETTINGS[name].type
    if not text:
      return ''
    return text == 'true' if kind is bool else kind(text)

  return lambda text: {
    name: value(name, rest)
    for name, _, rest in (part.partition('=') for part in text.split())
  }


@pytest.fixture(scope='session')
def make():
  """A function from flags to settings, of grouping on digits by default."""
  usual = {'process': 'grouping', 'dataset': 'digits'}
  return lambda **given: settings.make({**usual, **given})


@pytest.fixture(scope='session')
def refusal(make):
  """A function from flags to the text of their refusal, which is one line."""

  def text_of(**given):
    with pytest.raises(UsageError) as caught:
      make(**given)
    text = str(caught.value)
    assert '\n' not in text and text.endswith(('.', '?'))
    return text

  return text_of
