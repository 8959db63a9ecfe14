"""Processes of their own, where what a fresh Python does is the point."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments, timeout=120, **options):
  """Runs `python ARGUMENTS` in the project's folder; returns what it said."""
  return subprocess.run(
    [sys.executable, *map(str, arguments)],
    **{'cwd': ROOT, 'capture_output': True, 'text': True, **options},
    timeout=timeout,
  )


def start(*arguments, **options):
  """Likewise, without waiting for its end; a pipe leads to what it says."""
  return subprocess.Popen(
    [sys.executable, *map(str, arguments)],
    **{'cwd': ROOT, 'stdout': subprocess.PIPE, 'text': True, **options},
  )
