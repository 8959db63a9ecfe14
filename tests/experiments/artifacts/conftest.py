"""What tests of files share: system calls that fail."""

import contextlib
import math
import os

import pytest


@pytest.fixture
def failing_calls(monkeypatch):
  """A context in which the n-th call of some functions of `os` fails.

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
      yield made

  return patch_calls
