"""What tests of reports share: the pictures that are saved."""

import pytest
from matplotlib import figure


@pytest.fixture
def pictures(monkeypatch):
  """The figures of matplotlib that the test has saved, in their order."""
  found = []
  save = figure.Figure.savefig

  def save_and_keep(self, *args, **options):
    found.append(self)
    save(self, *args, **options)

  monkeypatch.setattr(figure.Figure, 'savefig', save_and_keep)
  return found
