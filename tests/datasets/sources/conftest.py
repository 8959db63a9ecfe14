"""What tests of sources share."""

import pytest


@pytest.fixture(scope='session')
def hostile_ids():
  """Twelve names of clients that no code may take for anything else."""
  return [
    *("o'brien", '"; DROP TABLE examples; --', '../../etc/passwd', 'a|b'),
    *('line\nbreak', 'nul\0inside', '\u00e9', 'e\u0301', '\U0001f58a', ''),
    *('=cmd()<script>', 'x' * 10_000),
  ]
