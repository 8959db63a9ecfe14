"""Commands in processes of their own that need not import TensorFlow.

One server for each process of tests imports it, and forks. It runs no
operation, since TensorFlow's runtime does not survive a fork. For tests of what
a command does; where start-up is the point, start a Python.
"""

import multiprocessing
import os
import pathlib
import runpy
import sys

_ROOT = pathlib.Path(__file__).parents[2]
_PRELOADED = (
  'experiments.preparing.building',
  'experiments.running.training',
  'experiments.tables.recipes',
)
_context = multiprocessing.get_context('forkserver')


def start(module, *arguments, out, err):
  """Starts `python -m MODULE ARGUMENTS` and returns its process.

  Args:
    module: Dotted name.
    *arguments: Of the command line.
    out: Path of a file for what it prints.
    err: Likewise for standard error; the same path as `out` for both.
  """
  _context.set_forkserver_preload(list(_PRELOADED))
  process = _context.Process(
    target=_run,
    args=(module, [str(each) for each in arguments], str(out), str(err)),
  )
  process.start()
  return process


def _run(module, arguments, out, err):
  os.setsid()
  os.chdir(_ROOT)
  for path, target in ((out, 1), (err, 2)):
    os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), target)
  sys.argv = [module, *arguments]
  runpy.run_module(module, run_name='__main__', alter_sys=True)
