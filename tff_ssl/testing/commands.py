"""What the commands that run processes have in common."""

import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def install_context(log_level: int = logging.CRITICAL) -> None:
  """Imports TensorFlow Federated, and lets it compute in this process.

  Args:
    log_level: The least level at which TensorFlow says something.
  """
  # TensorFlow prints many messages, and reads this when it is imported.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  logging.getLogger('tensorflow').setLevel(log_level)
  from tff_ssl.simulation import contexts

  contexts.install_context()


def end(main: Callable[[list[str]], int]) -> NoReturn:
  """Runs a command line and ends the process with its exit code.

  Args:
    main: Takes the command line, the program first; returns the exit code.

  Raises:
    SystemExit: Always.
  """
  try:
    exit_code = main(sys.argv)
  except KeyboardInterrupt:
    exit_code = 130
  # TensorFlow's functions raise errors if they are deleted after their module.
  sys.unraisablehook = lambda unraisable: None
  sys.exit(exit_code)
