"""The file that a benchmark writes, such as those of `results/`."""

import json
import os

from tff_ssl.common import whole_files


def write(results: dict, path: str | os.PathLike) -> None:
  """Writes results as JSON, the whole file at once.

  Args:
    results: Of JSON types.
    path: The file; one that is there is replaced.
  """
  with whole_files.replacing(path) as file:
    file.write((json.dumps(results, indent=2) + '\n').encode())
