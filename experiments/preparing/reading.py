"""The data set that was read last, for whoever asks for it next.

A process is chosen by its labels, the runs of a table are compared with it, and
a run trains on it. Nothing here imports TensorFlow.
"""

import functools

from datasets.sources import catalogue
from datasets.sources.own import tables
from datasets.sources.source import Source


@functools.lru_cache(maxsize=1)
def read(**content) -> Source:
  """Returns a data set, which stays in memory until `forget`.

  Args:
    **content: The arguments of `catalogue.load`.

  Raises:
    ValueError: If data are missing or unusable.
  """
  return catalogue.load(**content)


def content_of(settings) -> dict[str, object]:
  """Returns the arguments of `read` for a run.

  Args:
    settings: From `experiments.config.settings.make`.
  """
  options = settings.parts.source.options
  return {
    'name': settings.dataset,
    'data_dir': settings.data_dir,
    'cache_dir': settings.cache_dir,
    **{name: getattr(settings, options[name].name) for name in options},
  }


def forget() -> None:
  """Frees the memory of the data set that was read last."""
  read.cache_clear()
  tables.forget()
